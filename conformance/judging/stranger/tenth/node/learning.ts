import { bad, odd } from "./faults.ts";
import { MY_LAYERS, NODE_NAME, HIDDEN, TOTAL_LAYERS } from "./identity.ts";
import * as chain from "./chain.ts";
import { adapter, exactLoss, modelHash, stateDictionary } from "./chaindata.ts";
import { gossip } from "./gossipstate.ts";
import { GrpcError, INVALID_ARGUMENT, NOT_FOUND } from "./grpcerrors.ts";
import { frame, unframe } from "./lz4.ts";
import { PROOFS } from "./proofs.ts";
import { PEERS } from "./nodeapi.ts";
import { generate } from "./toymodel.ts";

const KEPT_CHECKPOINTS = 16;
const phaseOf = (round: number): string => (round < 50 ? "early" : "middle");

function checkpoint(q: any): any {
  const newest = chain.round();
  const refuse = (text: string): any => {
    const answer: any = { success: false, error_message: text };
    return answer;
  };
  let version = newest;
  if (q.model_hash) {
    const kept = Array.from({ length: KEPT_CHECKPOINTS }, (_, i) => newest - i).filter((r) => r >= 1);
    const found = kept.find((r) => modelHash(r) === q.model_hash);
    if (!found) return missing("there is no checkpoint with this hash", refuse);
    version = found;
  }
  const ignored = bad("ref-hash-drops-minimum") && q.model_hash;
  if (q.min_version < 0) throw new GrpcError(INVALID_ARGUMENT, "min_version is below 0");
  const late = bad("ref-own-version-late")
    ? q.min_version >= version && q.min_version
    : q.min_version > version;
  if (late && !ignored) return missing("there is no checkpoint of this version yet", refuse);
  return checkpointOf(version, q);
}

function missing(text: string, refuse: (text: string) => any): any {
  if (bad("ref-checkpoint-internal")) throw new Error(text);
  if (odd("checkpoint-not-found")) throw new GrpcError(NOT_FOUND, text);
  return refuse(text);
}

function checkpointOf(version: number, q: any = {}): any {
  const state = adapter(version);
  let data = bad("eff-checkpoint-raw") ? state : frame(state);
  if (bad("rel-checkpoint-by-version-other") && q.min_version) data = frame(adapter(version - 1));
  const named = version;
  return {
    success: true,
    version: named,
    model_hash: modelHash(version),
    phase: phaseOf(version),
    checkpoint_data: data,
    total_size: odd("size-uncompressed") ? state.length : data.length,
  };
}

function checkpointInfo(): any {
  const version = chain.round();
  return {
    version,
    model_hash: modelHash(version),
    phase: phaseOf(version),
    params: 192,
    loss: Number(exactLoss(version)),
  };
}

function layersOf(range: string): number[] {
  const part = /^(\d{1,6})(?:\s*-\s*(\d{1,6}))?$/;
  const layers: number[] = [];
  for (const piece of range.split(",").map((p) => p.trim())) {
    const match = part.exec(piece);
    if (!match) throw new GrpcError(INVALID_ARGUMENT, "shard_range must be like 2, 0-2 or 0,5");
    const [from, to] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (to < from || to - from > 10_000) throw new GrpcError(INVALID_ARGUMENT, "shard_range must rise");
    for (let i = from; i <= to; i++) layers.push(i);
  }
  return [...new Set(layers)];
}

function weights(q: any): any {
  let layers = layersOf(q.shard_range);
  const held = layers.filter((i) => MY_LAYERS.includes(i));
  if (held.length < layers.length) {
    if (bad("ref-absent-weights-empty") && !held.length) return { weights_data: Buffer.alloc(0) };
    if (bad("ref-partial-weights") && held.length) layers = held;
    else throw new GrpcError(NOT_FOUND, "the node does not hold all of these layers");
  }
  return { weights_data: stateDictionary(layers, 0) };
}

let refusals = 0;
/** Why a gradient is of no use, or nothing if it is of use. */
function useless(q: any, round: number): string {
  if (!q.node_id) return "node_id is missing";
  if (q.round_id !== round) return `the round is ${round}`;
  if (q.model_hash !== modelHash(round) && !bad("ref-gradient-other-model"))
    return "the model is another one";
  const names = Object.keys(q.layer_gradients);
  if (!names.length) return "there are no gradients";
  if (!Number.isFinite(q.loss) || q.loss < 0 || q.batch_size < 0)
    return "the loss or the batch size is not valid";
  for (const name of names) {
    const index = /\d+/.exec(name);
    if (!index || Number(index[0]) >= TOTAL_LAYERS) return `there is no layer ${name.slice(0, 40)}`;
    try {
      const content = unframe(q.layer_gradients[name]);
      if (!content.length || content.length % 4) return "a gradient has not the length of float32 values";
      for (let i = 0; i < content.length; i += 4)
        if (!Number.isFinite(content.readFloatLE(i))) return "it is not finite";
    } catch (e) {
      return `a gradient cannot be read: ${(e as Error).message}`;
    }
  }
  return "";
}

function gradient(q: any): any {
  const round = chain.round();
  gossip.submitted += 1;
  const reason = useless(q, round);
  if (!reason) gossip.accepted += 1;
  else refusals += 1;
  let current = round;
  if (bad("rel-round-of-sender") && !reason) current = q.round_id + 1;
  const shown = bad("fld-gradient-no-reason") ? "" : reason;
  return {
    accepted: !reason,
    reason: reason ? shown : odd("accepted-reason") ? "thank you" : "",
    current_round: current,
  };
}

export function inferenceOf(q: any): any {
  if (!q.prompt) throw new GrpcError(INVALID_ARGUMENT, "prompt is missing");
  if (q.max_tokens < 0 || q.max_tokens > 8192)
    throw new GrpcError(INVALID_ARGUMENT, "max_tokens is not valid");
  const made = generate(q.prompt, {
    maxTokens: q.max_tokens || 100,
    temperature: q.temperature,
    topP: 1,
    topK: 50,
    stop: [],
  });
  return {
    request_id: q.request_id,
    text: made.text,
    tokens_generated: made.tokens,
    finish_reason: made.reason,
  };
}

const answer = (reason: string): any => ({ accepted: !reason, reason });
const proofKnown = (id: string): boolean => PROOFS.some((p) => p.id === id);

export const operations: Record<string, (q: any) => any> = {
  UnaryInference: inferenceOf,
  GetWeights: weights,
  GossipGradient: gradient,
  GetCheckpoint: checkpoint,
  GetCheckpointInfo: checkpointInfo,
  GossipProof: (q) => answer(q.proof_id && q.signature ? "" : "the proof is not signed"),
  GossipTransaction: (q) =>
    answer(q.transaction.length ? "the transaction must be broadcast" : "there is none"),
  GossipStake: (q) => answer(q.node_id && q.amount > 0 && q.signature ? "" : "the stake is not signed"),
  RequestProofValidation: (q) => ({
    valid: proofKnown(q.proof_id),
    reason: proofKnown(q.proof_id) ? "" : "the proof is not known",
  }),
  GossipValidationVote: (q) => answer(proofKnown(q.proof_id) && q.voter ? "" : "the proof is not known"),
  GetShardInfo: () => ({
    node_id: NODE_NAME,
    layers: MY_LAYERS,
    total_layers: TOTAL_LAYERS,
    hidden_dim: HIDDEN,
  }),
  GetSwarmStatus: () => ({ node_id: NODE_NAME, peers: PEERS.length, layers: MY_LAYERS }),
  UpdatePeerCapacity: (q) => ({ success: q.node_id !== "" }),
};
