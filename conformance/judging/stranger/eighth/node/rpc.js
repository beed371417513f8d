// POST /rpc: the JSON-RPC methods that are allowed.
import { fault, peculiar } from './switches.js';
import * as chain from './chain.js';

const failure = (code, message) => Object.assign(new Error(message), { code });
const base64 = (value) => Buffer.from(JSON.stringify(value)).toString('base64');

function heightOf(params) {
  const given = params.height ?? chain.height();
  if (!/^\d{1,12}$/.test(String(given))) throw failure(-32602, 'height is no number');
  const at = Number(given);
  if (at < 1 || at > chain.height()) throw failure(-32602, 'there is no such height');
  return at;
}

const METHODS = {
  status() {
    const tip = chain.blocks.at(-1);
    return {
      node_info: { network: chain.CHAIN_ID, version: '0.4.0' },
      sync_info: { latest_block_height: String(tip.height), latest_block_hash: tip.hash, catching_up: false },
    };
  },
  block(params) {
    let at = heightOf(params);
    if (fault('rpc-block-of-before') && at > 1) at -= 1;
    const found = chain.blocks[at - 1];
    return {
      block_id: { hash: found.hash },
      block: {
        header: { chain_id: chain.CHAIN_ID, height: String(found.height), time: found.time, last_block_hash: found.previous_hash },
        data: { txs: found.transactions.map(base64) },
      },
    };
  },
  validators(params) {
    const list = chain.validators.map((one) => ({ pub_key: one.public_key, voting_power: String(one.power) }));
    return { block_height: String(heightOf(params)), validators: list, total: String(list.length), count: String(list.length) };
  },
  abci_query(params) {
    const { path, data = '' } = params;
    if (typeof path !== 'string' || typeof data !== 'string' || data.length > 4096) throw failure(-32602, 'path and data are texts');
    const text = Buffer.from(data, 'hex').toString();
    let value;
    if (path === '/jobs' && !fault('rpc-jobs-path-missing')) value = [...chain.requests.values()].slice(-20);
    else if (path === '/job') value = chain.requests.get(text) ?? null;
    else if (path === '/height') value = chain.height();
    else return { response: { code: 6, log: 'there is no such path', key: data, value: null } };
    return { response: { code: 0, log: '', key: data, value: base64(value), height: String(chain.height()) } };
  },
  broadcast_tx_sync(params) {
    if (typeof params.tx !== 'string' || params.tx.length > 65_536) throw failure(-32602, 'tx is a transaction in base64');
    let message;
    try { message = JSON.parse(Buffer.from(params.tx, 'base64').toString()); } catch { throw failure(-32602, 'tx is not readable'); }
    return chain.broadcast(message);
  },
  native_account: (params) => {
    const found = chain.native(String(params.public_key));
    return { spendable: String(found.spendable), locked: String(found.locked), nonce: found.nonce };
  },
};
const CLOSED = {
  'rpc-opens-net-info': ['net_info', () => ({ listening: true, n_peers: '3', peers: [] })],
  'rpc-opens-unsafe-flush': ['unsafe_flush_mempool', () => ({})],
};
for (const [id, [name, method]] of Object.entries(CLOSED)) if (fault(id)) METHODS[name] = method;
if (fault('rpc-without-abci-query')) delete METHODS.abci_query;

export function rpc(body) {
  const id = body?.id ?? null;
  try {
    if (body === null || typeof body !== 'object' || Array.isArray(body) || typeof body.method !== 'string') throw failure(-32600, 'this is no call');
    const name = body.method;
    if (!Object.hasOwn(METHODS, name)) {
      throw failure(-32601, peculiar('other-error-texts') ? 'nein' : 'this method is not allowed');
    }
    const params = body.params ?? {};
    if (typeof params !== 'object' || Array.isArray(params)) throw failure(-32602, 'params must be an object');
    return { jsonrpc: '2.0', id, result: METHODS[name](params) };
  } catch (error) {
    return { jsonrpc: '2.0', id, error: { code: error.code ?? -32603, message: error.message } };
  }
}
