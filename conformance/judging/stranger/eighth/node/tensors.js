// The toy layers: h + tanh(h W), and a head to the vocabulary; tensors are float32, little-endian.
import { HIDDEN, VOCABULARY, TOTAL_LAYERS, hex } from './state.js';

function matrix(name, rows, columns) {
  const values = new Float32Array(rows * columns);
  for (let n = 0; n < values.length; n += 1) values[n] = parseInt(hex(`${name} ${n}`).slice(0, 4), 16) / 65_535 - 0.5;
  return values;
}
export const layerWeights = Array.from({ length: TOTAL_LAYERS }, (_, n) => matrix(`layer ${n}`, HIDDEN, HIDDEN));
export const headWeights = matrix('head', HIDDEN, VOCABULARY);

export function readFloats(bytes) {
  const buffer = Buffer.from(bytes);
  return Float32Array.from({ length: buffer.length / 4 }, (_, n) => buffer.readFloatLE(n * 4));
}
export const toBytes = (floats) => Buffer.from(Float32Array.from(floats).buffer);

const multiply = (row, at, weights, inputs, outputs) => {
  const result = new Float64Array(outputs);
  for (let i = 0; i < inputs; i += 1) for (let o = 0; o < outputs; o += 1) result[o] += row[at + i] * weights[i * outputs + o];
  return result;
};

/** Through the layers `held`; keeps what the backward pass needs. */
export function forward(states, held) {
  const trace = [];
  let current = Float64Array.from(states);
  for (const layer of held) {
    const next = new Float64Array(current.length);
    const slopes = new Float64Array(current.length);
    for (let at = 0; at < current.length; at += HIDDEN) {
      const mixed = multiply(current, at, layerWeights[layer], HIDDEN, HIDDEN);
      for (let o = 0; o < HIDDEN; o += 1) {
        const t = Math.tanh(mixed[o]);
        next[at + o] = current[at + o] + t;
        slopes[at + o] = 1 - t * t;
      }
    }
    trace.push({ layer, slopes });
    current = next;
  }
  const positions = current.length / HIDDEN;
  const logits = new Float64Array(positions * VOCABULARY);
  for (let p = 0; p < positions; p += 1) logits.set(multiply(current, p * HIDDEN, headWeights, HIDDEN, VOCABULARY), p * VOCABULARY);
  return { hidden: current, logits, trace };
}

/** From the gradient of the logits to that of the hidden states that came in. */
export function backward(trace, gradLogits) {
  const positions = gradLogits.length / VOCABULARY;
  let grad = new Float64Array(positions * HIDDEN);
  for (let p = 0; p < positions; p += 1) for (let i = 0; i < HIDDEN; i += 1) {
    for (let o = 0; o < VOCABULARY; o += 1) grad[p * HIDDEN + i] += headWeights[i * VOCABULARY + o] * gradLogits[p * VOCABULARY + o];
  }
  for (const { layer, slopes } of [...trace].reverse()) {
    const next = Float64Array.from(grad);
    for (let at = 0; at < grad.length; at += HIDDEN) for (let i = 0; i < HIDDEN; i += 1) {
      for (let o = 0; o < HIDDEN; o += 1) next[at + i] += layerWeights[layer][i * HIDDEN + o] * grad[at + o] * slopes[at + o];
    }
    grad = next;
  }
  return grad;
}

/** Mean cross entropy of the labels, and its gradient; a label of -100 is left out. */
export function lossOf(logits, labels) {
  const grad = new Float64Array(logits.length);
  const counted = Math.max(1, labels.filter((one) => one !== -100).length);
  let loss = 0;
  labels.forEach((label, p) => {
    if (label === -100) return;
    const row = logits.subarray(p * VOCABULARY, (p + 1) * VOCABULARY);
    const top = Math.max(...row);
    const sum = row.reduce((all, one) => all + Math.exp(one - top), 0);
    loss += (Math.log(sum) + top - row[label]) / counted;
    for (let o = 0; o < VOCABULARY; o += 1) grad[p * VOCABULARY + o] = (Math.exp(row[o] - top) / sum - (o === label ? 1 : 0)) / counted;
  });
  return { loss, grad };
}
