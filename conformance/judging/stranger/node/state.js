// Everything that the node knows: accounts, histories, stakes, proofs, configuration, counters, peers.
import { createHash } from 'node:crypto';
import { options, F, P } from './switches.js';
import { stamp, day, today, DAY } from './clock.js';
import { LAYERS } from './model.js';

export const sha = (s, alg = 'sha256') => createHash(alg).update(s).digest('hex');
export const started = Date.now();
const t0 = performance.now();
export const uptime = () => Math.floor((performance.now() - t0) / 1000);
export const CURRENCY = 'PBL';
export const nodeId = (P('p-long-node-id') ? 'stranger node № 7 — ' + 'x'.repeat(200) : 'stranger-') + sha(`node:${options.port}`).slice(0, 12);
export const layers = F('l-status-layers-twice') ? [0, 1, 2, 3, 3] : [0, 1, 2, 3];

// ---- money: atoms inside, whole units with decimals outside -----------------------------------------------------
export const units = (atoms) => atoms / 1e6;
export function atoms(x) {
  if (F('a2-eff-amount-leading-zero') && /^\d+\.\d{1,6}$/.test(String(x))) { const [w, d] = String(x).split('.'); return Number(w) * 1e6 + Number(String(Number(d)).padEnd(6, '0')); }
  if (F('a2-eff-amount-floor') && Math.abs(x * 1e6 - Math.round(x * 1e6)) <= 1e-3) return Math.floor(x * 1e6);
  const a = Math.round(x * 1e6);
  return Number.isSafeInteger(a) && Math.abs(x * 1e6 - a) <= 1e-3 ? a : null;
}
export const FEE = P('p-fee-zero') ? 0 : 500;
export const COOLDOWN = P('p-cooldown-21') ? 21 : 7;

let txSerial = 0;
const addressOf = (name) => 'pbl1' + sha(`account:${name}`).slice(0, 36);
export const accounts = new Map();          // address -> account
export const byToken = new Map();           // token -> account
function open(address) {
  if (!accounts.has(address)) accounts.set(address, { address, available: 0, lots: [], cooling: [], history: [] });
  return accounts.get(address);
}
export function enter(acc, type, amount, extra = {}, when = Date.now()) {
  const e = { id: `tx-${String(++txSerial).padStart(7, '0')}`, type, amount, when, extra };
  acc.history.unshift(e);                   // newest first
  return e;
}
export function settle(acc) {
  const now = today();
  acc.cooling = acc.cooling.filter((c) => { if (c.until > now) return true; acc.available += c.amount; enter(acc, 'unstaked', c.amount); return false; });
}
export const staked = (acc) => acc.lots.reduce((s, l) => s + l.amount, 0);
export const cooling = (acc) => acc.cooling.reduce((s, c) => s + c.amount, 0);
export const multiplier = (days) => Math.round((1 + days / 365) * 1e4) / 1e4;

export function balanceOf(acc) {
  settle(acc);
  const st = staked(acc), pe = cooling(acc) + (F('a2-eff-stake-pending-too') ? acc.lots.filter((l) => l.start >= today()).reduce((s, l) => s + l.amount, 0) : 0);
  const total = acc.available + st + (P('p-total-without-pending') ? 0 : pe);
  const staking = { amount: units(st) };
  if (acc.lots.length) {
    const lots = F('e-stake-shows-first') ? acc.lots.slice(0, 1) : acc.lots;
    const start = Math.min(...lots.map((l) => l.start)), end = (F('a2-rel-unlock-earliest') ? Math.min : Math.max)(...lots.map((l) => l.end));
    staking.start_date = day(start);
    staking.unlock_date = day(end + (F('l-balance-unlock-off') ? DAY : 0));
    staking.duration_days = Math.round((end - start) / DAY);
    staking.multiplier = Math.round(lots.reduce((s, l) => s + l.amount * multiplier((l.end - l.start) / DAY), 0) / lots.reduce((s, l) => s + l.amount, 0) * 1e4) / 1e4;
    if (F('a2-fld-multiplier-two-lots') && lots.length > 1) delete staking.multiplier;
  }
  return { staking, balances: { total: units(total), pending: units(pe), staked: units(st), available: units(acc.available) }, address: acc.address };
}

const recent = new Map();
export function transfer(acc, to, amountAtoms, memo) {
  const fresh = !accounts.has(to);
  const other = open(to);
  const again = `${acc.address}|${to}|${amountAtoms}|${memo}`;
  if (F('a2-eff-send-repeated') && recent.has(again)) return recent.get(again);
  let take = amountAtoms, give = amountAtoms, fee = FEE;
  if (F('e-send-truncates')) take = give = Math.floor(amountAtoms / 1e6) * 1e6;
  if (F('e-send-not-taken')) take = 0;
  if (F('e-send-taken-twice')) take *= 2;
  if (F('e-send-not-credited')) give = 0;
  if (F('e-send-credited-twice') && other !== acc) give *= 2;
  if (F('e-fee-from-receiver')) give = Math.max(0, give - fee);
  if (F('e-send-fee-free')) fee = 0;
  if (F('e-send-fee-twice')) fee *= 2;
  if (F('e-self-send-loses') && other === acc) give = 0;
  if (F('e-self-send-gains') && other === acc) take = 0;
  if (F('e-self-fee-thrice') && other === acc) fee *= 3;
  acc.available -= take + fee;
  other.available += give;
  const when = Date.now();
  let shown = -amountAtoms;
  if (F('e-history-positive')) shown = amountAtoms;
  if (F('e-history-only-fee')) shown = -FEE;
  const out = { id: `tx-${String(++txSerial).padStart(7, '0')}`, type: 'send', amount: shown, when, extra: { to, fee: units(FEE), memo } };
  if (F('e-history-type-transfer')) out.type = 'transfer';
  if (F('e-history-to-self')) out.extra.to = acc.address;
  const unlisted = (F('a2-eff-no-memo-unlisted') && memo === '') || (F('a2-eff-new-address-unlisted') && fresh);
  if (F('a2-eff-history-first-account')) byToken.values().next().value.history.unshift(out);
  else if (!F('e-send-no-history') && !unlisted) acc.history.unshift(out);
  if (F('e-send-history-twice')) acc.history.unshift({ ...out });
  if (F('e-history-second-id')) out.id = out.id + 'a';
  if (!P('p-no-receive-entry')) other.history.unshift({ id: out.id + '/in', type: 'receive', amount: give, when, extra: { from: acc.address, memo } });
  if (F('a2-eff-send-repeated')) recent.set(again, { id: out.id, when });
  return { id: F('e-history-second-id') ? out.id.slice(0, -1) : out.id, when };
}

export function stake(acc, amountAtoms, days) {
  if (F('l-stake-always-30')) days = 30;
  if (F('a2-lim-stake-365')) days = Math.min(days, 365);
  if (F('a2-lim-stake-week')) days = Math.max(days, 7);
  const start = today() + (F('l-stake-starts-tomorrow') ? DAY : 0);
  const lot = { amount: amountAtoms, start, end: start + days * DAY };
  if (!F('e-stake-not-taken')) acc.available -= amountAtoms * (F('e-stake-taken-twice') ? 2 : 1);
  if (F('e-stake-replaces')) acc.lots = [];
  if (F('e-stake-added-twice')) acc.lots.push({ ...lot });
  if (F('e-stake-keeps-first') && acc.lots.length) acc.lots[0].amount += amountAtoms;
  else if (F('a2-eff-stake-same-day') && acc.lots.some((l) => l.end === lot.end)) acc.lots.find((l) => l.end === lot.end).amount = amountAtoms;
  else if (!F('e-stake-not-locked')) acc.lots.push(lot);
  enter(acc, 'stake', -amountAtoms, { details: { duration_days: days } });
  return { lot, days };
}

export function unstake(acc, amountAtoms) {
  let left = F('a2-eff-unstake-cents') ? Math.ceil(amountAtoms / 1e4) * 1e4 : amountAtoms, end = 0;
  const now = today();
  acc.lots.sort((a, b) => a.end - b.end);
  for (const l of acc.lots) {
    const x = Math.min(left, l.amount);
    if (x > 0) end = Math.max(end, l.end);
    if (!F('e-unstake-not-taken')) l.amount -= x;
    left -= x;
  }
  if (F('e-unstake-takes-all')) acc.lots = [];
  if (F('e-unstake-taken-twice')) for (const l of acc.lots) { const x = Math.min(amountAtoms, l.amount); l.amount -= x; break; }
  acc.lots = acc.lots.filter((l) => l.amount > 0);
  if (F('a2-eff-unstake-rest-loose')) for (const l of acc.lots) l.end = Math.min(l.end, now + DAY);
  const days = Math.max(COOLDOWN, Math.round((end - now) / DAY));      // the lock ends before the money moves
  if (F('e-unstake-at-once')) acc.available += amountAtoms;
  else acc.cooling.push({ amount: amountAtoms, until: now + days * DAY });
  enter(acc, 'unstake', 0, { details: { amount: units(amountAtoms), available_date: day(now + days * DAY) } });
  return { days, until: now + days * DAY };
}

// ---- proofs ----------------------------------------------------------------------------------------------------
export const proofs = [];
for (let i = 0; i < 23; i++) {
  proofs.push({ id: 'proof-' + sha(`proof${i}`).slice(0, 16), type: i % 5 === 4 ? 'backward' : 'forward', layer: i % LAYERS, when: started - (23 - i) * 1810e3, verified: i % 4 !== 3, reward: i % 4 !== 3 ? 250000 + i * 1000 : 0 });
}
export const addProof = () => { const i = proofs.length; proofs.push({ id: 'proof-' + sha(`proof${i}`).slice(0, 16), type: 'forward', layer: i % LAYERS, when: Date.now(), verified: false, reward: 0 }); };

// ---- the accounts of the tokens, with a past -----------------------------------------------------------------------
options.tokens.forEach((token, i) => {
  const acc = open(addressOf(token));
  byToken.set(token, acc);
  const book = (type, amount, extra, when) => { acc.available += amount; enter(acc, type, amount, extra, when); };
  book('deposit', i === 0 ? 1400_250000 : 900_000000, {}, started - 40 * DAY);
  if (i === 0) {
    book('stake', -100_000000, { details: { duration_days: 90 } }, started - 20 * DAY);
    acc.lots.push({ amount: 100_000000, start: today() - 20 * DAY, end: today() + 70 * DAY });
  }
  proofs.filter((p, k) => p.verified && (i === 0 || k % 3 === i % 3)).forEach((p) => book('reward', i === 0 ? p.reward : 1000, { details: { proof_id: p.id, role: 'driver', note: 'proof of work' } }, p.when + 5000));
  for (let k = 0; k < 6; k++) { const v = 1_250000 + k * 10000; book('send', -v, { to: addressOf(`shop-${k}`), fee: 0, memo: `order ${k}` }, started - (6 - k) * 60e3); }
});

// ---- configuration -------------------------------------------------------------------------------------------------
export const config = {
  tracker_url: 'http://127.0.0.1:7070/tracker', port: options.port, grpc_port: options.port + 1000, node_id: nodeId,
  resources: { cpu_threads: 2, max_memory_gb: 3.5 },
  training: { diloco_steps: 64, learning_rate: 0.00025, batch_size: 12, enabled: !P('p-not-training') },
};
export const freshConfig = structuredClone(config);
const positive = (v) => typeof v === 'number' && Number.isFinite(v) && v > 0;
const count = (v) => Number.isInteger(v) && v >= 1 && v <= 2 ** 31 - 1;
export const RULES = {
  'tracker_url': (v) => typeof v === 'string' && /^[a-z]+:\/\/[^\s/]+/i.test(v),
  'training.enabled': (v) => typeof v === 'boolean',
  'training.batch_size': count,
  'training.learning_rate': positive,
  'training.diloco_steps': count,
  'resources.max_memory_gb': positive,
  'resources.cpu_threads': P('p-threads-fixed') ? null : count,
};

// ---- counters ---------------------------------------------------------------------------------------------------------
export const counters = { requests: 0, tokens: 0, latencies: [], times: [], bytesIn: 0, bytesOut: 0, rpc: 0, open: 0, gradientsIn: 0 };
export function countInference(tokens, promptTokens, ms, stream) {
  if (F('e-request-not-counted') || (F('e-stream-not-counted') && stream)) return;
  counters.requests += F('e-request-counted-twice') || (F('e-stream-counted-twice') && stream) ? 2 : 1;
  if (!F('e-tokens-not-counted') && !(F('e-stream-tokens-lost') && stream)) counters.tokens += F('e-tokens-with-prompt') ? tokens + promptTokens : F('e-tokens-counted-twice') ? 2 * tokens : tokens;
  counters.latencies.push(ms); if (counters.latencies.length > 1000) counters.latencies.shift();
  counters.times.push(Date.now()); if (counters.times.length > 5000) counters.times.shift();
}

// ---- peers and training ---------------------------------------------------------------------------------------------------
export const peers = P('p-no-peers') ? [] : [
  { id: 'hazel-01', address: '10.77.0.11:8000', role: 'driver', layers: [0, 1], latency_ms: 12.75, since: started - 3 * 3600e3 },
  { id: 'rowan-02', address: 'rowan.mesh.example:8040', role: 'worker', layers: [1, 2], latency_ms: 31, since: started - 2 * 3600e3 },
  { id: 'alder-03', address: '10.77.0.13:8200', role: 'validator', layers: [2, 3], latency_ms: 8.5, since: started - 600e3 },
];
export const training = { epoch: 3, step: 1874, round: 29, loss: 2.3147, avg: 2.3561, min: 2.2988, ok: 57, failed: 3, inner: 17 };
