// The messages of gRPC, read from protobuf source; a few faults move or change a field.
import protobuf from 'protobufjs';
import { fault } from './switches.js';

let source = `
syntax = "proto3"; package node;
message PipelineForwardRequest { string session_id = 1; string request_id = 2; bytes hidden_states = 3; repeated int64 hidden_shape = 4;
  bytes attention_mask = 5; bytes position_ids = 6; repeated bytes past_key_values = 7; bool use_cache = 8; int32 source_shard = 9;
  int32 target_shard = 10; bytes training_labels = 11; string sender_url = 12; }
message PipelineForwardResponse { string request_id = 1; bool success = 2; string error_message = 3; bytes hidden_states = 4;
  repeated int64 hidden_shape = 5; repeated bytes past_key_values = 6; bool is_final = 7; bytes logits = 8; repeated int64 logits_shape = 9; double loss = 10; }
message PipelineBackwardRequest { string session_id = 1; string request_id = 2; bytes grad_output = 3; repeated int64 grad_shape = 4; int32 target_shard = 5; }
message PipelineBackwardResponse { bool success = 1; string error_message = 2; }
message GossipGradientRequest { string node_id = 1; int32 round_id = 2; string model_hash = 3; double timestamp = 4; int32 batch_size = 5;
  double loss = 6; map<string,bytes> layer_gradients = 7; string signature = 8; int32 ttl = 9; }
message GossipGradientResponse { bool accepted = 1; string reason = 2; int32 current_round = 3; }
message WeightRequest { string shard_range = 1; }
message WeightResponse { bytes weights_data = 1; }
message GetCheckpointRequest { string model_hash = 1; int32 min_version = 2; }
message GetCheckpointResponse { bool success = 1; string error_message = 2; int32 version = 3; string model_hash = 4; string phase = 5;
  bytes checkpoint_data = 6; int64 total_size = 7; }
message GetCheckpointInfoRequest {}
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
message InferenceRequest { string prompt = 1; int32 max_tokens = 2; string session_id = 3; }
message InferenceResponse { string text = 1; int32 tokens = 2; bool done = 3; }
message Note { string id = 1; bytes payload = 2; }
message Verdict { bool accepted = 1; string reason = 2; }
message ShardInfo { repeated int32 layers = 1; int32 total_layers = 2; int32 hidden = 3; int32 vocabulary = 4; string role = 5; }
`;

const change = (id, message, from, to) => {
  if (!fault(id)) return;
  const start = source.indexOf(`message ${message} {`);
  const end = source.indexOf('}', start);
  const changed = source.slice(start, end).replace(from, to);
  source = source.slice(0, start) + changed + source.slice(end);
};
change('forward-target-at-9', 'PipelineForwardRequest', /source_shard = 9; *\s*int32 target_shard = 10/, 'source_shard = 10; int32 target_shard = 9');
change('forward-session-and-request-swapped', 'PipelineForwardRequest', 'session_id = 1; string request_id = 2', 'session_id = 2; string request_id = 1');
change('forward-logits-at-9', 'PipelineForwardResponse', 'logits = 8; repeated int64 logits_shape = 9', 'logits = 9; repeated int64 logits_shape = 8');
change('forward-loss-float', 'PipelineForwardResponse', 'double loss', 'float loss');
change('backward-success-at-2', 'PipelineBackwardResponse', 'success = 1; string error_message = 2', 'success = 2; string error_message = 1');
change('backward-grad-shape-at-3', 'PipelineBackwardRequest', 'grad_output = 3; repeated int64 grad_shape = 4', 'grad_output = 4; repeated int64 grad_shape = 3');
change('gossip-hash-at-4', 'GossipGradientRequest', 'string model_hash = 3; double timestamp = 4', 'string model_hash = 4; double timestamp = 3');
change('gossip-gradients-strings', 'GossipGradientRequest', 'map<string,bytes>', 'map<string,string>');
change('weights-range-at-2', 'WeightRequest', 'shard_range = 1', 'shard_range = 2');
change('checkpoint-size-at-8', 'GetCheckpointResponse', 'total_size = 7', 'total_size = 8');
change('checkpoint-min-version-at-3', 'GetCheckpointRequest', 'min_version = 2', 'min_version = 3');
change('dht-found-at-3', 'DHTFindValueResponse', 'repeated DHTNodeInfo nodes = 3; bool found = 4', 'repeated DHTNodeInfo nodes = 4; bool found = 3');
change('dht-store-value-at-4', 'DHTStoreRequest', 'value = 3', 'value = 4');

export const root = protobuf.parse(source, { keepCase: true }).root;

const BAD = Symbol('unreadable');
export const isBad = (message) => message === BAD;

/** Reading never throws: an unreadable message is refused by the operation. */
export function codec(name) {
  const type = root.lookupType(`node.${name}`);
  return {
    encode: (value) => Buffer.from(type.encode(type.fromObject(value)).finish()),
    decode: (buffer) => {
      try {
        return type.toObject(type.decode(buffer), { longs: Number, defaults: true, arrays: true, objects: true });
      } catch { return BAD; }
    },
  };
}
