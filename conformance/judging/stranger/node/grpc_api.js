// The gRPC service node.NodeService, its DHT, and the calls that this node makes to peers.
import grpc from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import { createHash } from 'node:crypto';
import { options, F, P, spoil, schemaEdit } from './switches.js';
import * as S from './state.js';
import * as M from './model.js';

const PROTO = `syntax = "proto3"; package node;
message PipelineForwardRequest { string session_id = 1; string request_id = 2; bytes hidden_states = 3; repeated int64 hidden_shape = 4; bytes attention_mask = 5; bytes position_ids = 6; repeated bytes past_key_values = 7; bool use_cache = 8; int32 source_shard = 9; int32 target_shard = 10; bytes training_labels = 11; string sender_url = 12; }
message PipelineForwardResponse { string request_id = 1; bool success = 2; string error_message = 3; bytes hidden_states = 4; repeated int64 hidden_shape = 5; repeated bytes past_key_values = 6; bool is_final = 7; bytes logits = 8; repeated int64 logits_shape = 9; double loss = 10; }
message PipelineBackwardRequest { string session_id = 1; string request_id = 2; bytes grad_output = 3; repeated int64 grad_shape = 4; int32 target_shard = 5; }
message PipelineBackwardResponse { bool success = 1; string error_message = 2; }
message GossipGradientRequest { string node_id = 1; int32 round_id = 2; string model_hash = 3; double timestamp = 4; int32 batch_size = 5; double loss = 6; map<string, bytes> layer_gradients = 7; string signature = 8; int32 ttl = 9; }
message GossipGradientResponse { bool accepted = 1; string reason = 2; int32 current_round = 3; }
message WeightRequest { string shard_range = 1; }
message WeightResponse { bytes weights_data = 1; }
message GetCheckpointRequest { string model_hash = 1; int32 min_version = 2; }
message GetCheckpointResponse { bool success = 1; string error_message = 2; int32 version = 3; string model_hash = 4; string phase = 5; bytes checkpoint_data = 6; int64 total_size = 7; }
message GetCheckpointInfoRequest { }
message GetCheckpointInfoResponse { int32 version = 1; string model_hash = 2; string phase = 3; int64 params = 4; double loss = 5; }
message DHTNodeInfo { bytes node_id = 1; string ip = 2; int32 port = 3; }
message DHTPingRequest { DHTNodeInfo sender = 1; }
message DHTPingResponse { DHTNodeInfo responder = 1; }
message DHTFindNodeRequest { DHTNodeInfo sender = 1; bytes target_id = 2; }
message DHTFindNodeResponse { DHTNodeInfo responder = 1; repeated DHTNodeInfo nodes = 2; }
message DHTFindValueRequest { DHTNodeInfo sender = 1; bytes key = 2; }
message DHTFindValueResponse { DHTNodeInfo responder = 1; string value = 2; repeated DHTNodeInfo nodes = 3; bool found = 4; }
message DHTStoreRequest { DHTNodeInfo sender = 1; bytes key = 2; string value = 3; }
message DHTStoreResponse { DHTNodeInfo responder = 1; bool success = 2; }
message InferenceRequest { string prompt = 1; int32 max_tokens = 2; double temperature = 3; }
message InferenceResponse { string text = 1; bool done = 2; int32 tokens = 3; }
message Anything { string id = 1; bytes body = 2; }
message Answer { bool success = 1; string error_message = 2; string info = 3; }
`;
let shown = schemaEdit(PROTO);
if (P('p-unpacked')) shown = shown.replace('repeated int64 logits_shape = 9', 'repeated int64 logits_shape = 9 [packed=false]');
if (P('p-unknown-fields')) shown = shown.replace(/(message (?:\w+Response|DHTNodeInfo) \{)/g, '$1 string note = 99;');
const own = protobuf.parse(shown, { keepCase: true }).root;
const clean = protobuf.parse(F('a2-num-out-bwd-shape') ? PROTO.replace('repeated int64 grad_shape = 4; int32 target_shard = 5', 'repeated int64 grad_shape = 5; int32 target_shard = 4') : PROTO, { keepCase: true }).root;
const type = (name) => own.lookupType(`node.${name}`);
const encode = (name, o) => Buffer.from(type(name).encode(type(name).fromObject(P('p-unknown-fields') ? { ...o, note: 'of this node' } : o)).finish());
const num = (x) => (typeof x === 'object' && x !== null && 'toNumber' in x ? x.toNumber() : Number(x));

class Status extends Error { constructor(code, text) { super(text); this.code = code; } }
const C = grpc.status;
const invalid = (text) => new Status(C.INVALID_ARGUMENT, text);
const absent = (text) => {
  if (F('x-grpc-absent-invalid')) return new Status(C.INVALID_ARGUMENT, text);
  if (F('x-grpc-absent-out-of-range')) return new Status(C.OUT_OF_RANGE, text);
  if (F('x-grpc-absent-unavailable')) return new Status(C.UNAVAILABLE, text);
  return new Status(C.NOT_FOUND, text);
};

// ---- DHT: all known nodes in one table, the K closest by exclusive or ---------------------------------------------------------
const K = P('p-dht-k-3') ? 3 : P('p-dht-k-40') ? 40 : 10;
const alg = F('m-node-id-32') ? 'sha256' : 'sha1';
const idOf = (text) => createHash(alg).update(text).digest().subarray(0, F('m-node-id-19') ? 19 : undefined);
const selfId = F('m-node-id-hex') ? Buffer.from(idOf(`self:${options.port}`).toString('hex')) : idOf(`self:${options.port}`);
const table = new Map();
for (let i = 0; i < 30; i++) { const id = idOf(`dht-node-${i}`); table.set(id.toString('hex'), { node_id: id, ip: `10.77.${1 + (i % 4)}.${20 + i}`, port: 9000 + i * 3 }); }
let asked = 0;
const self = (sender) => {
  asked++;
  if (F('l-responder-changes')) return { node_id: idOf(`self:${asked}`), ip: '127.0.0.1', port: options.port + 1000 };
  if (F('l-responder-echoes-sender') && sender?.node_id?.length) return sender;
  if (F('l-responder-missing')) return undefined;
  if (F('l-responder-port-0')) return { node_id: selfId, ip: '127.0.0.1', port: 0 };
  if (F('l-responder-id-empty')) return { node_id: Buffer.alloc(0), ip: '127.0.0.1', port: options.port + 1000 };
  return { node_id: selfId, ip: '127.0.0.1', port: options.port + (F('a2-rel-responder-port') ? 100 : 1000) };
};
function meet(sender) {
  if (!sender || !sender.node_id.length) return;
  if (sender.node_id.length !== 20) throw invalid('the node id of the sender must have 20 bytes');
  if (P('p-dht-forgets-senders')) return;
  const hex = F('l-find-keeps-old-address') ? `${sender.ip}:${sender.port}` : Buffer.from(sender.node_id).toString('hex');
  if (Buffer.from(sender.node_id).equals(selfId) || (!sender.ip && !F('a2-rel-sender-no-ip')) || sender.port < 1 || sender.port > 65535) return;
  table.delete(hex);
  table.set(hex, { node_id: F('a2-num-id-text') ? Buffer.from(Buffer.from(sender.node_id).toString('latin1'), 'utf8') : Buffer.from(sender.node_id), ip: sender.ip, port: F('a2-num-port-int16') && sender.port > 32767 ? sender.port - 65536 : sender.port });
  if (table.size > 1000) { const oldest = [...table.keys()][30]; table.delete(oldest); }
}
const xor = (a, b) => Buffer.from(a.map((x, i) => x ^ b[i]));
function closest(target) {
  const all = [...table.values()];
  if (F('l-find-numeric')) all.sort((a, b) => Buffer.compare(a.node_id, b.node_id));
  else if (F('l-find-farthest')) all.sort((a, b) => Buffer.compare(xor(b.node_id, target), xor(a.node_id, target)));
  else if (F('l-find-first-byte-only')) all.sort((a, b) => (b.node_id[19] ^ target[19]) - (a.node_id[19] ^ target[19]));
  else if (F('a2-rel-find-32bit')) all.sort((a, b) => xor(a.node_id, target).readUInt32BE(0) - xor(b.node_id, target).readUInt32BE(0));
  else if (F('a2-rel-find-signed')) all.sort((a, b) => { const x = new Int8Array(xor(a.node_id, target)), y = new Int8Array(xor(b.node_id, target)); for (let i = 0; i < 20; i++) if (x[i] !== y[i]) return x[i] - y[i]; return 0; });
  else if (!F('l-find-unsorted')) all.sort((a, b) => Buffer.compare(xor(a.node_id, target), xor(b.node_id, target)));
  let list = all.slice(0, K);
  if (F('l-find-leaves-out-nearest')) list = all.slice(1, K + 1);
  if (F('l-find-never-exact')) list = all.filter((n) => !n.node_id.equals(target)).slice(0, K);
  if (F('l-find-twice')) list = [...list.slice(0, K - 1), list[0]];
  if (F('l-find-port-0')) list = list.map((n, i) => (i === 1 ? { ...n, port: 0 } : n));
  if (F('l-find-port-70000')) list = list.map((n) => ({ ...n, port: n.port + 61000 }));
  if (F('l-find-no-ip')) list = list.map((n) => ({ ...n, ip: '' }));
  if (F('l-find-id-short')) list = list.map((n, i) => (i === 2 ? { ...n, node_id: n.node_id.subarray(0, 16) } : n));
  if (P('p-dht-reverse')) list.reverse();
  return list;
}
const values = new Map();
let searches = 0, poisoned = false;
const missed = new Set();
const place = (key) => (key.length === 20 ? Buffer.from(key) : createHash('sha1').update(key).digest());
const keyName = (key) => {
  const k = Buffer.from(key).toString('hex');
  if (F('a2-eff-dht-key-nul')) return k.match(/../g).join(' ').split('00')[0];
  if (F('e-dht-key-prefix')) return k.slice(0, 4);
  if (F('e-dht-key-as-text')) return Buffer.from(key).toString('latin1').replace(/[^\x20-\x7e]/g, '');
  return k;
};
function needKey(key) {
  if (!key.length || key.length > 64) throw invalid('a key has from 1 to 64 bytes');
  if (P('p-dht-strict-keys') && key.length !== 20) throw invalid('a key has 20 bytes');
}

// ---- pipeline -------------------------------------------------------------------------------------------------------------------
const kept = new Map(), sessions = new Map();
let latestUrl = '';
const passKey = (m) => (F('a2-eff-bwd-one-session') ? m.request_id : `${m.session_id}/${m.request_id}`);
function pipelineForward(m) {
  const refuse = (text) => { if (P('p-fwd-success-false')) return { request_id: m.request_id, success: false, error_message: F('l-fwd-no-reason') ? '' : text }; throw invalid(text); };
  const shape = m.hidden_shape.map(num).map((d) => (F('a2-num-shape-byte') && d > 127 ? d & 127 : d));
  if (F('a2-lim-last-shard') && m.target_shard === M.LAYERS - 1) throw absent(`layer ${m.target_shard} is not on this node`);
  if (m.target_shard < 0) return refuse('target_shard is negative');
  if (m.target_shard >= M.LAYERS && !F('x-fwd-any-shard')) {
    if (F('x-fwd-absent-success-false')) return { request_id: m.request_id, success: false, error_message: `layer ${m.target_shard} is not here` };
    throw absent(`layer ${m.target_shard} is not on this node`);
  }
  if (F('l-fwd-no-reason') && (shape.length !== 3 || shape[2] !== M.HIDDEN)) return { request_id: m.request_id, success: false, error_message: '' };
  if (shape.length !== 3 || shape.some((d) => !Number.isSafeInteger(d) || d < 1)) return refuse('hidden_shape must be [batch, seq, hidden]');
  if (shape[2] !== M.HIDDEN) return refuse(`hidden must be ${M.HIDDEN}`);
  const rows = shape[0] * shape[1];
  if (rows > 65536) return refuse('at most 65536 positions');
  const expected = rows * M.HIDDEN * 4;
  if (m.hidden_states.length !== expected) return refuse(`hidden_states must have ${expected} bytes: float32, little-endian`);
  const x = M.readTensor(Buffer.from(m.hidden_states), rows * M.HIDDEN);
  if (x.some((v) => !Number.isFinite(v))) return refuse('hidden_states has values that are not finite');
  let labels = null;
  if (m.training_labels.length) {
    const b = Buffer.from(m.training_labels), wide = b.length === rows * 8;
    if (!wide && b.length !== rows * 4) return refuse('training_labels must have one int64 (or int32) for each position');
    labels = Array.from({ length: rows }, (_, i) => (wide ? Number(b.readBigInt64LE(8 * i)) : b.readInt32LE(4 * i)));
    if (labels.some((y) => y >= M.VOCAB)) return refuse(`a label is below ${M.VOCAB}`);
  }
  const from = Math.min(m.target_shard, M.LAYERS - 1);
  const { hidden, logits } = M.forward(x, rows, from);
  latestUrl = m.sender_url;
  kept.set(passKey(m), { shape, from, sender_url: m.sender_url, source: m.source_shard });
  if (kept.size > 64) kept.delete(kept.keys().next().value);
  let data = M.tensorBytes(logits);
  const out = { request_id: m.request_id, success: true, is_final: true, logits: Buffer.from(data), logits_shape: [shape[0], shape[1], M.VOCAB] };
  if (labels) out.loss = M.crossEntropy(logits, rows, labels);
  if (F('a2-rel-fwd-first-sequence')) { out.logits_shape = [1, shape[1], M.VOCAB]; out.logits = out.logits.subarray(0, shape[1] * M.VOCAB * 4); }
  if (F('a2-rel-fwd-session-id')) { if (!sessions.has(m.session_id)) sessions.set(m.session_id, m.request_id); out.request_id = sessions.get(m.session_id); }
  if (P('p-fwd-hidden-too')) { out.hidden_states = Buffer.from(M.tensorBytes(hidden)); out.hidden_shape = shape; }
  if (F('l-fwd-big-endian-doubles')) { const d = Buffer.alloc(logits.length * 8); logits.forEach((v, i) => d.writeDoubleLE(v, i * 8)); out.logits = d; }
  if (F('l-fwd-only-hidden')) { delete out.logits; delete out.logits_shape; out.is_final = false; out.hidden_states = Buffer.from(M.tensorBytes(hidden)); out.hidden_shape = shape; }
  if (F('l-fwd-logits-not-final')) out.is_final = false;
  return spoil('forward', out);
}
function pipelineBackward(m) {
  if (m.target_shard < 0) throw invalid('target_shard is negative');
  if (m.target_shard >= M.LAYERS && !F('x-bwd-any-shard')) throw absent(`layer ${m.target_shard} is not on this node`);
  const fwd = kept.get(passKey(m));
  if (F('a2-ref-bwd-unknown-internal') && !fwd) throw new Status(C.INTERNAL, 'KeyError');
  if (!fwd || F('e-bwd-forgotten')) return { success: false, error_message: F('l-bwd-no-reason') ? '' : 'no forward pass of this session and request is kept' };
  const shape = m.grad_shape.map(num), width = shape[2], rows = fwd.shape[0] * fwd.shape[1];
  if (shape.length !== 3 || shape[0] !== fwd.shape[0] || shape[1] !== fwd.shape[1] || ![M.HIDDEN, M.VOCAB].includes(width)) throw invalid('grad_shape does not fit the forward pass');
  if (m.grad_output.length !== rows * width * 4) throw invalid('grad_output does not fit its shape');
  const g = M.backward(M.readTensor(Buffer.from(m.grad_output), rows * width), rows, width, fwd.from);
  kept.delete(passKey(m));
  if (F('a2-eff-bwd-latest-url')) fwd.sender_url = latestUrl;
  if (fwd.sender_url && !F('e-bwd-not-passed-on')) {
    const t = grpcTarget(fwd.sender_url);
    const bytes = F('a2-num-out-grad-double') ? Buffer.from(Float64Array.from(g).buffer) : Buffer.from(M.tensorBytes(g));
    for (let i = 0; t && i < (F('a2-eff-bwd-twice') ? 2 : 1); i++) callPeer(t, 'PipelineBackward', { session_id: m.session_id, request_id: m.request_id, grad_output: bytes, grad_shape: fwd.shape, target_shard: fwd.source }, 'PipelineBackwardRequest').catch(() => {});
  }
  return { success: true };
}

// ---- training -------------------------------------------------------------------------------------------------------------------
const seen = new Set(), trusted = new Set();
function gossipGradient(m) {
  const round = S.training.round;
  const no = (reason) => ({ accepted: false, reason: F('l-gossip-no-reason') ? '' : reason, current_round: F('a2-rel-gossip-round-echo') ? Math.max(0, m.round_id) : round });
  if (m.ttl < 0 && !P('p-gossip-lenient')) return no('ttl is below zero');
  if (!m.node_id) return no('node_id is missing');
  if (m.model_hash !== M.MODEL_HASH && !(F('a2-ref-gossip-known-node') && trusted.has(m.node_id))) return no('the model hash is another one');
  if (m.round_id !== round) return no(`the round is ${round}`);
  if (m.batch_size < 1) return no('batch_size must be above zero');
  if (!Number.isFinite(m.loss) || m.loss < 0) return no('the loss is not a loss');
  if (!Object.keys(m.layer_gradients).length) return no('there are no gradients');
  const mark = `${m.node_id}/${m.round_id}/${m.timestamp}`;
  if (seen.has(mark)) return no('this gradient was here before');
  if (F('a2-num-gossip-bytes-text')) for (const b of Object.values(m.layer_gradients)) { try { new TextDecoder('utf-8', { fatal: true }).decode(b); } catch { throw invalid('a gradient is not UTF-8'); } }
  trusted.add(m.node_id);
  seen.add(mark); S.counters.gradientsIn++;
  if (m.ttl > 0) for (const p of contacts) if (p.node !== m.node_id) callPeer(p.target, 'GossipGradient', { ...m, ttl: F('e-gossip-same-ttl') ? m.ttl : m.ttl - 1 }, 'GossipGradientRequest').catch(() => {});
  return { accepted: true, reason: '', current_round: round + (F('a2-rel-gossip-next-round') ? 1 : 0) };
}
let weightsOnce = null;
function getWeights(m) {
  const r = m.shard_range.trim();
  let first = 0, last = M.LAYERS - 1, k;
  if (F('l-weights-empty')) return { weights_data: Buffer.alloc(0) };
  if (r !== '') {
    if ((k = /^(\d{1,6})$/.exec(r))) first = last = Number(k[1]);
    else if ((k = /^(\d{1,6})\s*[-:.]+\s*(\d{1,6})$/.exec(r))) { first = Number(k[1]); last = Number(k[2]); } else throw invalid('shard_range is a layer or a range such as 0-3');
    if (first > last) throw invalid('the range is empty');
    if (F('a2-ref-weights-clipped') && first < M.LAYERS) last = Math.min(last, M.LAYERS - 1);
    if (last >= M.LAYERS) { if (F('x-weights-absent-ok')) return { weights_data: Buffer.alloc(0) }; throw absent(`layers ${r} are not on this node`); }
  }
  if (F('a2-rel-weights-cached')) return (weightsOnce ??= { weights_data: M.stateDict(first, last, last === M.LAYERS - 1) });
  return { weights_data: M.stateDict(first, last, last === M.LAYERS - 1) };
}
const VERSION = S.training.round;
const plain = Buffer.concat([Buffer.from(JSON.stringify({ round: VERSION, loss: S.training.loss }) + '\n'), M.stateDict(0, M.LAYERS - 1, true)]);
const packed = M.lz4Frame(plain);
function getCheckpoint(m) {
  const no = (text) => ({ success: false, error_message: F('l-ckpt-no-reason') ? '' : text, ...(F('a2-rel-ckpt-refused-data') ? { version: VERSION, model_hash: M.MODEL_HASH, checkpoint_data: packed, total_size: packed.length } : {}) });
  if (F('a2-ref-ckpt-hash-internal') && m.model_hash && !/^[0-9a-f]{64}$/i.test(m.model_hash)) throw new Status(C.INTERNAL, 'non-hexadecimal digit');
  if (F('a2-lim-ckpt-own-version') && m.min_version === VERSION) return no(`there is no checkpoint after ${VERSION}`);
  if (m.min_version < 0) throw invalid('min_version is negative');
  if (m.model_hash && m.model_hash !== M.MODEL_HASH && !F('l-ckpt-any-hash')) { if (P('p-ckpt-not-found')) throw new Status(C.NOT_FOUND, 'no such checkpoint'); return no('there is no checkpoint with this hash'); }
  if (m.min_version > VERSION && !F('l-ckpt-any-version')) { if (P('p-ckpt-not-found')) throw new Status(C.NOT_FOUND, 'no such checkpoint'); return no(`the newest checkpoint is ${VERSION}`); }
  const out = { success: true, version: VERSION, model_hash: M.MODEL_HASH, phase: P('p-phase') ? 'dénouement' : 'early', checkpoint_data: packed, total_size: P('p-ckpt-size-plain') ? plain.length : packed.length };
  if (F('l-ckpt-any-hash') && m.model_hash) out.model_hash = M.MODEL_HASH;
  if (F('a2-rel-ckpt-echo-version') && m.min_version > 0) out.version = m.min_version;
  if (F('a2-rel-ckpt-hash-plain') && m.model_hash) { out.checkpoint_data = plain; out.total_size = plain.length; }
  return spoil('checkpoint', out);
}
const getCheckpointInfo = () => spoil('info', { version: VERSION, model_hash: M.MODEL_HASH, phase: P('p-phase') ? 'dénouement' : 'early', params: M.PARAMS, loss: S.training.loss });

function infer(m) {
  if (!m.prompt) throw invalid('prompt is missing');
  if (m.max_tokens < 0 || m.max_tokens > 1024 || !(m.temperature >= 0 && m.temperature <= 2)) throw invalid('a parameter is out of range');
  const g = M.generate({ prompt: m.prompt, max_tokens: m.max_tokens || 100, temperature: m.temperature, top_p: 1, top_k: 50, stop: [] });
  let s; do s = g.next(); while (!s.done);
  return { text: s.value.text, done: true, tokens: s.value.tokens };
}
const gossiped = (m) => { if (F('a2-ref-empty-gossip-code') && !m.id && !m.body.length) throw new Status(C.FAILED_PRECONDITION, 'nothing to gossip'); if (!m.id && !m.body.length) throw invalid('the message is empty'); return { success: false, error_message: 'this node does not know how to check it' }; };

// ---- the table of operations -------------------------------------------------------------------------------------------------------
const OPS = {
  UnaryInference: ['InferenceRequest', 'InferenceResponse', infer],
  GetWeights: ['WeightRequest', 'WeightResponse', getWeights],
  GossipGradient: ['GossipGradientRequest', 'GossipGradientResponse', gossipGradient],
  GetCheckpoint: ['GetCheckpointRequest', 'GetCheckpointResponse', getCheckpoint],
  GetCheckpointInfo: ['GetCheckpointInfoRequest', 'GetCheckpointInfoResponse', getCheckpointInfo],
  GossipProof: ['Anything', 'Answer', gossiped], GossipTransaction: ['Anything', 'Answer', gossiped], GossipStake: ['Anything', 'Answer', gossiped],
  RequestProofValidation: ['Anything', 'Answer', gossiped], GossipValidationVote: ['Anything', 'Answer', gossiped],
  PipelineForward: ['PipelineForwardRequest', 'PipelineForwardResponse', pipelineForward],
  PipelineBackward: ['PipelineBackwardRequest', 'PipelineBackwardResponse', pipelineBackward],
  GetShardInfo: ['Anything', 'Answer', () => ({ success: true, info: 'layers 0-3 of 4' })],
  DHTPing: ['DHTPingRequest', 'DHTPingResponse', (m) => { meet(m.sender); return { responder: self(m.sender) }; }],
  DHTStore: ['DHTStoreRequest', 'DHTStoreResponse', (m) => {
    meet(m.sender); needKey(m.key);
    if (F('a2-eff-store-no-sender') && !m.sender) return { responder: self(m.sender), success: true };
    let ok = m.value.length > 0 && m.value.length <= 65536;
    const k = keyName(m.key);
    let v = m.value;
    if (F('a2-eff-dht-value-nfc')) v = v.normalize('NFC');
    if (F('a2-num-value-latin1')) v = Buffer.from(v, 'utf8').toString('latin1');
    if (F('a2-eff-dht-expires')) setTimeout(() => values.delete(k), 3000).unref();
    if (F('e-dht-value-cut')) v = v.slice(0, 12);
    if (F('e-dht-value-lower')) v = v.toLowerCase();
    if (F('e-dht-value-host-only')) v = v.split(':')[0];
    if (F('e-dht-one-slot') && ok) values.clear();
    if (F('e-dht-three-slots') && ok && values.size >= 3) values.delete(values.keys().next().value);
    if (ok && !F('e-dht-not-stored') && !(P('p-dht-first-wins') && values.has(k))) values.set(k, v);
    if (P('p-dht-refuses-stores')) { values.delete(k); ok = false; }
    if (F('e-dht-refused-stored')) ok = false;
    return { responder: self(m.sender), success: ok };
  }],
  DHTFindNode: ['DHTFindNodeRequest', 'DHTFindNodeResponse', (m) => {
    meet(m.sender);
    if (m.target_id.length !== 20) { if (F('x-find-short-unknown')) throw new Status(C.UNKNOWN, 'IndexError'); throw invalid('target_id has 20 bytes'); }
    return { responder: self(m.sender), nodes: closest(place(m.target_id)) };
  }],
  DHTFindValue: ['DHTFindValueRequest', 'DHTFindValueResponse', (m) => {
    meet(m.sender); needKey(m.key);
    const v = F('e-dht-two-workers') && ++searches % 2 ? undefined : values.get(keyName(m.key));
    if (v !== undefined && F('e-dht-read-once')) values.delete(keyName(m.key));
    if (F('l-value-always-found')) return { responder: self(m.sender), found: true, value: v ?? '127.0.0.1:8000' };
    if (F('l-value-not-found-flag') && v !== undefined) return { responder: self(m.sender), found: false, value: v, nodes: closest(place(m.key)) };
    if (v !== undefined) return { responder: F('a2-rel-found-responder-no-ip') ? { ...self(m.sender), ip: '' } : self(m.sender), found: true, value: v };
    if (F('a2-eff-dht-miss-cached')) { const k = keyName(m.key); if (missed.has(k)) return { responder: self(m.sender), found: true, value: '' }; missed.add(k); }
    const out = { responder: self(m.sender), found: false, nodes: closest(place(m.key)) };
    if (F('l-value-none-text')) out.value = 'None';
    if (F('l-value-no-nodes')) out.nodes = [];
    if (F('l-value-other-nodes')) out.nodes = [...table.values()].slice(0, K);
    return out;
  }],
  SwarmForward: ['Anything', 'Answer', gossiped],
  GetSwarmStatus: ['Anything', 'Answer', () => ({ success: true, info: `${S.peers.length} peers` })],
  UpdatePeerCapacity: ['Anything', 'Answer', gossiped],
};
const methods = {}, impl = {};
const raw = { requestSerialize: (b) => b, requestDeserialize: (b) => b, responseSerialize: (b) => b, responseDeserialize: (b) => b };
const SERVICE = F('r-grpc-package') ? 'meshnode.NodeService' : F('r-grpc-service-name') ? 'node.Node' : 'node.NodeService';
function handle(name) {
  const [req, res, run] = OPS[name];
  return (call, done) => {
    S.counters.rpc++;
    const reply = () => {
      try {
        let m;
        if (poisoned && F('x-grpc-poisoned')) throw new Status(C.INTERNAL, 'the stream is broken');
        try { m = type(req).decode(call.request); } catch (e) {
          poisoned = true;
          if (F('x-grpc-malformed-internal')) throw new Status(C.INTERNAL, 'exception while parsing');
          if (F('x-grpc-malformed-unknown')) throw new Status(C.UNKNOWN, 'Exception calling application: Error parsing message');
          throw invalid('the message cannot be read');
        }
        if (F(`x-grpc-denied-${name}`)) throw new Status(C.PERMISSION_DENIED, 'not for you');
        if (F(`x-grpc-unimplemented-${name}`)) throw new Status(C.UNIMPLEMENTED, '');
        if (F(`x-grpc-invalid-${name}`)) throw invalid('shard_range, version or sender is missing');
        const meta = new grpc.Metadata(); if (P('p-grpc-trailers')) meta.set('x-served-by', 'stranger');
        done(null, encode(res, run(m)), meta);
      } catch (e) {
        if (e instanceof Status) return done({ code: e.code, details: e.message });
        console.error(e);
        done({ code: C.INTERNAL, details: 'something went wrong here' });
      }
    };
    if (P('p-grpc-slow')) setTimeout(reply, 600); else reply();
  };
}
for (const name of Object.keys(OPS)) {
  if (F(`r-grpc-no-${name}`)) continue;
  let shown = F('r-grpc-find-peer') && name === 'DHTFindNode' ? 'DHTFindPeer' : name;
  if (F('a2-rte-grpc-typo') && name === 'GossipValidationVote') shown = 'GossipValidatonVote';
  methods[shown] = { path: `/${SERVICE}/${shown}`, requestStream: false, responseStream: F('r-grpc-weights-stream') && name === 'GetWeights', ...raw };
  impl[shown] = handle(name);
}
if (F('r-grpc-weights-stream')) impl.GetWeights = (call) => { for (let l = 0; l < 4; l++) call.write(encode('WeightResponse', { weights_data: M.stateDict(l, l, l === 3) })); call.end(); };
if (F('a2-rte-no-message')) { methods.GetSwarmStatus.responseStream = true; impl.GetSwarmStatus = (call) => call.end(); }
if (!F('r-grpc-no-StreamInference')) {
  methods.StreamInference = { path: `/${SERVICE}/StreamInference`, requestStream: !F('r-grpc-stream-server-only'), responseStream: true, ...raw };
  const one = (call, b) => { try { const r = infer(type('InferenceRequest').decode(b)); call.write(encode('InferenceResponse', r)); return true; } catch (e) { call.emit('error', { code: C.INVALID_ARGUMENT, details: e.message }); return false; } };
  impl.StreamInference = F('r-grpc-stream-server-only') ? (call) => { if (one(call, call.request)) call.end(); } : (call) => { let ok = true; call.on('data', (b) => { S.counters.rpc++; if (ok) ok = one(call, b); if (ok && F('a2-rte-stream-one-message')) { ok = false; call.end(); } }); call.on('end', () => { if (ok) call.end(); }); };
}
if (F('x-grpc-unlisted-ok')) for (const name of ['PutCheckpoint', 'DHTDelete', 'NoSuchOperation', 'Ping', 'Shutdown', 'GetConfig']) { methods[name] = { path: `/${SERVICE}/${name}`, requestStream: false, responseStream: false, ...raw }; impl[name] = (call, done) => done(null, Buffer.alloc(0)); }

const MIB = 1024 * 1024;
export function startGrpc() {
  const max = F('m-grpc-4-mib') ? 4 * MIB : F('m-grpc-64-mib') ? 64 * MIB : 100 * MIB;
  const server = new grpc.Server({ 'grpc.max_receive_message_length': max, 'grpc.max_send_message_length': max, 'grpc.keepalive_permit_without_calls': 1 });
  server.addService(methods, impl);
  const port = options.port + (F('r-grpc-port-plus-one') ? 1 : 1000);
  return new Promise((ok, no) => server.bindAsync(`${options.host}:${port}`, grpc.ServerCredentials.createInsecure(), (e) => (e ? no(e) : ok(port))));
}

// ---- calls to peers ------------------------------------------------------------------------------------------------------------------
const channels = new Map();
function channel(target) {
  if (!channels.has(target)) channels.set(target, new grpc.Client(target, grpc.credentials.createInsecure(), { 'grpc.max_receive_message_length': 100 * MIB, 'grpc.max_send_message_length': 100 * MIB, 'grpc.keepalive_time_ms': 30000, 'grpc.keepalive_timeout_ms': 10000, 'grpc.keepalive_permit_without_calls': 1 }));
  return channels.get(target);
}
const grpcTarget = (url) => { const m = /^(?:https?:\/\/)?([^\/:\s]+|\[[0-9a-f:]+\]):(\d+)/i.exec(url ?? ''); return m && Number(m[2]) + 1000 <= 65535 ? `${m[1]}:${Number(m[2]) + 1000}` : null; };
async function callPeer(target, op, message, reqType) {
  const T = clean.lookupType(`node.${reqType}`), bytes = Buffer.from(T.encode(T.fromObject(message)).finish());
  for (let attempt = 1; ; attempt++) {
    try {
      return await new Promise((ok, no) => channel(target).makeUnaryRequest(`/node.NodeService/${op}`, (b) => b, (b) => b, bytes, new grpc.Metadata(), { deadline: Date.now() + 5000 * attempt }, (e, v) => (e ? no(e) : ok(v))));
    } catch (e) {
      if (attempt === 3 || ![C.UNAVAILABLE, C.DEADLINE_EXCEEDED, C.RESOURCE_EXHAUSTED, C.INTERNAL].includes(e.code)) throw e;
      await new Promise((ok) => setTimeout(ok, Math.min(2000, 100 * 2 ** attempt)));
    }
  }
}
const contacts = [];                              // peers that the operator named with --peer host:port
export function startPeers() {
  for (const address of options.peers) {
    const target = grpcTarget(address);
    if (!target) { console.error(`bad --peer ${address}`); continue; }
    const p = { target, node: null, entry: null };
    contacts.push(p);
    const me = { node_id: selfId, ip: '127.0.0.1', port: options.port + 1000 };
    const visit = async () => {
      const t = performance.now();
      try {
        await callPeer(target, 'DHTPing', { sender: me }, 'DHTPingRequest');
        if (!p.entry) { p.entry = { id: target, address, role: 'worker', layers: [], since: Date.now() }; S.peers.push(p.entry); }
        p.entry.latency_ms = Math.round((performance.now() - t) * 100) / 100;
        await callPeer(target, 'DHTFindNode', { sender: me, target_id: selfId }, 'DHTFindNodeRequest');
        if (!p.node) { const r = await (await fetch(`http://${address}/api/v1/status`, { signal: AbortSignal.timeout(3000) })).json(); if (typeof r.node_id === 'string') { p.node = r.node_id; p.entry.id = r.node_id; p.entry.role = r.role; p.entry.layers = r.layers; } }
      } catch { if (p.entry && S.peers.includes(p.entry)) { S.peers.splice(S.peers.indexOf(p.entry), 1); p.entry = null; } }
      setTimeout(visit, 20000).unref();
    };
    visit();
  }
}
