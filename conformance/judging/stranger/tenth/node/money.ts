import { bad, odd } from "./faults.ts";
import { DAY_MS, STARTED, day, iso, sha256hex } from "./identity.ts";
import { PROOFS } from "./proofs.ts";

// All amounts inside are whole millionths of a unit, so that sums are exact.
export const MICRO = 1_000_000;
export const FEE = 10_000; // 0.01
export const MIN_STAKE = MICRO;
export const MAX_DAYS = 1095;
export const COOLDOWN_DAYS = 7;

export interface Stake {
  amount: number;
  days: number;
  start: string;
  unlock: string;
}
export interface Entry {
  id: string;
  type: string;
  amount: number;
  at: number;
  extra: object;
}
export interface Account {
  address: string;
  available: number;
  stakes: Stake[];
  pending: { amount: number; date: string }[];
  history: Entry[];
}

const address = (name: string): string => "tnt1" + sha256hex("account " + name).slice(0, 40);

function open(name: string, available: number): Account {
  return { address: address(name), available, stakes: [], pending: [], history: [] };
}

export const accounts: Record<string, Account> = {
  "tok-a": open("a", 10_000 * MICRO),
  "tok-b": open("b", 250 * MICRO),
};
export const EXPIRED = new Set(["tok-x"]);
const byAddress = new Map(Object.values(accounts).map((a) => [a.address, a]));

let serial = 0;
export const newId = (prefix: string): string => {
  serial += 1;
  return prefix + sha256hex(`${prefix} ${STARTED} ${serial}`).slice(0, 24);
};

// The rewards of the past, one for each proof that was verified.
for (const proof of PROOFS) {
  if (!proof.verified) continue;
  accounts["tok-a"].history.unshift({
    id: "rw_" + sha256hex(proof.id).slice(0, 24),
    type: "reward",
    amount: proof.reward,
    at: proof.at + 60_000,
    extra: { details: { proof_id: proof.id, role: "driver" } },
  });
}
accounts["tok-b"].history.unshift({
  id: "rx_" + sha256hex("grant").slice(0, 24),
  type: "grant",
  amount: 250 * MICRO,
  at: STARTED - DAY_MS,
  extra: {},
});

export const units = (micro: number): number => micro / MICRO;

/** The amount in millionths, or nothing where it has more than six decimals or is no number. */
export function micros(value: unknown): number | undefined {
  if (typeof value !== "number" || !Number.isFinite(value)) return undefined;
  const micro = Math.round(value * MICRO);
  if (Math.abs(value * MICRO - micro) > 1e-3 || Math.abs(micro) > Number.MAX_SAFE_INTEGER) return undefined;
  return micro;
}

export const staked = (a: Account): number => a.stakes.reduce((sum, s) => sum + s.amount, 0);
export const pendingOf = (a: Account): number => a.pending.reduce((sum, p) => sum + p.amount, 0);

/** What has cooled down becomes available. */
export function settle(a: Account, now = Date.now()): void {
  const ready = a.pending.filter((p) => p.date <= day(now));
  for (const p of ready) a.available += p.amount;
  if (ready.length) a.pending = a.pending.filter((p) => p.date > day(now));
}

export const multiplier = (days: number): number => Math.round((1 + days / 365) * 10_000) / 10_000;

export const daysBetween = (start: string, end: string): number =>
  Math.round((Date.parse(end) - Date.parse(start)) / DAY_MS);

export function balance(a: Account): any {
  settle(a);
  const amount = staked(a);
  const staking: any = { amount: units(amount) };
  if (amount > 0) {
    const start = a.stakes.map((s) => s.start).sort()[0];
    const unlocks = a.stakes.map((s) => s.unlock).sort();
    const unlock = bad("eff-unlock-first") ? unlocks[0] : unlocks[unlocks.length - 1];
    const days = daysBetween(start, unlock);
    Object.assign(staking, {
      duration_days: days,
      start_date: start,
      unlock_date: unlock,
      multiplier: multiplier(days),
    });
  } else if (odd("stake-zeros")) {
    Object.assign(staking, { duration_days: 0, start_date: null, unlock_date: null, multiplier: 1 });
  }
  const pending = pendingOf(a);
  return {
    address: a.address,
    balances: {
      available: units(a.available),
      staked: units(amount),
      pending: units(pending),
      total: units(a.available + amount + pending),
    },
    staking,
  };
}

const clock = { last: 0 };
/** A time for an entry, later than that of any entry before. */
function stamp(): number {
  clock.last = Math.max(Date.now(), clock.last + 1);
  return clock.last;
}

export function send(from: Account, to: string, amount: number, memo: string): any {
  const at = stamp();
  const id = bad("rel-tx-id-same")
    ? "tx_" + sha256hex(from.address + to + amount + memo).slice(0, 24)
    : newId("tx_");
  const receiver = byAddress.get(to);
  const self = receiver === from;
  from.available -= amount + FEE;
  if (receiver) receiver.available += amount;
  if (bad("eff-fraction-lost") && receiver && !self) receiver.available -= amount % MICRO;
  const entry = {
    id,
    type: "send",
    amount: -amount,
    at,
    extra: { to, fee: units(FEE), memo, status: "confirmed" },
  };
  const unlisted = (bad("eff-no-memo-unlisted") && !memo) || (bad("eff-stranger-unlisted") && !receiver);
  if (!unlisted) from.history.unshift(entry);
  if (receiver && !self) {
    const owner = bad("eff-history-wrong-account") ? from : receiver;
    owner.history.unshift({
      id: id + "r",
      type: "receive",
      amount: bad("fld-receive-negative") ? -amount : amount,
      at,
      extra: { from: from.address, memo },
    });
  }
  return {
    transaction_id: id,
    from: from.address,
    to,
    amount: units(amount),
    fee: units(FEE),
    memo,
    status: "confirmed",
    timestamp: iso(at),
  };
}

export function stake(a: Account, amount: number, days: number): Stake {
  const now = Date.now();
  const made = { amount, days, start: day(now), unlock: day(now + days * DAY_MS) };
  a.stakes.push(made);
  a.available -= amount;
  if (bad("eff-stake-replaces") && a.stakes.length > 1) a.stakes = [a.stakes.at(-1)!];
  if (odd("stake-in-history")) {
    a.history.unshift({ id: newId("st_"), type: "stake", amount: -amount, at: stamp(), extra: {} });
  }
  return made;
}

/** Takes the amount from what is unlocked first, so that the rest stays locked until the latest date. */
export function unstake(a: Account, amount: number): string {
  const date = day(Date.now() + COOLDOWN_DAYS * DAY_MS);
  let left = amount;
  const order = [...a.stakes].sort((x, y) => (x.unlock < y.unlock ? -1 : x.unlock > y.unlock ? 1 : 0));
  for (const s of order) {
    const part = Math.min(left, s.amount);
    s.amount -= part;
    left -= part;
  }
  a.stakes = a.stakes.filter((s) => s.amount > 0);
  if (bad("eff-unstake-replaces")) a.pending = [{ amount, date }];
  else a.pending.push({ amount, date });
  return date;
}

export function charge(a: Account, amount: number, id: string): void {
  a.available -= amount;
  a.history.unshift({
    id: "ch_" + id,
    type: "inference",
    amount: -amount,
    at: stamp(),
    extra: { inference_id: id },
  });
}
