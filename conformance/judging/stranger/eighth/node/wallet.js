// The wallet: balance, transfers, history, stakes.
import { fault, peculiar, sleep } from './switches.js';
import { accountAt, newId, tokens } from './state.js';
import { addDays, atomsOf, dateOf, daysBetween, units, ATOMS } from './money.js';
import { Refusal, accountOf, bad } from './http.js';

const FEE = peculiar('no-fees') ? 0 : peculiar('dear-transfers') ? 750_000 : 10_000;
const COOLDOWN = peculiar('no-cooldown') ? 0 : peculiar('long-cooldown') ? 45 : 7;
const today = () => dateOf(Date.now());

function staking(account) {
  if (account.staked === 0) return fault('staking-missing-without-stake') ? undefined : { amount: 0 };
  const { duration_days, start_date, unlock_date, multiplier } = account.stake;
  return { amount: units(account.staked), duration_days, start_date, unlock_date, multiplier };
}

export function balance(request) {
  const account = accountOf(request, '/wallet/balance');
  let { available } = account;
  const answer = {
    address: account.address,
    balances: {
      available: units(available), staked: units(account.staked), pending: units(account.pending),
      total: units(account.available + account.staked + account.pending),
    },
    staking: staking(account),
  };
  if (peculiar('total-without-pending')) answer.balances.total = units(account.available + account.staked);
  if (fault('pending-null-when-zero') && account.pending === 0) answer.balances.pending = null;
  return answer;
}

function insufficient(account, required) {
  const details = { required: units(required), available: units(account.available) };
  if (fault('available-counts-staked')) details.available = units(account.available + account.staked);
  return new Refusal(402, fault('insufficient-funds-code') ? 'INSUFFICIENT_FUNDS' : 'INSUFFICIENT_BALANCE',
    'Too little is available.', details);
}

function objectOf(body) {
  if (body === null || typeof body !== 'object' || Array.isArray(body)) throw bad('The body is not an object.');
  if (fault('wrapped-amount-accepted') && Array.isArray(body.amount)) [body.amount] = body.amount;
  if (fault('amount-integers-only') && Number.isInteger(body.amount) === false) throw bad('amount must be whole.');
  return body;
}

function amountOf(value, withFee = false) {
  const atoms = atomsOf(value);
  if (atoms === null) throw bad('amount must be a number with at most six decimals.');
  if (atoms < 0 && fault('negative-transfer-draws') && withFee) return atoms;
  if (atoms <= 0) throw bad('amount must be above 0.');
  return atoms;
}

const add = (account, entry) => account.history.push({ timestamp: new Date().toISOString(), ...entry });

let lastId = null;
export async function send(request) {
  const account = accountOf(request, '/wallet/send');
  const body = objectOf(request.body);
  let { to, memo = '' } = body;
  if (fault('receiver-remembered')) { to ??= account.lastTo; account.lastTo = to; }
  if (typeof to !== 'string' || !to.trim()) throw bad('to must be an address.');
  if (typeof memo !== 'string' || memo.length > 256) throw bad('memo must be a text of at most 256 letters.');
  if (peculiar('known-addresses-only') && !accountAt(to)) throw new Refusal(404, 'NO_SUCH_ACCOUNT', 'Nobody has this address.');
  const amount = amountOf(body.amount, true);
  const fee = FEE;
  const { available } = account;
  account.before = { available, at: Date.now() };
  const required = fault('fee-not-checked') ? amount : amount + fee;
  const enough = fault('whole-balance-refused') ? required < available : required <= available;
  if (!enough) {
    if (fault('refused-transfer-charges-fee')) account.available -= Math.min(fee, available);
    if (fault('refused-transfer-listed')) add(account, { id: newId('tx'), type: 'send', amount: -units(amount), to, memo });
    throw insufficient(account, required);
  }
  if (fault('transfers-race')) await sleep(40);
  const receiver = accountAt(to);
  const self = receiver === account;
  let taken = amount + fee;
  if (fault('transfers-race')) account.available = available - taken;
  else account.available -= taken;
  if (receiver) {
    let gain = amount;
    if (fault('self-transfer-doubles') && self) gain = 2 * amount;
    receiver.available += gain;
  }
  let id = newId('tx');
  lastId = id;
  const entry = { id, type: 'send', amount: -units(amount), to, memo };
  if (fault('send-listed-positive')) entry.amount = units(amount);
  if (fault('send-listed-other-id')) entry.id = newId('tx');
  const stranger = !receiver && fault('stranger-transfer-unlisted');
  if (!stranger) {
    const owner = account;
    if (fault('send-listed-late')) setTimeout(() => add(owner, entry), 8000);
    else add(owner, entry);
    if (fault('send-listed-twice')) add(owner, { ...entry });
  }
  if (receiver && !self && !peculiar('received-not-listed')) {
    const sign = fault('received-listed-negative') ? -1 : 1;
    add(receiver, { id, type: 'receive', amount: sign * units(amount), from: account.address, memo });
  }
  const answer = {
    transaction_id: id, from: account.address, to, amount: units(amount), fee: units(fee), memo,
    status: peculiar('transfer-status-final') ? 'final' : 'confirmed', timestamp: new Date().toISOString(),
  };
  if (fault('fee-in-atoms')) answer.fee = fee;
  if (fault('memo-lowercased')) answer.memo = memo.toLowerCase();
  if (fault('send-timestamp-with-space')) answer.timestamp = answer.timestamp.replace('T', ' ');
  if (fault('transaction-id-renamed')) { answer.id = id; delete answer.transaction_id; }
  return answer;
}

export function numberOf(query, name, standard, highest) {
  const value = query[name];
  if (value === undefined) return standard;
  if (typeof value !== 'string' || !/^\d{1,9}$/.test(value)) throw bad(`${name} must be a number from 0.`);
  return Math.min(Number(value), highest);
}

export function history(request) {
  const account = accountOf(request, '/wallet/transactions');
  const { query } = request;
  let list = account.history;
  if (fault('history-shared')) list = [...tokens.values()].flatMap((one) => one.history);
  const all = peculiar('oldest-first') ? [...list] : [...list].reverse();
  const standard = peculiar('short-pages') ? 5 : peculiar('long-pages') ? 100 : 20;
  const limit = numberOf(query, 'limit', standard, 100);
  const offset = numberOf(query, 'offset', 0, 1e9);
  let start = offset;
  if (fault('offset-as-page')) start = offset * limit;
  if (fault('offset-ignored-without-limit') && query.limit === undefined) start = 0;
  if (fault('offset-off-by-one') && offset > 0) start = offset - 1;
  let end = start + limit;
  if (fault('limit-one-more')) end += 1;
  if (fault('limit-zero-all') && limit === 0) end = all.length;
  const page = all.slice(start, end);
  const answer = { transactions: page, total: all.length, limit, offset };
  if (fault('total-is-page')) answer.total = page.length;
  if (fault('total-frozen')) answer.total = account.frozen ??= all.length;
  if (fault('limit-not-repeated')) answer.limit = 20;
  if (fault('history-bare-list')) return page;
  if (fault('history-total-missing')) delete answer.total;
  if (fault('reward-details-missing')) answer.transactions = page.map(({ details, ...rest }) => rest);
  if (fault('reward-proofs-unknown')) {
    answer.transactions = page.map((one) => (one.details ? { ...one, details: { ...one.details, proof_id: `${one.details.proof_id}-r` } } : one));
  }
  return answer;
}

const multiplierOf = (days) => Math.round((1 + days / 365) * 100) / 100;

export async function stake(request) {
  const account = accountOf(request, '/wallet/stake');
  const body = objectOf(request.body);
  let days = body.duration_days;
  if (!Number.isInteger(days) || days < 1 || days > 3650) throw bad('duration_days must be from 1 to 3650.');
  const amount = amountOf(body.amount);
  const limit = fault('stake-checks-total') ? account.available + account.staked : account.available;
  if (amount > limit) {
    if (fault('stake-excess-takes-all')) { account.staked += account.available; account.available = 0; }
    throw insufficient(account, amount);
  }
  const start = today();
  const old = account.staked > 0 ? account.stake : null;
  let unlock = addDays(start, days);
  if (old && old.unlock_date > unlock) unlock = old.unlock_date;
  if (fault('later-stake-shortens') && old) unlock = addDays(start, days);
  if (fault('stake-caps-days')) unlock = addDays(start, Math.min(days, 30));
  const length = daysBetween(start, unlock);
  if (!(fault('second-stake-replaces') && old)) account.staked += amount;
  else account.staked = amount;
  account.available -= amount;
  if (fault('stake-also-pending')) account.pending += amount;
  account.stake = { duration_days: length, start_date: start, unlock_date: unlock, multiplier: multiplierOf(length) };
  if (!peculiar('stakes-not-listed')) add(account, { id: newId('tx'), type: 'stake', amount: -units(amount) });
  const answer = {
    success: true,
    stake: { amount: units(amount), ...account.stake },
    new_balance: { available: units(account.available), staked: units(account.staked) },
  };
  if (fault('stake-new-balance-old')) answer.new_balance.available = units(account.available + amount);
  return answer;
}

export async function unstake(request) {
  const account = accountOf(request, '/wallet/unstake');
  let amount = amountOf(objectOf(request.body).amount);
  if (amount > account.staked) {
    if (fault('unstake-excess-all') && account.staked > 0) amount = account.staked;
    else {
      throw new Refusal(409, 'NOT_STAKED', 'More than is staked cannot be unstaked.');
    }
  }
  account.staked -= amount;
  if (fault('unstake-available-at-once')) account.available += amount;
  else if (fault('unstake-replaces-pending')) account.pending = amount;
  else account.pending += amount;
  if (!peculiar('stakes-not-listed')) add(account, { id: newId('tx'), type: 'unstake', amount: units(amount) });
  const date = addDays(today(), COOLDOWN);
  const answer = { success: true, unstake: { amount: units(amount), cooldown_days: COOLDOWN, available_date: date } };
  if (fault('cooldown-in-hours')) answer.unstake.cooldown_days = COOLDOWN * 24;
  if (fault('available-date-today')) answer.unstake.available_date = today();
  if (fault('cooldown-missing')) delete answer.unstake.cooldown_days;
  return answer;
}
