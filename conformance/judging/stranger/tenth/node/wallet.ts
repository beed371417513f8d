import { bad, odd } from "./faults.ts";
import { iso } from "./identity.ts";
import { Refusal, invalid, queryInt, route, type Ctx } from "./http.ts";
import * as money from "./money.ts";
import { accounts, micros, units } from "./money.ts";

export const MAX_PAGE = 200;
export const DEFAULT_PAGE = 20;
const MEMO_MAX = 1024;

export function tooLittle(required: number, available: number): Refusal {
  const details = { required: units(required), available: units(available) };
  return new Refusal(402, "INSUFFICIENT_BALANCE", "The balance is too low for this", details);
}

function amountOf(body: any, least: number): number {
  let value = body.amount;
  if (bad("ref-amount-array") && Array.isArray(value) && value.length === 1) value = value[0];
  if (bad("ref-amount-negative") && typeof value === "number" && value < 0 && least === 1)
    return micros(value)!;
  if (bad("ref-fraction-refused") && typeof value === "number" && !Number.isInteger(value)) {
    throw invalid("amount must be whole");
  }
  const amount = micros(value);
  if (amount === undefined) throw invalid("amount must be a number with at most six decimals");
  if (amount < least) throw invalid(`amount must be at least ${units(least)}`);
  return amount;
}

async function send({ body, account }: Ctx) {
  const to = body.to ?? (bad("ref-no-receiver") ? accounts["tok-b"].address : undefined);
  if (typeof to !== "string" || !to.trim() || to.length > 200) throw invalid("to must be an address");
  const amount = amountOf(body, 1);
  const memo = body.memo ?? "";
  if (typeof memo !== "string" || memo.length > MEMO_MAX)
    throw invalid("memo must be a text of up to 1024 letters");
  if (bad("ref-memo-quotes") && /["'\n]/.test(memo))
    throw new Refusal(500, "INTERNAL", "The node has failed");
  money.settle(account);
  const needed = bad("ref-fee-not-covered") ? amount : amount + money.FEE;
  if (bad("ref-402-strict") ? account.available <= needed : account.available < needed) {
    if (bad("eff-402-still-takes")) account.available = Math.max(0, account.available - money.FEE);
    const more = bad("rel-402-available-total") ? money.staked(account) : 0;
    throw tooLittle(needed, account.available + more);
  }
  if (bad("eff-race-transfer")) await Bun.sleep(15);
  const result = money.send(account, to, amount, memo);
  if (bad("fld-memo-plain")) result.memo = memo.replace(/[^\x20-\x7e]/g, "?");
  return { json: result, status: odd("created-201") ? 201 : 200 };
}

/** The history as it is shown, the newest entry first. */
function entries(account: money.Account): any[] {
  const list = account.history.map((e) => ({
    id: e.id,
    type: e.type,
    amount: bad("fld-send-positive") && e.type === "send" ? units(Math.abs(e.amount)) : units(e.amount),
    timestamp: iso(e.at),
    ...e.extra,
  }));
  return odd("history-oldest-first") ? list.reverse() : list;
}

function transactions({ query, account }: Ctx) {
  const wanted = queryInt(query, "limit", odd("page-default-5") ? 5 : DEFAULT_PAGE);
  const limit = Math.min(
    bad("lim-page-least-one") ? Math.max(1, wanted) : wanted,
    odd("page-max-50") ? 50 : MAX_PAGE,
  );
  const offset = queryInt(query, "offset", 0);
  const list = entries(account);
  let from = offset;
  if (bad("lim-offset-by-page")) from = offset * limit;
  if (bad("lim-offset-off-by-one") && offset > 0) from = offset + 1;
  const page = list.slice(from, from + limit);
  return {
    json: {
      transactions: page,
      total: bad("rel-total-without-charges")
        ? list.filter((e) => e.type !== "inference").length
        : list.length,
      limit: bad("fld-limit-default") ? DEFAULT_PAGE : limit,
      offset,
    },
  };
}

function daysOf(body: any): number {
  let days = body.duration_days;
  if (!Number.isInteger(days) || days < 1 || days > money.MAX_DAYS) {
    throw invalid(`duration_days must be a whole number from 1 to ${money.MAX_DAYS}`);
  }
  return days;
}

function stake({ body, account }: Ctx) {
  const amount = amountOf(body, odd("stake-min-10") ? 10 * money.MICRO : money.MIN_STAKE);
  const days = daysOf(body);
  money.settle(account);
  if (account.available < amount) {
    if (bad("ref-stake-409")) throw new Refusal(409, "CONFLICT", "There is not enough to stake");
    throw tooLittle(amount, account.available);
  }
  const before = { available: units(account.available), staked: units(money.staked(account)) };
  const made = money.stake(account, amount, days);
  const after = { available: units(account.available), staked: units(money.staked(account)) };
  return {
    json: {
      success: true,
      stake: {
        amount: units(made.amount),
        duration_days: days,
        start_date: made.start,
        unlock_date: made.unlock,
        multiplier: money.multiplier(days),
      },
      new_balance: bad("rel-new-balance-old") ? before : after,
    },
  };
}

function unstake({ body, account }: Ctx) {
  const amount = amountOf(body, 1);
  const staked = money.staked(account);
  if (amount > staked) {
    throw tooLittle(amount, staked);
  }
  const date = money.unstake(account, amount);
  const cooldown = bad("rel-cooldown-hours") ? money.COOLDOWN_DAYS * 24 : money.COOLDOWN_DAYS;
  return {
    json: {
      success: true,
      unstake: { amount: units(amount), cooldown_days: cooldown, available_date: date },
    },
  };
}

let shared: money.Account;
async function balance({ account }: Ctx) {
  shared = account;
  if (bad("grd-shared-account")) await Bun.sleep(4);
  if (bad("grd-shared-account")) return { json: money.balance(shared) };
  return { json: money.balance(account) };
}

const V1 = "/api/v1";
export function walletRoutes(): void {
  const auth = true;
  route({ method: "GET", path: V1 + "/wallet/balance", label: "GET /wallet/balance", auth, run: balance });
  route({
    method: "POST",
    path: V1 + "/wallet/send",
    label: "POST /wallet/send",
    auth,
    body: "json",
    run: send,
  });
  route({
    method: "GET",
    path: V1 + "/wallet/transactions",
    label: "GET /wallet/transactions",
    auth,
    run: transactions,
  });
  route({
    method: "POST",
    path: V1 + "/wallet/stake",
    label: "POST /wallet/stake",
    auth,
    body: "json",
    run: stake,
  });
  route({
    method: "POST",
    path: V1 + "/wallet/unstake",
    label: "POST /wallet/unstake",
    auth,
    body: "json",
    run: unstake,
  });
}
