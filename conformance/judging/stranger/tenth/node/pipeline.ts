import { bad, odd } from "./faults.ts";
import { HIDDEN, MY_LAYERS, TOTAL_LAYERS, VOCABULARY } from "./identity.ts";
import { GrpcError, INVALID_ARGUMENT, NOT_FOUND } from "./grpcerrors.ts";
import { sendBack } from "./sendback.ts";
import * as t from "./tensor.ts";

interface Graph {
  shape: number[];
  shard: number;
  layers: number[];
  final: boolean;
  sender: string;
  source: number;
}
const graphs = new Map<string, Graph[]>();
const MOST_GRAPHS = 5000;

/** The layers that a pass to this one runs through: those that are held without a gap. */
function run(shard: number): number[] {
  if (bad("ref-negative-counts-back") && shard < 0 && shard >= -TOTAL_LAYERS) shard += TOTAL_LAYERS;
  if (shard < 0) throw new GrpcError(INVALID_ARGUMENT, "a layer below 0 does not exist");
  if (!MY_LAYERS.includes(shard)) {
    if (bad("ref-absent-unavailable")) throw new GrpcError(14, "the layer is offline");
    throw new GrpcError(NOT_FOUND, `layer ${shard} is not on this node`);
  }
  const layers = [shard];
  while (MY_LAYERS.includes(layers.at(-1)! + 1)) layers.push(layers.at(-1)! + 1);
  return layers;
}

const graphKey = (q: any, shard: number): string => {
  if (bad("rel-graph-by-request")) return q.request_id;
  return JSON.stringify([q.session_id, q.request_id, shard]);
};

function keep(q: any, graph: Graph): void {
  const key = graphKey(q, graph.shard);
  if (bad("lim-one-graph")) graphs.clear();
  const list = graphs.get(key) ?? [];
  graphs.set(key, bad("rel-graph-by-request") ? [graph] : [...list, graph]);
  if (graphs.size > MOST_GRAPHS) graphs.delete(graphs.keys().next().value!);
}

const answered = new Map<string, any>();

function forward(q: any): any {
  if (bad("rel-forward-cached-by-shape")) {
    const key = JSON.stringify([q.target_shard, q.hidden_shape]);
    if (answered.has(key)) return { ...answered.get(key), request_id: q.request_id };
    const answer = pass(q);
    answered.set(key, answer);
    return answer;
  }
  return pass(q);
}

function pass(q: any): any {
  const layers = run(q.target_shard);
  let x = t.tensor(q.hidden_states, q.hidden_shape, [HIDDEN], "hidden_states");
  const [batch, seq] = q.hidden_shape;
  const pasts = q.past_key_values.length && !bad("eff-past-ignored") ? q.past_key_values : undefined;
  if (pasts && pasts.length !== layers.length) {
    throw new GrpcError(INVALID_ARGUMENT, "past_key_values must have one entry for each layer");
  }
  const kept: Buffer[] = [];
  layers.forEach((index, i) => {
    const past = pasts ? t.readPast(pasts[i], batch) : { count: 0, sums: new Float32Array(batch * HIDDEN) };
    x = t.layer(index, x, batch, seq, past);
    kept.push(t.pastBytes(past));
  });
  const final = layers.at(-1) === TOTAL_LAYERS - 1;
  const answer: any = { request_id: forwardId(q), success: true };
  if (q.use_cache) answer.past_key_values = kept;
  let result = x;
  if (bad("eff-first-sequence-only") && batch > 1) result = result.slice(0, seq * HIDDEN);
  if (final) finish(q, answer, result, [bad("eff-first-sequence-only") ? 1 : batch, seq]);
  else Object.assign(answer, { hidden_states: t.bytesOf(result), hidden_shape: [...q.hidden_shape] });
  if (!final && bad("eff-first-sequence-only")) answer.hidden_shape[0] = 1;
  keep(q, {
    shape: q.hidden_shape,
    shard: q.target_shard,
    layers,
    final,
    sender: q.sender_url,
    source: q.source_shard,
  });
  return answer;
}

function forwardId(q: any): string {
  if (bad("lim-request-id-36")) return q.request_id.slice(0, 36);
  return q.request_id;
}

function finish(q: any, answer: any, x: Float32Array, [batch, seq]: number[]): void {
  const out = t.logits(x);
  const shape = [batch, seq, VOCABULARY];
  Object.assign(answer, { is_final: true, logits: t.bytesOf(out), logits_shape: shape });
  if (!q.training_labels.length) return;
  const wanted = t.labels(q.training_labels, batch * seq);
  answer.loss = t.crossEntropy(out, wanted);
}

let refusedOnce = false;

function backward(q: any): any {
  run(q.target_shard);
  const refuse = (text: string): any => {
    refusedOnce = true;
    return { success: false, error_message: text };
  };
  if (bad("eff-refusal-sticks") && refusedOnce) return refuse("the pipeline has failed before");
  const key = graphKey(q, q.target_shard);
  const list = graphs.get(key) ?? [];
  if (!list.length)
    return bad("ref-backward-unknown-ok") ? { success: true } : refuse("no such forward pass is kept");
  const graph = list[0];
  let g: Float32Array;
  try {
    g = t.tensor(q.grad_output, q.grad_shape, graph.final ? [HIDDEN, VOCABULARY] : [HIDDEN], "grad_output");
    if (q.grad_shape[0] !== graph.shape[0] || q.grad_shape[1] !== graph.shape[1]) {
      throw new GrpcError(INVALID_ARGUMENT, "grad_output has not the shape of what the pass gave");
    }
  } catch (e) {
    if (bad("eff-wrong-gradient-drops")) graphs.delete(key);
    if (odd("backward-wrong-in-answer")) return refuse((e as Error).message);
    throw e;
  }
  if (list.length > 1) graphs.set(key, list.slice(1));
  else graphs.delete(key);
  if (g.length / (graph.shape[0] * graph.shape[1]) === VOCABULARY) g = t.logitsBack(g);
  for (const _ of graph.layers) g = t.layerBack(g);
  if (graph.sender) sendBack(graph, q, g);
  return { success: true };
}

export const operations: Record<string, (q: any) => any> = {
  PipelineForward: forward,
  PipelineBackward: backward,
  SwarmForward(q) {
    const layers = run(q.layer);
    let x = t.tensor(q.hidden_states, q.hidden_shape, [HIDDEN], "hidden_states");
    const [batch, seq] = q.hidden_shape;
    for (const i of layers)
      x = t.layer(i, x, batch, seq, { count: 0, sums: new Float32Array(batch * HIDDEN) });
    return {
      request_id: q.request_id,
      success: true,
      hidden_states: t.bytesOf(x),
      hidden_shape: q.hidden_shape,
    };
  },
};
