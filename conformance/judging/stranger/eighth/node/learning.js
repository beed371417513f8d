// Weights, checkpoints and gossiped gradients.
import lz4 from 'lz4js';
import { fault, peculiar, sleep } from './switches.js';
import { HELD, ROUND, PARAMETERS, hex } from './state.js';
import { layerWeights, headWeights, toBytes, readFloats } from './tensors.js';
import { Status } from './pipeline.js';

const packed = (layer, scale = 1) => toBytes(layerWeights[layer].map((one) => one * scale)).toString('base64');

function layersOf(text) {
  const layers = [];
  for (const part of text.split(',')) {
    const [, from, to] = /^\s*(\d{1,4})\s*(?:-\s*(\d{1,4}))?\s*$/.exec(part) ?? [];
    if (from === undefined || (to !== undefined && Number(to) < Number(from))) throw new Status('INVALID_ARGUMENT', 'shard_range is like 4, 4-6 or 4,6.');
    for (let n = Number(from); n <= Number(to ?? from); n += 1) layers.push(n);
  }
  return [...new Set(layers)];
}

export async function getWeights({ shard_range: range }) {
  if (peculiar('slow-answers')) await sleep(150);
  let layers = layersOf(range);
  if (fault('weights-partial-range')) layers = layers.some((one) => HELD.includes(one)) ? layers.filter((one) => HELD.includes(one)) : layers;
  if (layers.some((one) => !HELD.includes(one))) {
    if (fault('weights-absent-internal')) throw new Status('INTERNAL', 'KeyError');
    throw new Status('NOT_FOUND', 'This node does not hold all of these layers.');
  }
  const state = Object.fromEntries(layers.map((one) => [`layers.${one}.weight`, { shape: [8, 8], dtype: 'float32', data: packed(one) }]));
  const bytes = Buffer.from(JSON.stringify(state));
  return { weights_data: peculiar('weights-compressed') ? Buffer.from(lz4.compress(bytes)) : bytes };
}

const checkpoints = [ROUND - 2, ROUND - 1, ROUND].map((version, n) => {
  const state = { version, layers: HELD.map((one) => packed(one, 1 + n / 100)), head: toBytes(headWeights).toString('base64') };
  const plain = Buffer.from(JSON.stringify(state));
  return {
    version, model_hash: hex(plain), phase: peculiar('phase-mature') ? 'mature' : 'early',
    data: Buffer.from(lz4.compress(plain)),
  };
});
if (peculiar('one-checkpoint')) checkpoints.splice(0, 2);
const newest = checkpoints.at(-1);
export const MODEL_HASH = newest.model_hash;

let asked = 0;
export async function getCheckpoint(message) {
  const { model_hash: hash, min_version: least } = message;
  let list = checkpoints;
  if (hash) list = list.filter((one) => (one.model_hash === hash));
  if (!fault('checkpoint-min-version-ignored') && !(fault('checkpoint-hash-without-version') && hash)) list = list.filter((one) => one.version >= least);
  let found = list.at(-1);
  if (!found && fault('checkpoint-newest-instead')) found = newest;
  if (!found) {
    const refusal = { success: false, error_message: 'There is no such checkpoint.' };
    if (fault('checkpoint-refusal-silent')) refusal.error_message = '';
    if (peculiar('checkpoint-not-found-status')) throw new Status('NOT_FOUND', 'There is no such checkpoint.');
    return refusal;
  }
  asked += 1;
  const answer = {
    success: true, version: found.version, model_hash: found.model_hash, phase: found.phase, checkpoint_data: found.data,
    total_size: peculiar('size-uncompressed') ? found.data.length * 2 : found.data.length,
  };
  return answer;
}

export async function getCheckpointInfo() {
  const answer = { version: newest.version, model_hash: newest.model_hash, phase: newest.phase, params: PARAMETERS, loss: 2.3125 };
  if (fault('info-version-older')) answer.version -= 1;
  return answer;
}

let refusedRounds = 0;
export async function gossipGradient(message) {
  const round = ROUND;
  const no = (reason) => {
    refusedRounds += 1;
    let current = round;
    if (fault('gossip-round-grows-by-refusal')) current = round + refusedRounds;
    return { accepted: false, reason: fault('gossip-refusal-without-reason') ? '' : reason, current_round: current };
  };
  if (!message.node_id) return no('There is no node_id.');
  if (message.round_id < round - 2 || message.round_id > round) return no('The round is too old or in the future.');
  if (message.model_hash !== MODEL_HASH && !fault('gossip-any-model-hash')) return no('The gradient belongs to another model.');
  if (message.batch_size < 1 || !Number.isFinite(message.loss)) return no('The batch or the loss is impossible.');
  if (peculiar('gossip-needs-signature') && !message.signature) return no('There is no signature.');
  const layers = Object.entries(message.layer_gradients);
  if (!layers.length) return no('There are no gradients.');
  for (const [name, bytes] of layers) {
    const [, layer] = /^(?:layers?[._])?(\d{1,3})(?:\.weight)?$/.exec(name) ?? [];
    if (layer === undefined) return no(`${name} is no layer.`);
    let floats;
    try { floats = readFloats(lz4.decompress(Uint8Array.from(bytes), 1 << 20)); } catch { return no('A gradient is no LZ4 frame.'); }
    if (!floats.length || floats.some((one) => !Number.isFinite(one))) return no('A gradient has values that are not finite.');
  }
  const answer = { accepted: true, reason: '', current_round: round };
  if (peculiar('gossip-reason-always')) answer.reason = 'used';
  return answer;
}
