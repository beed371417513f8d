import { HIDDEN, VOCABULARY, sha256 } from "./identity.ts";
import { layerWeights } from "./chaindata.ts";
import { GrpcError, INVALID_ARGUMENT } from "./grpcerrors.ts";

const wrong = (text: string): GrpcError => new GrpcError(INVALID_ARGUMENT, text);

/** Raw little-endian float32 values; a copy, because the bytes of a message may lie anywhere. */
export function floats(bytes: Buffer): Float32Array {
  const copy = new Uint8Array(bytes.length);
  copy.set(bytes);
  return new Float32Array(copy.buffer);
}

export const bytesOf = (values: Float32Array): Buffer =>
  Buffer.from(values.buffer, values.byteOffset, values.byteLength);

export function tensor(bytes: Buffer, shape: number[], widths: number[], name: string): Float32Array {
  if (shape.length !== 3 || shape.some((n) => !Number.isInteger(n) || n < 1 || n > 1e9)) {
    throw wrong(`${name} must have a shape of three positive numbers`);
  }
  if (!widths.includes(shape[2])) throw wrong(`the last dimension of ${name} must be ${widths.join(" or ")}`);
  if (bytes.length !== shape[0] * shape[1] * shape[2] * 4)
    throw wrong(`${name} has not as many bytes as its shape`);
  const values = floats(bytes);
  for (let i = 0; i < values.length; i++)
    if (!Number.isFinite(values[i])) throw wrong(`${name} is not finite`);
  return values;
}

/** What a layer has seen before: a count of positions, and for each sequence their sum. */
export interface Past {
  count: number;
  sums: Float32Array;
}

export const pastBytes = (p: Past): Buffer => bytesOf(Float32Array.from([p.count, ...p.sums]));

export function readPast(bytes: Buffer, batch: number): Past {
  if (bytes.length !== 4 * (1 + batch * HIDDEN)) throw wrong("past_key_values do not fit the pass");
  const values = floats(bytes);
  if (!values.every(Number.isFinite) || values[0] < 0) throw wrong("past_key_values are not valid");
  return { count: values[0], sums: values.slice(1) };
}

/** One layer: mixes neighbours within a position and the mean of the positions so far. */
export function layer(index: number, x: Float32Array, batch: number, seq: number, past: Past): Float32Array {
  const w = layerWeights(index, 0);
  const out = new Float32Array(x.length);
  const h = HIDDEN;
  for (let b = 0; b < batch; b++) {
    const sums = past.sums.subarray(b * h, (b + 1) * h);
    for (let s = 0; s < seq; s++) {
      const at = (b * seq + s) * h;
      const seen = past.count + s + 1;
      for (let i = 0; i < h; i++) sums[i] += x[at + i];
      for (let i = 0; i < h; i++) {
        const neighbour = x[at + ((i + 1) % h)];
        out[at + i] = 0.5 * x[at + i] + 0.25 * neighbour + 0.1 * (sums[i] / seen) + 0.1 * w[i];
      }
    }
  }
  past.count += seq;
  return out;
}

export function layerBack(g: Float32Array): Float32Array {
  const h = HIDDEN;
  const out = new Float32Array(g.length);
  for (let at = 0; at < g.length; at += h) {
    for (let i = 0; i < h; i++) out[at + i] = 0.6 * g[at + i] + 0.25 * g[at + ((i + h - 1) % h)];
  }
  return out;
}

const HEAD = Float32Array.from({ length: HIDDEN * VOCABULARY }, (_, i) => sha256("head " + i)[0] / 255 - 0.5);

export function logits(x: Float32Array): Float32Array {
  const rows = x.length / HIDDEN;
  const out = new Float32Array(rows * VOCABULARY);
  for (let r = 0; r < rows; r++) {
    for (let v = 0; v < VOCABULARY; v++) {
      let sum = 0;
      for (let i = 0; i < HIDDEN; i++) sum += x[r * HIDDEN + i] * HEAD[v * HIDDEN + i];
      out[r * VOCABULARY + v] = sum;
    }
  }
  return out;
}

export function logitsBack(g: Float32Array): Float32Array {
  const rows = g.length / VOCABULARY;
  const out = new Float32Array(rows * HIDDEN);
  for (let r = 0; r < rows; r++) {
    for (let v = 0; v < VOCABULARY; v++) {
      for (let i = 0; i < HIDDEN; i++) out[r * HIDDEN + i] += g[r * VOCABULARY + v] * HEAD[v * HIDDEN + i];
    }
  }
  return out;
}

/** The labels, as int64 or int32, little-endian; -100 is no label. */
export function labels(bytes: Buffer, count: number): number[] {
  const wide = bytes.length === count * 8;
  if (!wide && bytes.length !== count * 4)
    throw wrong("training_labels must be one int64 or int32 for each position");
  const list = Array.from({ length: count }, (_, i) =>
    wide ? Number(bytes.readBigInt64LE(i * 8)) : bytes.readInt32LE(i * 4),
  );
  if (list.some((v) => v !== -100 && (v < 0 || v >= VOCABULARY)))
    throw wrong("training_labels are not in the vocabulary");
  return list;
}

export function crossEntropy(out: Float32Array, wanted: number[]): number {
  let sum = 0;
  let count = 0;
  wanted.forEach((label, r) => {
    if (label < 0) return;
    const row = out.subarray(r * VOCABULARY, (r + 1) * VOCABULARY);
    const most = Math.max(...row);
    const total = row.reduce((s, v) => s + Math.exp(v - most), 0);
    sum += Math.log(total) + most - row[label];
    count += 1;
  });
  return count ? sum / count : 0;
}
