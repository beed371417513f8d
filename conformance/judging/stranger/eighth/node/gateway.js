// Answers of the public native API.
import { fault, peculiar } from './switches.js';
import { hex } from './state.js';
import * as chain from './chain.js';

export class NativeError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}
const pageLimit = (query) => {
  const text = query.limit ?? (peculiar('short-native-pages') ? '5' : '20');
  if (!/^\d{1,6}$/.test(text) || Number(text) < 1) throw new NativeError(400, 'limit must be a number from 1');
  return Math.min(Number(text), 100);
};
const bound = (query) => {
  if (query.before === undefined) return Infinity;
  if (!/^\d{1,15}$/.test(query.before)) throw new NativeError(400, 'before must be a number');
  return Number(query.before) + (peculiar('before-inclusive') ? 1 : 0);
};

export function network() {
  const tip = chain.blocks.at(-1);
  const answer = {
    version: '0.4.0', chain_id: chain.CHAIN_ID, genesis_hash: chain.GENESIS_HASH, height: tip.height,
    block: { height: tip.height, hash: tip.hash }, training_round: chain.newestRound(),
    supply_atoms: '5000000000000000', ready: true,
  };
  if (fault('network-pair-frozen') && tip.height > 96) answer.block.hash = chain.blocks[95].hash;
  if (fault('supply-number')) answer.supply_atoms = Number(answer.supply_atoms);
  if (fault('supply-in-units')) answer.supply_atoms = '5000000000.000000';
  if (fault('network-other-genesis')) answer.genesis_hash = hex('another genesis');
  return answer;
}

export function model() {
  const last = chain.updates.at(-1);
  const answer = {
    chain_id: chain.CHAIN_ID, frozen_parameters: 1_048_576, trained_parameters: 65_536,
    revision: `r${last.round}`, training_root: last.training_root, serving_root: hex('serving root'),
    losses: { latest: last.loss, first: chain.updates[0].loss }, execution_profile: 'toy-cpu-deterministic',
  };
  return answer;
}

export function checkpoint() {
  const last = chain.updates.at(fault('checkpoint-round-old') ? -2 : -1);
  const answer = {
    chain_id: chain.CHAIN_ID, genesis_hash: chain.GENESIS_HASH, round: last.round, root: last.training_root,
    adapter: { rank: 4, values: Array.from({ length: 16 }, (_, n) => (n - 8) / 16) },
  };
  return answer;
}

export function training(query) {
  const limit = fault('training-limit-ignored') ? 20 : pageLimit(query);
  const before = bound(query);
  const key = fault('training-before-is-height') ? 'height' : 'round';
  let list = chain.updates.filter((one) => one[key] < before);
  list = fault('training-oldest-first') ? list.slice(0, limit) : list.reverse().slice(0, limit);
  const answer = { updates: list, indexed_height: chain.height(), error: null };
  if (peculiar('index-behind')) Object.assign(answer, { indexed_height: chain.height() - 7, error: 'index is behind' });
  return answer;
}

const listed = (block) => {
  const { transactions, ...rest } = block;
  const answer = { ...rest, transaction_count: transactions.length };
  if (peculiar('blocks-name-requests')) answer.request_ids = transactions.map((one) => one.request_id).filter(Boolean);
  return answer;
};

export function blocks(query) {
  const limit = pageLimit(query);
  const before = bound(query);
  let list = chain.blocks.filter((one) => (fault('blocks-before-is-after') ? one.height > before || before === Infinity : one.height < before)).reverse();
  if (fault('blocks-skip-at-bound') && before !== Infinity) list = list.slice(1);
  let page = list.slice(0, limit);
  page = page.map(listed);
  const answer = { blocks: page, newest_height: chain.height() };
  return answer;
}

export function block(text) {
  if (!/^\d{1,12}$/.test(text)) throw new NativeError(400, 'a height is a number');
  let at = Number(text);
  let found = chain.blocks[at - 1];
  if (!found) throw new NativeError(404, 'there is no such block');
  found = { ...found };
  if (fault('transaction-hash-is-request-id')) {
    found.transactions = found.transactions.map((one) => (one.request_id ? { ...one, hash: one.request_id } : one));
  }
  return found;
}

let firstKey = null;
export function account(query) {
  const key = query.public_key;
  if (typeof key !== 'string' || !/^(0[23]|ed)[0-9a-f]{64}$/.test(key)) throw new NativeError(400, 'public_key is a compressed key in hexadecimal');
  firstKey ??= key;
  let used = key;
  const found = chain.native(used);
  const answer = {
    public_key: used, spendable_atoms: String(found.spendable), locked_atoms: String(found.locked),
    total_atoms: String(found.spendable + found.locked), next_nonce: found.nonce,
  };
  if (peculiar('account-without-total')) delete answer.total_atoms;
  if (fault('account-number-atoms')) answer.spendable_atoms = Number(found.spendable);
  if (fault('account-digits-lost')) {
    for (const name of ['spendable_atoms', 'total_atoms']) answer[name] = Number(answer[name]).toPrecision(12).replace(/^(\d)\.(\d+)e\+(\d+)$/, '$1.$2e$3');
  }
  if (fault('account-nonce-missing')) delete answer.next_nonce;
  return answer;
}

export function validators(query) {
  const page = Number(query.page ?? 1);
  const size = Math.min(Number(query.per_page ?? 30), 100);
  if (!(page >= 1 && size >= 1)) throw new NativeError(400, 'page and per_page begin with 1');
  const list = chain.validators.slice((page - 1) * size, page * size).map((one) => ({ ...one }));
  if (fault('validator-bond-null')) list.forEach((one) => { one.bond_atoms = null; });
  return { validators: list, page, per_page: size, total: chain.validators.length };
}

export function inferenceInfo() {
  const answer = {
    chain_id: chain.CHAIN_ID, genesis_hash: chain.GENESIS_HASH, serving_root: hex('serving root'),
    provider: { id: chain.PROVIDERS.ready, heartbeat: { state: peculiar('provider-silent') ? 'late' : 'alive', height: chain.height() } },
    price_atoms: String(chain.PRICE), fee_atoms: String(chain.FEE),
    queue_length: [...chain.requests.values()].filter((one) => one.status === 'pending').length,
  };
  return answer;
}

let lastRecord = null;
export function inferenceRequest(query) {
  const { id } = query;
  if (typeof id !== 'string' || !id) throw new NativeError(400, 'id is missing');
  let found = chain.requests.get(id);
  if (fault('request-cached')) found = lastRecord ??= found;
  if (!found && fault('unknown-request-pending')) return { request_id: id, status: 'pending' };
  if (!found) throw new NativeError(404, 'there is no such request, or it is too old');
  const answer = { ...found };
  if (fault('completed-response-null') && answer.response) answer.response = null;
  return answer;
}

export const workStatus = () => ({
  sponsor: peculiar('no-sponsor') ? null : { public_key: chain.keyOf('sponsor') },
  stages: [{ name: 'execute', available: true }, { name: 'train', available: !peculiar('no-sponsor') }], attempts_left: 12,
});

const old = (at) => ({ height: at, hash: hex(`v03 block ${at}`), time: new Date(Date.parse('2025-03-01') + at * 6e4).toISOString() });
export function reference(path) {
  if (path === 'network') return { version: '0.3', chain_id: 'toy-reference-3', height: 12, final: true };
  if (path === 'blocks') return { blocks: Array.from({ length: 12 }, (_, n) => old(12 - n)) };
  const [, number] = /^block\/(\d+)$/.exec(path) ?? [];
  if (number && Number(number) >= 1 && Number(number) <= 12) return old(Number(number));
  throw new NativeError(404, 'nothing was kept under this path');
}
