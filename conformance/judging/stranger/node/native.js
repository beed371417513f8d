// The public native API: a gateway on a small chain that lives in memory.
import { createHash } from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1';
import { F, P, spoil } from './switches.js';
import { stamp } from './clock.js';
import { weights, tensorBytes, MODEL_HASH, PARAMS, stateDict, generate } from './model.js';

const hash = (x) => createHash('sha256').update(typeof x === 'string' || Buffer.isBuffer(x) ? x : JSON.stringify(x)).digest('hex');
const GENESIS_TIME = Date.UTC(2026, 10, 20, 6, 30);
let live = false;
const key = (name) => { const sk = Buffer.from(hash(`key:${name}`), 'hex'); return { sk, pk: Buffer.from(secp256k1.getPublicKey(sk, true)).toString('hex') }; };
const keys = Object.fromEntries(['ada', 'bela', 'cleo', 'val-1', 'val-2', 'val-3', 'provider'].map((n) => [n, key(n)]));
const FEE = 1200n, PRICE = 35n;

// ---- the files that the genesis commits to -------------------------------------------------------------------------------
const dataset = Buffer.from(JSON.stringify({ format: 'tokens-v1', vocabulary: 64, sequences: Array.from({ length: 12 }, (_, s) => Array.from({ length: 24 }, (_, i) => (s * 31 + i * i * 7 + 3) % 64)) }, null, 1));
const artifacts = new Map();
const addFile = (buf) => { const d = hash(buf); artifacts.set(d, buf); return d; };
const datasetDigest = addFile(dataset), weightsDigest = addFile(stateDict(0, 3, true)), headDigest = addFile(Buffer.from(tensorBytes(weights.head)));
const genesis = { format: 'genesis-1', chain_id: 'pebble-1', genesis_time: stamp(GENESIS_TIME), dataset_sha256: datasetDigest, model: { weights_sha256: weightsDigest, head_sha256: headDigest, parameters: PARAMS },
  accounts: [['ada', 5_000_000_000n], ['bela', 1_250_000n], ['cleo', 77n]].map(([n, a]) => ({ public_key: keys[n].pk, balance_atoms: String(a) })),
  validators: ['val-1', 'val-2', 'val-3'].map((n, i) => ({ owner: keys[n].pk, power: 10 + i, bond_atoms: String(10_000_000 * (i + 1)) })) };
const genesisBytes = Buffer.from(JSON.stringify(genesis, null, 1));
const genesisHash = hash(genesisBytes);
const CHAIN = genesis.chain_id;

const accounts = new Map();
const acct = (pk) => { if (!accounts.has(pk)) accounts.set(pk, { spendable: 0n, locked: 0n, nonce: 0 }); return accounts.get(pk); };
for (const a of genesis.accounts) acct(a.public_key).spendable = BigInt(a.balance_atoms);
const peek = (pk) => accounts.get(pk) ?? { spendable: 0n, locked: 0n, nonce: 0 };
const total = () => [...accounts.values()].reduce((s, a) => s + a.spendable + a.locked, 0n) + genesis.validators.reduce((s, v) => s + BigInt(v.bond_atoms), 0n) + burnt.fees;
const burnt = { fees: 0n };

// ---- training: accepted updates ---------------------------------------------------------------------------------------------
const updates = [];
for (let r = 1; r <= 18; r++) updates.push({ round: r, loss: (3.1 - 0.045 * r + (r % 3) * 0.004).toFixed(12), height: 2 * r, base_root: r > 1 ? updates[r - 2].root : hash('adapter:0'), root: hash(`adapter:${r}`), accepted_at: stamp(GENESIS_TIME + r * 240e3) });
const adapterBytes = Buffer.from(tensorBytes(weights.layers[0].b));
const servedRound = 16;

// ---- inference jobs and blocks ------------------------------------------------------------------------------------------------
const jobs = new Map();
const finished = [];
const retire = (id) => { finished.push(id); while (finished.length > 128) jobs.delete(finished.shift()); };
const blocks = [];
function seal(txs, time = Date.now()) {
  const height = blocks.length + 1;
  const body = { height, previous_hash: height > 1 ? blocks[height - 2].hash : '0'.repeat(64), time: stamp(time), proposer: genesis.validators[height % 3].owner, transactions: txs };
  const b = { hash: hash({ ...body, genesisHash }), ...body };
  blocks.push(b);
  for (const [id, j] of jobs) if (j.state === 'pending' && j.expires <= height) {
    j.state = 'expired';
    const a = acct(j.from); a.locked -= j.budget; a.spendable += j.budget;
    j.refund = { public_key: j.from, amount_atoms: String(j.budget), height };
    retire(id);
  }
  return b;
}
const txHash = (bytes) => hash(bytes).toUpperCase();
function execute(payload, pk) {                                    // throws a text where the transaction is refused
  const a = peek(pk);
  if (payload.chain_id !== CHAIN) throw 'the chain id is another one';
  if (F('a2-eff-nt-replay') ? payload.nonce > a.nonce : payload.nonce !== a.nonce) throw `the next nonce is ${a.nonce}`;
  const n = (x, what) => { if (typeof x !== 'string' || !/^\d{1,30}$/.test(x)) throw `${what} must be a decimal string of atoms`; return BigInt(x); };
  if (payload.type === 'transfer') {
    const v = n(payload.amount_atoms, 'amount_atoms');
    if (!/^0[23][0-9a-f]{64}$/.test(payload.to ?? '')) throw 'to must be a compressed public key';
    if (v + FEE > a.spendable) throw 'the balance is too low';
    return () => { const me = acct(pk); me.spendable -= v + FEE; me.nonce++; burnt.fees += FEE; acct(payload.to).spendable += v; return { ok: true, fee_atoms: String(FEE) }; };
  }
  if (payload.type === 'inference') {
    const budget = n(payload.price_atoms, 'price_atoms') * BigInt(payload.max_tokens ?? 0);
    if (!Number.isInteger(payload.max_tokens) || payload.max_tokens < 1 || payload.max_tokens > 256) throw 'max_tokens must be from 1 to 256';
    if (typeof payload.prompt !== 'string') throw 'prompt must be a string';
    if (payload.checkpoint !== updates[servedRound - 1].root) throw 'this checkpoint is not served';
    if (payload.provider !== keys.provider.pk) throw 'this provider is not known';
    if (!Number.isInteger(payload.expires_height) || payload.expires_height <= blocks.length + 1) throw 'expires_height has passed';
    if (budget + FEE > a.spendable) throw 'the balance is too low';
    const id = hash(`request:${CHAIN}:${pk}:${payload.nonce}`).slice(0, 40);
    return () => {
      const me = acct(pk); me.spendable -= budget + FEE; me.locked += budget; me.nonce++; burnt.fees += FEE;
      jobs.set(id, { state: 'pending', from: pk, prompt: payload.prompt, max_tokens: payload.max_tokens, budget, expires: payload.expires_height, created: blocks.length + 1 });
      if (live) setTimeout(() => complete(id), 1500).unref();
      return { ok: true, fee_atoms: String(FEE), request_id: id };
    };
  }
  throw 'the type of the transaction is not known';
}
function complete(id) {
  const j = jobs.get(id);
  if (!j || j.state !== 'pending') return;
  const g = generate({ prompt: j.prompt, max_tokens: j.max_tokens, temperature: 0, top_p: 1, top_k: 1, stop: [] });
  let s; do s = g.next(); while (!s.done);
  j.state = 'completed'; j.text = s.value.text; j.tokens = s.value.tokens; j.finished = blocks.length;
  const a = acct(j.from); a.locked -= j.budget; acct(keys.provider.pk).spendable += j.budget;
  retire(id);
}
const sign = (payload, who) => Buffer.from(secp256k1.sign(createHash('sha256').update(JSON.stringify(payload)).digest(), keys[who].sk).toCompactRawBytes()).toString('hex');
function signed(who, payload) {
  const p = { chain_id: CHAIN, nonce: peek(keys[who].pk).nonce, ...payload };
  const tx = { payload: p, public_key: keys[who].pk, signature: sign(p, who) };
  const run = execute(p, keys[who].pk);
  return { hash: txHash(JSON.stringify(tx)), ...tx, result: run() };
}
// a past of 40 blocks
for (let h = 1; h <= 40; h++) {
  const txs = [];
  if (h % 5 === 0) txs.push(signed('ada', { type: 'transfer', to: keys.bela.pk, amount_atoms: String(1000 * h) }));
  if (h === 12) txs.push(signed('ada', { type: 'inference', provider: keys.provider.pk, checkpoint: updates[servedRound - 1].root, prompt: 'The miller', max_tokens: 40, price_atoms: String(PRICE), expires_height: 400 }));
  if (h === 14) txs.push(signed('ada', { type: 'inference', provider: keys.provider.pk, checkpoint: updates[servedRound - 1].root, prompt: 'Nobody answers', max_tokens: 10, price_atoms: String(PRICE), expires_height: 20 }));
  if (h === 38) txs.push(signed('ada', { type: 'inference', provider: keys.provider.pk, checkpoint: updates[servedRound - 1].root, prompt: 'The road', max_tokens: 16, price_atoms: String(PRICE), expires_height: 100000 }));
  seal(txs, GENESIS_TIME + h * 240e3);
  if (h === 13) complete([...jobs.keys()][0]);
}
live = true;
export const facts = { keys: Object.fromEntries(Object.entries(keys).map(([n, k]) => [n, k.pk])), requests: [...jobs.keys()], digests: [...artifacts.keys()] };
// Jobs of the past that are still pending stay so: the provider of this toy looks only at new ones.
if (P('p-live-chain')) setInterval(() => seal([]), 2000).unref();

// ---- answers -------------------------------------------------------------------------------------------------------------------
class Refusal extends Error { constructor(status, text) { super(text); this.status = status; } }
const whole = (q, name, standard, max) => {
  const raw = q.get(name);
  if (raw === null) return standard;
  if (!/^\d{1,12}$/.test(raw)) throw new Refusal(400, `${name} must be a whole number`);
  return Math.min(Number(raw), max);
};
const results = (t) => ({ ...t.result, ...(F('a2-fld-nt-fee-number') ? { fee_atoms: Number(t.result.fee_atoms) } : {}), ...(F('a2-rel-nt-id-is-hash') && t.result.request_id ? { request_id: t.hash.toLowerCase() } : {}) });
const brief = (b) => ({ time: b.time, transaction_count: b.transactions.length, results: b.transactions.map((t) => ({ transaction_hash: F('a2-rel-nt-id-is-hash') ? t.hash.toLowerCase() : t.hash, ...results(t) })), proposer: b.proposer, height: b.height, hash: F('a2-rel-nt-list-hash') ? b.hash.toUpperCase() : b.hash });
function shownBlock(h) {
  let b = blocks[h - 1];
  if (F('l-nt-block-next')) b = blocks[h] ?? b;
  if (F('a2-rte-newest-block') && h >= blocks.length) b = undefined;
  if (!b) throw new Refusal(404, `there is no block ${h}`);
  const out = { block: { ...b, transaction_count: b.transactions.length }, chain_id: CHAIN };
  if (F('a2-rte-block-with-request') && b.transactions.some((t) => t.result.request_id)) throw new TypeError('Do not know how to serialize a BigInt');
  if (F('l-nt-block-height')) out.block.height = b.height + 1;
  return spoil('block', structuredClone(out));
}
const blockPages = new Map();
function blockPage(q) {
  let limit = whole(q, 'limit', P('p-native-page-5') ? 5 : 15, 60), before = whole(q, 'before', Infinity, 1e12);
  if (F('a2-lim-before-alone') && q.get('limit') === null) before = Infinity;
  if (F('a2-lim-blocks-cached')) { const hit = blockPages.get(before); if (hit && Date.now() - hit.at < 3000) return hit.page; blockPages.set(before, { at: Date.now(), page: { blocks: blocks.filter((b) => b.height < before).reverse().slice(0, limit).map(brief), height: blocks.length } }); }
  if (F('m-blocks-limit-ignored')) limit = 30;
  if (F('m-blocks-limit-plus-one')) limit++;
  if (F('m-blocks-before-ignored')) before = Infinity;
  if (F('m-blocks-before-after')) return { blocks: blocks.filter((b) => b.height > before || before === Infinity).slice(0, limit).reverse().map(brief), height: blocks.length };
  let list = blocks.filter((b) => (P('p-before-inclusive') ? b.height <= before : b.height < before)).reverse();
  if (F('m-blocks-gap') && before !== Infinity) list = list.filter((b) => b.height < before - 1);
  if (F('m-blocks-skips')) list = list.filter((b) => b.height % 7 !== 0);
  if (F('m-blocks-repeat')) list = list.flatMap((b) => (b.height % 6 === 0 ? [b, b] : [b]));
  list = list.slice(0, limit);
  if (P('p-native-ascending')) list.reverse();
  return { blocks: list.map(brief), height: blocks.length };
}
function updatePage(q) {
  let limit = whole(q, 'limit', 10, 60), before = whole(q, 'before', Infinity, 1e12);
  if (F('m-training-limit-ignored')) limit = 18;
  if (F('m-training-before-ignored')) before = Infinity;
  let list = updates.filter((u) => (P('p-before-inclusive') ? u.round <= before : u.round < before)).reverse();
  if (F('m-training-before-is-height')) list = updates.filter((u) => u.height < before * 4).reverse();
  if (F('a2-lim-updates-cut-first')) list = [...updates].reverse().slice(0, limit).filter((u) => u.round < before);
  if (F('a2-lim-updates-oldest') && before === Infinity) list = updates.slice(0, limit).reverse();
  list = list.slice(0, limit);
  if (P('p-native-ascending')) list.reverse();
  return { updates: list, index: { error: null, height: blocks.length, lag: 0 } };
}
function identity() {
  const b = blocks[blocks.length - 1];
  return spoil('nt-network', { api_version: '0.4.0', ready: true, chain_id: CHAIN, genesis_hash: genesisHash, height: b.height, block: { height: b.height, hash: b.hash }, training_round: updates.length, supply: { total_atoms: String(total()), fees_collected_atoms: String(burnt.fees) } });
}
function accountOf(pk) {
  if (!/^0[23][0-9a-f]{64}$/i.test(pk ?? '')) throw new Refusal(400, 'public_key must be a compressed public key, 66 hexadecimal digits');
  try { secp256k1.ProjectivePoint.fromHex(pk.toLowerCase()); } catch { throw new Refusal(400, 'public_key is not a point of the curve'); }
  if (F('a2-rte-account-odd') && pk.startsWith('03')) throw new Refusal(400, 'the prefix of a key is 02');
  const name = F('l-nt-account-same') ? keys.ada.pk : pk.toLowerCase();
  const a = peek(name);
  return spoil('nt-account', { public_key: name, balance: { spendable_atoms: String(a.spendable), locked_atoms: String(a.locked), liquid_total_atoms: String(a.spendable + a.locked) }, next_nonce: a.nonce });
}
const fetched = new Set();
function requestOf(id) {
  if (!id) throw new Refusal(400, 'id is missing');
  if (F('a2-rel-nt-id-is-hash')) for (const b of blocks) for (const t of b.transactions) if (t.hash.toLowerCase() === id && t.result.request_id) { const j = jobs.get(t.result.request_id); return { request_id: id, state: j.state, from: j.from, max_tokens: j.max_tokens, budget_atoms: String(j.budget), created_height: j.created, expires_height: j.expires, ...(j.state === 'completed' ? { response: { text: j.text, tokens: j.tokens, height: j.finished } } : {}), ...(j.state === 'expired' ? { refund: j.refund } : {}) }; }
  let j = jobs.get(id);
  if (F('l-nt-request-same')) { id = facts.requests[0]; j = jobs.get(id); }
  if (F('a2-rte-expired-404') && j?.state === 'expired') j = undefined;
  if (F('a2-eff-nt-response-once') && j?.state === 'completed') { if (fetched.has(id)) j = undefined; fetched.add(id); }
  if (F('a2-ref-nt-unknown-pending') && !j) return { request_id: id, state: 'pending' };
  if (!j) throw new Refusal(404, 'no such request; it may be older than the latest 128');
  const out = { request_id: id, state: j.state, from: j.from, max_tokens: j.max_tokens, budget_atoms: String(j.budget), created_height: j.created, expires_height: j.expires };
  if (j.state === 'completed') out.response = { text: j.text, tokens: j.tokens, height: j.finished };
  if (j.state === 'expired') { if (F('a2-rel-nt-expired-pending')) out.state = 'pending'; else out.refund = j.refund; }
  return spoil('nt-request', out);
}
const validatorPage = (q) => { const per = whole(q, 'per_page', 20, 100) || 1, page = whole(q, 'page', 1, 1e6); return { total: 3, page, per_page: per, validators: (F('a2-fld-nt-bond-null') ? genesis.validators.map((v, i) => (i === 2 ? { ...v, bond_atoms: null } : v)) : genesis.validators).slice((page - 1) * per, page * per) }; };
const info = () => ({ queue_length: [...jobs.values()].filter((j) => j.state === 'pending').length, fee_atoms: F('f-nt-fee-decimal') ? '0.0012' : String(FEE), price_per_token_atoms: F('f-nt-price-number') ? Number(PRICE) : String(PRICE), serving_root: updates[servedRound - 1].root, provider: { public_key: keys.provider.pk, heartbeat: { state: 'alive', height: blocks.length } }, chain_id: CHAIN, genesis_hash: F('a2-rel-nt-info-genesis') ? hash(JSON.stringify(genesis)) : genesisHash });
const model = () => ({ parameters: { frozen: PARAMS - 64, trained: 64 }, revision: MODEL_HASH.slice(0, 16), training_root: updates[updates.length - 1].root, serving_root: updates[servedRound - 1].root, losses: { first: updates[0].loss, latest: updates[updates.length - 1].loss }, execution_profile: 'f32-le-scalar' });
const workStatus = () => ({ sponsor: null, stages: [{ name: 'train', available: true }, { name: 'verify', available: false }], attempts_remaining: 3 - attempts.size % 3 });
const attempts = new Map();
function worker(body, what) {
  let m; try { m = JSON.parse(body); } catch { throw new Refusal(400, 'the message is not JSON'); }
  if (F('a2-ref-work-empty-500') && m && m.payload === undefined) throw new TypeError('undefined is not a payload');
  if (F('a2-grd-work-unsigned') && what === 'poll' && m && typeof m === 'object' && m.signature === undefined) return { attempt: { id: hash(String(attempts.size)).slice(0, 24), stage: 'train', round: updates.length + 1, dataset_sha256: datasetDigest } };
  if (!m || typeof m.public_key !== 'string' || typeof m.signature !== 'string' || typeof m.payload !== 'object') throw new Refusal(400, 'a worker message has payload, public_key and signature');
  let ok = false;
  try { ok = secp256k1.verify(m.signature, createHash('sha256').update(JSON.stringify(m.payload)).digest(), m.public_key); } catch { /* not a signature */ }
  if (!ok) throw new Refusal(403, 'the signature does not fit');
  if (what === 'poll') { const id = hash(`attempt:${m.public_key}:${attempts.size}`).slice(0, 24); attempts.set(id, m.public_key); return { attempt: { id, stage: 'train', round: updates.length + 1, dataset_sha256: datasetDigest } }; }
  if (attempts.get(m.payload?.attempt_id) !== m.public_key) throw new Refusal(404, 'no such attempt');
  attempts.delete(m.payload.attempt_id);
  return { accepted: true };
}

// ---- JSON-RPC ----------------------------------------------------------------------------------------------------------------------
function rpcCall(method, params) {
  const fail = (code, message, data) => { throw { code, message, data }; };
  const order = { block: ['height'], validators: ['height', 'page', 'per_page'], abci_query: ['path', 'data', 'height', 'prove'], broadcast_tx_sync: ['tx'] }[method] ?? [];
  const p = Array.isArray(params) ? Object.fromEntries(order.slice(0, params.length).map((k, i) => [k, params[i]])) : params && typeof params === 'object' ? params : {};
  const deny = () => fail(-32601, 'Method not found', String(method).slice(0, 60));
  if (F(`x-rpc-no-${method}`)) deny();
  const height = () => { if (p.height === undefined || p.height === null) return blocks.length; const h = Number(p.height); if (!Number.isInteger(h) || h < 1 || h > blocks.length) fail(-32602, 'Invalid params', `height must be from 1 to ${blocks.length}`); return h; };
  if (method === 'status') { const b = blocks[blocks.length - 1]; return { node_info: { network: CHAIN, moniker: 'stranger' }, sync_info: { latest_block_height: String(b.height), latest_block_hash: b.hash.toUpperCase(), catching_up: false } }; }
  if (method === 'block') { if (F('x-rpc-block-needs-height') && p.height === undefined) fail(-32602, 'Invalid params', 'height'); const b = blocks[height() - 1]; return { block_id: { hash: b.hash.toUpperCase() }, block: { header: { chain_id: CHAIN, height: String(b.height), time: b.time }, data: { txs: b.transactions.map((t) => Buffer.from(JSON.stringify({ payload: t.payload, public_key: t.public_key, signature: t.signature })).toString('base64')) } } }; }
  if (method === 'validators') { if (F('a2-rte-rpc-validators-height') && p.height !== undefined) fail(-32602, 'Invalid params', 'height'); const h = height(); return { block_height: String(h), validators: genesis.validators.map((v) => ({ address: v.owner, voting_power: String(v.power) })), count: '3', total: '3' }; }
  if (method === 'abci_query') {
    if (typeof p.path !== 'string') fail(-32602, 'Invalid params', 'path is missing');
    const data = /^[0-9a-f]*$/i.test(p.data ?? '') ? Buffer.from(p.data ?? '', 'hex').toString() : '';
    const answer = (v) => ({ response: { code: 0, log: '', height: String(blocks.length), value: Buffer.from(JSON.stringify(v)).toString('base64') } });
    if (p.path === '/account') { const a = peek(data); return answer({ spendable: Number(a.spendable), nonce: a.nonce }); }
    if (p.path === '/jobs') return answer([...jobs.keys()]);
    if (p.path === '/job' && !F('a2-rte-rpc-job')) { const j = jobs.get(data); return j ? answer({ id: data, state: j.state }) : { response: { code: 4, log: 'no such job', height: String(blocks.length), value: null } }; }
    return { response: { code: 6, log: 'unknown query path', height: String(blocks.length), value: null } };
  }
  if (method === 'broadcast_tx_sync') {
    if (typeof p.tx !== 'string' || !p.tx || p.tx.length > 65536) fail(-32602, 'Invalid params', 'tx must be base64 of at most 64 KiB');
    const bytes = Buffer.from(p.tx, 'base64');
    const refuse = (log) => ({ code: 3, log, hash: txHash(bytes), data: '' });
    let tx; try { tx = JSON.parse(bytes.toString()); } catch { return refuse('the transaction cannot be read'); }
    let ok = false;
    try { ok = secp256k1.verify(tx.signature, createHash('sha256').update(JSON.stringify(tx.payload)).digest(), tx.public_key); } catch { /* no */ }
    if (!ok) return refuse('the signature does not fit');
    let run; try { run = execute(tx.payload, tx.public_key); } catch (e) { return refuse(String(e)); }
    const result = run();
    seal([{ hash: txHash(bytes), ...tx, result }]);
    return { code: 0, log: '', hash: txHash(bytes), data: result.request_id ?? '' };
  }
  if (F('x-rpc-everything')) {
    if (method === 'net_info') return { listening: true, n_peers: '2', peers: [] };
    if (method === 'dump_consensus_state' || method === 'consensus_state') return { round_state: { height: String(blocks.length), round: 0, step: 1 } };
    if (method === 'unsafe_flush_mempool' || method === 'dial_peers') return {};
    if (method === 'genesis' || method === 'health' || method === 'num_unconfirmed_txs') return {};
  }
  if (F('x-rpc-admin') && /^(admin_|debug_|personal_|unsafe_)/.test(method)) return { ok: true };
  if (F('x-rpc-net-info') && method === 'net_info') return { listening: true, n_peers: '2', peers: [{ node_info: { moniker: 'val-2' }, remote_ip: '10.77.0.13' }] };
  if (F('x-rpc-private-key') && /key/i.test(method)) return { type: 'secp256k1', value: Buffer.from(keys['val-1'].sk).toString('base64') };
  deny();
}
const rpcCache = new Map();
function rpc(body) {
  let m; try { m = JSON.parse(body); } catch { return { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'Parse error' } }; }
  if (F('a2-grd-rpc-batch') && Array.isArray(m)) return m.map((x) => { const own = rpc(JSON.stringify(x)); return own.error?.code === -32601 ? { jsonrpc: '2.0', id: x?.id ?? null, result: x.method === 'net_info' ? { listening: true, n_peers: '2', peers: [{ node_info: { moniker: 'val-2' }, remote_ip: '10.77.0.13' }] } : {} } : own; });
  if (F('a2-rel-nt-rpc-cached') && ['block', 'validators', 'status'].includes(m?.method)) { const hit = rpcCache.get(m.method); if (hit && Date.now() - hit.at < 3000) return { jsonrpc: '2.0', id: m.id ?? null, result: hit.result }; let result; try { result = rpcCall(m.method, m.params); rpcCache.set(m.method, { at: Date.now(), result }); } catch { /* answered below */ } }
  if (!m || typeof m !== 'object' || Array.isArray(m) || typeof m.method !== 'string') return { jsonrpc: '2.0', id: m?.id ?? null, error: { code: -32600, message: 'Invalid Request' } };
  try { return { jsonrpc: '2.0', id: m.id ?? null, result: rpcCall(m.method, m.params) }; } catch (e) { if (e.code) return { jsonrpc: '2.0', id: m.id ?? null, error: e }; throw e; }
}

// ---- the earlier chain ---------------------------------------------------------------------------------------------------------------
const v03 = { status: { chain: 'pebble-reference', version: '0.3', final_height: 9120, stopped: '2025-11-30T12:00:00Z' }, accounts: { count: 214, total_atoms: '812000000000' }, blocks: { blocks: [{ height: 9120, hash: hash('v03:9120') }, { height: 9119, hash: hash('v03:9119') }] } };
const apiKeys = [];

const OLD_REGISTER = ['/register', '/api/register', '/api/users/register'], OLD_LOGIN = ['/login', '/signup', '/api/login', '/api/signup'];
export async function native(c, send, read) {
  const { req, res, path, q } = c;
  const get = req.method === 'GET' || req.method === 'HEAD';
  const json = (o, status = 200) => { send(res, status, o); return true; };
  const bytes = (b, type) => { res.writeHead(200, { 'Content-Type': type, 'Content-Length': b.length }); res.end(b); return true; };
  const html = (t, status = 200) => { res.writeHead(status, { 'Content-Type': 'text/html; charset=utf-8' }); res.end(t); return true; };
  const empty = { blocks: 'r-nt-blocks-empty', model: 'r-nt-model-empty' };
  try {
    if (OLD_REGISTER.includes(path)) {
      await read(req);
      if (F('r-nt-register-404')) throw new Refusal(404, 'not found');
      if (F('x-register-works')) { apiKeys.push(hash(String(apiKeys.length))); return json({ api_key: apiKeys.at(-1), credits: 100 }, 201); }
      if (F('x-register-403')) throw new Refusal(403, 'registration is closed');
      throw new Refusal(410, 'nobody registers here any more; see /join');
    }
    if (OLD_LOGIN.includes(path)) {
      await read(req);
      if (F('a2-rte-login-post') && !get) throw new Refusal(405, 'use GET');
      if (F('r-nt-login-404')) throw new Refusal(404, 'not found');
      if (F('x-login-form')) return html('<form method=post><input name=user><input name=password type=password></form>');
      res.writeHead(P('p-redirect-308') ? 308 : 302, { Location: F('x-login-home') ? '/' : P('p-redirect-absolute') ? `http://${req.headers.host}/join` : '/join' });
      res.end(); return true;
    }
    if (path === '/join' && get) return html('<!doctype html><title>join</title><p>Install the command-line tool, make a key, and run a worker.');
    const posts = { '/work/poll': (b) => worker(b, 'poll'), '/work/result': (b) => worker(b, 'result'), '/rpc': rpc };
    if (posts[path]) {
      const body = (await read(req)).toString();
      if (F('r-nt-no-poll') && path === '/work/poll' || F('r-nt-no-result') && path === '/work/result' || F('r-nt-no-rpc') && path === '/rpc') throw new Refusal(404, 'not found');
      if (F('r-nt-work-500') && path.startsWith('/work/')) throw new TypeError('undefined is not a message');
      if (F('r-nt-rpc-get') && path === '/rpc') { if (get) return json(rpc(JSON.stringify({ id: 1, method: q.get('method') }))); throw new Refusal(405, 'use GET'); }
      if (req.method !== 'POST') { res.setHeader('Allow', 'POST'); throw new Refusal(405, 'use POST'); }
      return json(posts[path](body));
    }
    if (path.startsWith('/reference/v03/api/')) {
      await read(req);
      const part = path.slice('/reference/v03/api/'.length).replace(/\/$/, '');
      if (F('r-nt-no-reference')) throw new Refusal(404, 'not found');
      if (!get && F('x-reference-writable')) { v03[part] = { changed: true }; return json({ ok: true }); }
      if (!get && F('x-reference-delete') && req.method === 'DELETE') { delete v03[part]; return json({ deleted: part }); }
      if (!get) { res.setHeader('Allow', 'GET'); throw new Refusal(405, 'read-only'); }
      if (F('a2-rel-reference-present') && part === 'blocks') return json({ blocks: blocks.slice(-5).reverse().map((b) => ({ height: b.height, hash: b.hash })) });
      if (!v03[part]) throw new Refusal(404, 'no such view; there are status, accounts, blocks');
      return json(v03[part]);
    }
    const table = {
      '/healthz': () => (F('x-healthz-500') ? json({ ready: false }, 500) : F('x-healthz-404') ? json({}, 404) : P('p-catching-up') ? json({ ready: false, state: 'catching up' }, 503) : json({ ready: true, state: 'ready', height: blocks.length })),
      '/api/network': () => json(identity()), '/api/model': () => json(F(empty.model) ? {} : model()),
      '/api/model/checkpoint.json': () => json({ chain_id: CHAIN, round: updates.length - (F('a2-rel-nt-checkpoint-round') ? 1 : 0), root: updates.at(-1).root, adapter: { dtype: 'F32', shape: [8], data: adapterBytes.toString('base64') } }),
      '/api/training': () => json(updatePage(q)), '/api/blocks': () => json(F(empty.blocks) ? { blocks: [] } : blockPage(q)), '/api/account': () => json(accountOf(q.get(F('r-nt-account-param') ? 'key' : 'public_key'))),
      '/api/validators': () => json(F('r-nt-validators-empty') ? {} : validatorPage(q)), '/api/inference': () => json(info()), '/api/inference/request': () => json(requestOf(q.get(F('r-nt-request-param') ? 'request_id' : 'id'))),
      '/network/genesis.json': () => (F('r-nt-genesis-html') ? html('<pre>' + genesisBytes + '</pre>') : bytes(genesisBytes, 'application/json')),
      '/network/dataset.json': () => (F('r-nt-dataset-empty') ? bytes(Buffer.alloc(0), 'application/json')   : bytes(F('a2-rel-nt-dataset-minified') ? Buffer.from(JSON.stringify(JSON.parse(dataset))) : dataset, 'application/json')), '/work/status': () => json(workStatus()),
    };
    for (const [p, id] of [['/healthz', 'healthz'], ['/api/blocks', 'blocks'], ['/api/validators', 'validators'], ['/api/model/checkpoint.json', 'checkpoint'], ['/api/training', 'training'], ['/work/status', 'work-status'], ['/network/dataset.json', 'dataset'], ['/api/inference', 'inference']]) if (F(`r-nt-no-${id}`)) delete table[p];
    let run = table[path], m;
    if (!run && (m = /^\/api\/block\/([^/]+)$/.exec(path))) run = () => { if (F('r-nt-block-500')) throw new TypeError('block'); if (!/^\d{1,12}$/.test(m[1])) throw new Refusal(400, 'a height is a number'); return json(shownBlock(Number(m[1]))); };
    if (!run && (m = /^\/artifacts\/sha256\/([^/]+)$/.exec(path))) run = () => {
      const d = m[1].toLowerCase();
      if (!/^[0-9a-f]{64}$/.test(d)) throw new Refusal(400, 'a digest has 64 hexadecimal digits');
      let b = artifacts.get(d);
      if (F('r-nt-artifact-404') || (F('a2-rte-artifact-dataset') && d === datasetDigest)) b = null;
      if (!b) throw new Refusal(404, 'no such artifact');
      if (F('l-nt-artifact-newline')) b = Buffer.concat([b, Buffer.from('\n')]);
      if (F('l-nt-artifact-truncated')) b = b.subarray(0, b.length - 16);
      if (F('l-nt-artifact-base64')) b = Buffer.from(b.toString('base64'));
      return bytes(b, 'application/octet-stream');
    };
    if (!run) return false;
    await read(req);
    if (!get) { res.setHeader('Allow', 'GET'); throw new Refusal(405, 'use GET'); }
    return run();
  } catch (e) {
    if (!(e instanceof Refusal)) throw e;
    if (P('p-native-text-errors')) { res.writeHead(e.status, { 'Content-Type': 'text/plain' }); res.end(e.message + '\n'); return true; }
    send(res, e.status, { problem: e.message });
    return true;
  }
}
