import type { Field, Schema } from "./codec.ts";

// Each line is the name of a message and its fields in the order of their numbers, which begin at 1.
const TEXT = `
PipelineForwardRequest: session_id string, request_id string, hidden_states bytes, hidden_shape *int64,
  attention_mask bytes, position_ids bytes, past_key_values *bytes, use_cache bool, source_shard int32,
  target_shard int32, training_labels bytes, sender_url string
PipelineForwardResponse: request_id string, success bool, error_message string, hidden_states bytes,
  hidden_shape *int64, past_key_values *bytes, is_final bool, logits bytes, logits_shape *int64, loss double
PipelineBackwardRequest: session_id string, request_id string, grad_output bytes, grad_shape *int64,
  target_shard int32
PipelineBackwardResponse: success bool, error_message string
GossipGradientRequest: node_id string, round_id int32, model_hash string, timestamp double, batch_size int32,
  loss double, layer_gradients map, signature string, ttl int32
GossipGradientResponse: accepted bool, reason string, current_round int32
WeightRequest: shard_range string
WeightResponse: weights_data bytes
GetCheckpointRequest: model_hash string, min_version int32
GetCheckpointResponse: success bool, error_message string, version int32, model_hash string, phase string,
  checkpoint_data bytes, total_size int64
GetCheckpointInfoRequest:
GetCheckpointInfoResponse: version int32, model_hash string, phase string, params int64, loss double
DHTNodeInfo: node_id bytes, ip string, port int32
DHTPingRequest: sender DHTNodeInfo
DHTPingResponse: responder DHTNodeInfo
DHTFindNodeRequest: sender DHTNodeInfo, target_id bytes
DHTFindNodeResponse: responder DHTNodeInfo, nodes *DHTNodeInfo
DHTFindValueRequest: sender DHTNodeInfo, key bytes
DHTFindValueResponse: responder DHTNodeInfo, value string, nodes *DHTNodeInfo, found bool
DHTStoreRequest: sender DHTNodeInfo, key bytes, value string
DHTStoreResponse: responder DHTNodeInfo, success bool
InferenceRequest: request_id string, prompt string, max_tokens int32, temperature float
InferenceResponse: request_id string, text string, tokens_generated int32, finish_reason string
GossipProofRequest: node_id string, proof_id string, layer int32, signature string, ttl int32
GossipProofResponse: accepted bool, reason string
GossipTransactionRequest: transaction bytes, ttl int32
GossipTransactionResponse: accepted bool, reason string
GossipStakeRequest: node_id string, amount double, signature string, ttl int32
GossipStakeResponse: accepted bool, reason string
ProofValidationRequest: proof_id string, requester string
ProofValidationResponse: valid bool, reason string
ValidationVoteRequest: proof_id string, voter string, valid bool, signature string
ValidationVoteResponse: accepted bool, reason string
GetShardInfoRequest:
GetShardInfoResponse: node_id string, layers *int32, total_layers int32, hidden_dim int32
SwarmForwardRequest: request_id string, layer int32, hidden_states bytes, hidden_shape *int64
SwarmForwardResponse: request_id string, success bool, error_message string, hidden_states bytes,
  hidden_shape *int64
SwarmStatusRequest:
SwarmStatusResponse: node_id string, peers int32, layers *int32
UpdatePeerCapacityRequest: node_id string, memory_mb int32, layers *int32
UpdatePeerCapacityResponse: success bool
`;

function parse(text: string): Schema {
  const schema: Schema = {};
  for (const part of text.replace(/\n\s+/g, " ").trim().split("\n")) {
    const [type, rest] = part.split(":");
    schema[type] = rest
      .split(",")
      .map((f) => f.trim())
      .filter(Boolean)
      .map((f, i): Field => {
        const [name, kind] = f.split(" ");
        return { name, number: i + 1, kind: kind.replace("*", ""), repeated: kind.startsWith("*") };
      });
  }
  return schema;
}

export const documented = (): Schema => parse(TEXT);

/** The operations with their messages: name, request, response. */
export const OPERATIONS: [string, string, string][] = [
  ["StreamInference", "InferenceRequest", "InferenceResponse"],
  ["UnaryInference", "InferenceRequest", "InferenceResponse"],
  ["GetWeights", "WeightRequest", "WeightResponse"],
  ["GossipGradient", "GossipGradientRequest", "GossipGradientResponse"],
  ["GetCheckpoint", "GetCheckpointRequest", "GetCheckpointResponse"],
  ["GetCheckpointInfo", "GetCheckpointInfoRequest", "GetCheckpointInfoResponse"],
  ["GossipProof", "GossipProofRequest", "GossipProofResponse"],
  ["GossipTransaction", "GossipTransactionRequest", "GossipTransactionResponse"],
  ["GossipStake", "GossipStakeRequest", "GossipStakeResponse"],
  ["RequestProofValidation", "ProofValidationRequest", "ProofValidationResponse"],
  ["GossipValidationVote", "ValidationVoteRequest", "ValidationVoteResponse"],
  ["PipelineForward", "PipelineForwardRequest", "PipelineForwardResponse"],
  ["PipelineBackward", "PipelineBackwardRequest", "PipelineBackwardResponse"],
  ["GetShardInfo", "GetShardInfoRequest", "GetShardInfoResponse"],
  ["DHTPing", "DHTPingRequest", "DHTPingResponse"],
  ["DHTStore", "DHTStoreRequest", "DHTStoreResponse"],
  ["DHTFindNode", "DHTFindNodeRequest", "DHTFindNodeResponse"],
  ["DHTFindValue", "DHTFindValueRequest", "DHTFindValueResponse"],
  ["SwarmForward", "SwarmForwardRequest", "SwarmForwardResponse"],
  ["GetSwarmStatus", "SwarmStatusRequest", "SwarmStatusResponse"],
  ["UpdatePeerCapacity", "UpdatePeerCapacityRequest", "UpdatePeerCapacityResponse"],
];
