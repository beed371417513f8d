// The toy model: a character-level Markov chain that writes text, and four linear layers that take hidden states.
import { createHash } from 'node:crypto';
import { F, P } from './switches.js';

const CORPUS = `A network of small machines can do the work of a large one when each of them keeps a part of the model and passes
its results to the next. The first machine reads the words, the last one says which word comes next, and those between
them only move numbers along. When one of them stops, another takes its place, and the text goes on. Nobody owns the
whole of it. A driver knows the beginning, a validator the end, a worker neither of the two. The river runs past the old
mill, and the miller counts the sacks in the evening. Each sack has a number, and each number is written in the book.
If the book is lost, the sacks are still there; if the sacks are lost, the book is of no use. So the miller keeps both.
In the morning the carts come down the hill. There are seven of them, and the last one is always late. The children run
along and shout, the dogs bark, and the horses do not care. It is a good road in summer and a bad one in winter.
What is learned in one house is told in the next, and after a week the whole valley knows it. Some of it is even true.
Numbers such as 1, 2, 3 and 10 are short words too. Yes, they said, and no, they said, and then they had some tea.
To count is to trust the order of things: one after the other, none of them twice, and none of them left out.\n`.replace(/\n(?!$)/g, ' ');

const ORDER = 5;
const tables = Array.from({ length: ORDER + 1 }, () => new Map());
{
  const cs = [...CORPUS];
  for (let i = 0; i < cs.length; i++) for (let o = 0; o <= ORDER && o <= i; o++) {
    const key = cs.slice(i - o, i).join('');
    const t = tables[o];
    if (!t.has(key)) t.set(key, new Map());
    const m = t.get(key);
    m.set(cs[i], (m.get(cs[i]) ?? 0) + 1);
  }
}
// Each character (code point) is a token.
export const tokenCount = (text) => [...text].length;

function mulberry(seed) {
  let a = seed >>> 0;
  return () => { a = (a + 0x6d2b79f5) | 0; let t = Math.imul(a ^ (a >>> 15), 1 | a); t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t; return ((t ^ (t >>> 14)) >>> 0) / 4294967296; };
}
let seeds = 1;

function nextToken(ctx, { temperature, top_p, top_k }, rng) {
  let dist;
  for (let o = Math.min(ORDER, ctx.length); o >= 0; o--) { dist = tables[o].get(o ? ctx.slice(-o).join('') : ''); if (dist) break; }
  let list = [...dist].sort((x, y) => y[1] - x[1] || (x[0] < y[0] ? -1 : 1));
  if (temperature === 0) return list[P('p-temp0-random') ? Math.floor(rng() * Math.min(2, list.length)) : 0][0];
  list = list.slice(0, top_k);
  if (F('a2-lim-temperature-tiny') && temperature < 0.05) throw new RangeError('weights overflow');
  let w = list.map(([, c]) => Math.pow(c, 1 / Math.max(temperature, 0.01)));
  let sum = w.reduce((a, b) => a + b, 0);
  let acc = 0, n = 0;
  for (const x of w) { n++; acc += x / sum; if (acc >= top_p - 1e-12) break; }
  list = list.slice(0, n); w = w.slice(0, n); sum = w.reduce((a, b) => a + b, 0);
  let r = rng() * sum;
  for (let i = 0; i < n; i++) { r -= w[i]; if (r <= 0) return list[i][0]; }
  return list[n - 1][0];
}

// Yields pieces of text in order, returns {text, tokens, finish}.
export function* generate(p) {
  const rng = mulberry(seeds++);
  const ctx = [...p.prompt].slice(-ORDER);
  let stops = F('x-stop-ignored') ? [] : p.stop.filter((s) => s !== '');
  if (F('a2-lim-stop-four')) stops = stops.slice(0, 4);
  const find = (s) => {
    if (F('a2-lim-stop-case')) return text.toLowerCase().indexOf(s.toLowerCase());
    if (F('a2-lim-stop-pattern')) { try { return text.search(new RegExp(s)); } catch { return text.indexOf(s); } }
    if (F('a2-lim-stop-window')) { const k = text.slice(-12).indexOf(s); return k < 0 ? k : Math.max(0, text.length - 12) + k; }
    if (F('a2-lim-stop-not-first')) return text.indexOf(s) > 0 ? text.indexOf(s) : -1;
    if (F('a2-lim-stop-stream-pieces') && p.stream && s.length > 1) return -1;
    return text.indexOf(s);
  };
  let text = '', sent = 0, tokens = 0, finish = P('p-finish-words') ? 'max_tokens' : 'length';
  let left = p.max_tokens;
  if (F('m-maxtokens-plus-one')) left += 1;
  if (F('m-maxtokens-ignored')) left = Math.max(left, 64);
  if (F('m-stream-maxtokens-ignored') && p.stream) left = 100;
  if (F('m-maxtokens-minimum-16')) left = Math.max(left, 16);
  let overrun = -1;
  while (tokens < left) {
    const ch = nextToken(ctx, p, rng);
    ctx.push(ch); if (ctx.length > ORDER) ctx.shift();
    tokens++; text += ch;
    if (overrun > 0 && --overrun === 0) break;
    const cuts = overrun >= 0 ? [] : stops.map(find).filter((i) => i >= 0);
    if (cuts.length) {
      finish = P('p-finish-words') ? 'stop_sequence' : 'stop';
      if (F('x-stop-continues')) { overrun = 12; continue; }
      if (F('x-stop-first-only') && !text.includes(stops[0])) continue;
      if (F('x-stop-whole-word')) { if (!/\s$/.test(text)) continue; break; }
      text = text.slice(0, Math.min(...cuts));
      break;
    }
    let hold = 0;
    for (const s of stops) for (let k = Math.min(s.length - 1, text.length); k > hold; k--) if (text.endsWith(s.slice(0, k))) { hold = k; break; }
    if (F('x-stop-whole-word') && stops.length) hold = text.length;
    const every = P('p-sse-big-tokens') ? 24 : 1;
    if (!P('p-sse-single') && text.length - hold - sent >= every) { yield text.slice(sent, text.length - hold); sent = text.length - hold; }
  }
  if (text.length > sent && !(F('a2-rel-stream-held-back') && p.stream && stops.length)) yield text.slice(sent);
  return { text, tokens, finish };
}

// ---- the linear model -------------------------------------------------------------------------------------------
export const HIDDEN = 8, VOCAB = 64, LAYERS = 4;
const wr = mulberry(20240611);
const mat = (r, c, diag = 0) => Float32Array.from({ length: r * c }, (_, i) => (wr() - 0.5) * 0.4 + (Math.floor(i / c) === i % c ? diag : 0));
export const weights = { head: mat(HIDDEN, VOCAB), layers: Array.from({ length: LAYERS }, () => ({ w: mat(HIDDEN, HIDDEN, 0.9), b: mat(1, HIDDEN) })) };
export const PARAMS = HIDDEN * VOCAB + LAYERS * (HIDDEN * HIDDEN + HIDDEN);

const f32 = (a) => Buffer.from(a.buffer, a.byteOffset, a.byteLength);
// A state dictionary: 8 bytes little-endian length of a JSON header, the header, then the raw float32 data.
export function stateDict(first, last, withHead) {
  const header = {}, parts = [];
  let at = 0;
  const put = (name, shape, a) => { const b = f32(a); header[name] = { dtype: 'F32', shape, data_offsets: [at, at + b.length] }; at += b.length; parts.push(b); };
  for (let l = first; l <= last; l++) { put(`layers.${l}.weight`, [HIDDEN, HIDDEN], weights.layers[l].w); put(`layers.${l}.bias`, [HIDDEN], weights.layers[l].b); }
  if (withHead) put('head.weight', [HIDDEN, VOCAB], weights.head);
  const h = Buffer.from(JSON.stringify(header));
  const n = Buffer.alloc(8); n.writeBigUInt64LE(BigInt(h.length));
  return Buffer.concat([n, h, ...parts]);
}
export const MODEL_HASH = createHash('sha256').update(stateDict(0, LAYERS - 1, true)).digest('hex');

export function readTensor(buf, count) {
  const a = new Float32Array(count);
  for (let i = 0; i < count; i++) a[i] = buf.readFloatLE(4 * i);
  return a;
}
export const tensorBytes = (a) => f32(a);

export function forward(x, rows, from) {
  let h = x;
  for (let l = from; l < LAYERS; l++) {
    const { w, b } = weights.layers[l];
    const o = new Float32Array(rows * HIDDEN);
    for (let r = 0; r < rows; r++) for (let j = 0; j < HIDDEN; j++) {
      let s = b[j];
      for (let i = 0; i < HIDDEN; i++) s += h[r * HIDDEN + i] * w[i * HIDDEN + j];
      o[r * HIDDEN + j] = s;
    }
    h = o;
  }
  const logits = new Float32Array(rows * VOCAB);
  for (let r = 0; r < rows; r++) for (let j = 0; j < VOCAB; j++) {
    let s = 0;
    for (let i = 0; i < HIDDEN; i++) s += h[r * HIDDEN + i] * weights.head[i * VOCAB + j];
    logits[r * VOCAB + j] = s;
  }
  return { hidden: h, logits };
}
export function crossEntropy(logits, rows, labels) {
  let sum = 0, n = 0;
  for (let r = 0; r < rows; r++) {
    const y = labels[r];
    if (y < 0) continue;
    let m = -Infinity;
    for (let j = 0; j < VOCAB; j++) m = Math.max(m, logits[r * VOCAB + j]);
    let z = 0;
    for (let j = 0; j < VOCAB; j++) z += Math.exp(logits[r * VOCAB + j] - m);
    sum += Math.log(z) + m - logits[r * VOCAB + (y % VOCAB)]; n++;
  }
  return n ? sum / n : 0;
}
// Gradient of the input, from the gradient of the logits or of the last hidden states.
export function backward(grad, rows, width, from) {
  let g = grad;
  if (width === VOCAB) {
    g = new Float32Array(rows * HIDDEN);
    for (let r = 0; r < rows; r++) for (let i = 0; i < HIDDEN; i++) { let s = 0; for (let j = 0; j < VOCAB; j++) s += grad[r * VOCAB + j] * weights.head[i * VOCAB + j]; g[r * HIDDEN + i] = s; }
  }
  for (let l = LAYERS - 1; l >= from; l--) {
    const { w } = weights.layers[l];
    const o = new Float32Array(rows * HIDDEN);
    for (let r = 0; r < rows; r++) for (let i = 0; i < HIDDEN; i++) { let s = 0; for (let j = 0; j < HIDDEN; j++) s += g[r * HIDDEN + j] * w[i * HIDDEN + j]; o[r * HIDDEN + i] = s; }
    g = o;
  }
  return g;
}

// ---- LZ4 frame (blocks are stored, which every reader of frames accepts) -------------------------------------------
function xxh32(buf, seed = 0) {
  const P1 = 2654435761, P2 = 2246822519, P3 = 3266489917, P4 = 668265263, P5 = 374761393;
  const rotl = (x, r) => ((x << r) | (x >>> (32 - r))) >>> 0;
  const mul = (a, b) => Math.imul(a, b) >>> 0;
  let i = 0, h;
  if (buf.length >= 16) {
    const v = [(seed + P1 + P2) >>> 0, (seed + P2) >>> 0, seed >>> 0, (seed - P1) >>> 0];
    for (; i + 16 <= buf.length; i += 16) for (let k = 0; k < 4; k++) v[k] = mul(rotl((v[k] + mul(buf.readUInt32LE(i + 4 * k), P2)) >>> 0, 13), P1);
    h = (rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18)) >>> 0;
  } else h = (seed + P5) >>> 0;
  h = (h + buf.length) >>> 0;
  for (; i + 4 <= buf.length; i += 4) h = mul(rotl((h + mul(buf.readUInt32LE(i), P3)) >>> 0, 17), P4);
  for (; i < buf.length; i++) h = mul(rotl((h + mul(buf[i], P5)) >>> 0, 11), P1);
  h ^= h >>> 15; h = mul(h >>> 0, P2); h ^= h >>> 13; h = mul(h >>> 0, P3); h ^= h >>> 16;
  return h >>> 0;
}
export function lz4Frame(data) {
  const desc = Buffer.from([0x60, 0x40]);            // version 01, independent blocks; largest block 64 KiB
  const out = [Buffer.from([0x04, 0x22, 0x4d, 0x18]), desc, Buffer.from([(xxh32(desc) >>> 8) & 0xff])];
  for (let i = 0; i < data.length; i += 65536) {
    const part = data.subarray(i, i + 65536), n = Buffer.alloc(4);
    n.writeUInt32LE((part.length | 0x80000000) >>> 0);
    out.push(n, part);
  }
  out.push(Buffer.alloc(4));
  return Buffer.concat(out);
}
