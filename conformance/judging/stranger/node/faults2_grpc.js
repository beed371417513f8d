// Single faults, second series: gRPC.
import { add, message } from './faults2_base.js';
const number = add('numbers'), route = add('routes'), effect = add('effects'), relation = add('relations'), limit = add('limits'), refusal = add('refusals');

number('num-fwd-ids', '2.3', 'GR-PIPELINE-FORWARD-REQUEST-02', 'session_id and request_id of a forward pass are swapped', message('PipelineForwardRequest', 'session_id = 1; string request_id = 2', 'session_id = 2; string request_id = 1'));
number('num-fwd-states-mask', '2.3', 'GR-PIPELINE-FORWARD-REQUEST-03', 'hidden_states are read from field 5, attention_mask from field 3', message('PipelineForwardRequest', 'hidden_states = 3; repeated int64 hidden_shape = 4; bytes attention_mask = 5', 'hidden_states = 5; repeated int64 hidden_shape = 4; bytes attention_mask = 3'));
number('num-fwd-sender-url', '2.3', 'GR-PIPELINE-FORWARD-REQUEST-12', 'sender_url is read from field 13, so no gradient goes back', message('PipelineForwardRequest', 'sender_url = 12', 'sender_url = 13'));
number('num-bwd-shape-target', '2.3', 'GR-PIPELINE-BACKWARD-REQUEST-05', 'target_shard of a backward pass is read from field 6', message('PipelineBackwardRequest', 'target_shard = 5', 'target_shard = 6'));
number('num-bwd-grad-shape', '2.3', 'GR-PIPELINE-BACKWARD-REQUEST-04', 'grad_shape is read from field 6', message('PipelineBackwardRequest', 'grad_shape = 4', 'grad_shape = 6'));
number('num-bwd-success', '2.3', 'GR-PIPELINE-BACKWARD-RESPONSE-01', 'success and error_message of a backward answer are swapped', message('PipelineBackwardResponse', 'bool success = 1; string error_message = 2', 'bool success = 2; string error_message = 1'));
number('num-gossip-hash', '2.3', 'GR-GOSSIP-GRADIENT-REQUEST-03,GR-GOSSIP-007', 'model_hash and signature of a gradient are swapped', message('GossipGradientRequest', 'model_hash = 3; double timestamp = 4; int32 batch_size = 5; double loss = 6; map<string, bytes> layer_gradients = 7; string signature = 8', 'model_hash = 8; double timestamp = 4; int32 batch_size = 5; double loss = 6; map<string, bytes> layer_gradients = 7; string signature = 3'));
number('num-gossip-round-zigzag', '2.3', 'GR-GOSSIP-GRADIENT-REQUEST-02', 'round_id is read as a sint32', message('GossipGradientRequest', 'int32 round_id', 'sint32 round_id'));
number('num-gossip-bytes-text', '2.3', 'GR-NUM-002', 'gradients that are not UTF-8 are refused');
number('num-weight-range', '2.3', 'GR-WEIGHT-REQUEST-01,GR-WEIGHT-003', 'shard_range is read from field 2', message('WeightRequest', 'shard_range = 1', 'shard_range = 2'));
number('num-ckpt-hash', '2.3', 'GR-GET-CHECKPOINT-REQUEST-01', 'model_hash of a request for a checkpoint is read from field 3', message('GetCheckpointRequest', 'model_hash = 1', 'model_hash = 3'));
number('num-ckpt-error', '2.3', 'GR-GET-CHECKPOINT-RESPONSE-02', 'error_message of a checkpoint answer is field 8', message('GetCheckpointResponse', 'error_message = 2', 'error_message = 8'));
number('num-value-key', '2.3', 'GR-DHT-FIND-VALUE-REQUEST-02', 'key of a search for a value is read from field 3', message('DHTFindValueRequest', 'key = 2', 'key = 3'));
number('num-store-key', '2.3', 'GR-DHT-STORE-REQUEST-02', 'key of a store is read from field 4', message('DHTStoreRequest', 'key = 2', 'key = 4'));
number('num-value-responder', '2.3', 'GR-DHT-FIND-VALUE-RESPONSE-01', 'responder of DHTFindValue is field 5', message('DHTFindValueResponse', 'responder = 1', 'responder = 5'));
number('num-shape-byte', '2.3', 'GR-PIPELINE-FORWARD-REQUEST-04,PL-FWD-004', 'dimensions of 128 and more are read as their last seven bits');
number('num-port-int16', '4.3', 'DH-013', 'a node with a port above 32767 is listed with a negative port');
number('num-id-text', '8', 'LIM-010,DH-003', 'the ID of a node that has called is passed through a text, so it is longer than 20 bytes where a byte is above 127');
number('num-value-latin1', '4.3', 'DH-021', 'a value is read as Latin-1, so letters outside ASCII come back as two');
number('num-out-bwd-shape', '2.3', 'CL-MSG-002', 'in the gradients that go back grad_shape and target_shard have each other\'s number');
number('num-out-grad-double', '2.3', 'PL-BWD-005', 'the gradients that go back have eight bytes for each value');

route('rte-grpc-typo', '4.3', 'GR-OP-011', 'GossipValidationVote is registered with a letter missing');
route('rte-no-message', '4.3', 'GR-OP-020,GR-OP-023', 'GetSwarmStatus ends with OK and without a message');
route('rte-stream-one-message', '4.3', 'GR-OP-022', 'StreamInference ends after its first message');

effect('eff-dht-key-nul', '4.3', 'DH-022', 'a key ends at its first zero byte');
effect('eff-dht-value-nfc', '4.3', 'DH-021', 'a value is stored in the composed form of Unicode');
effect('eff-dht-expires', '4.3', 'DH-023', 'a value is forgotten after three seconds');
effect('eff-dht-miss-cached', '4.3', 'DH-007', 'the second search for a key without a value says found true, with an empty value');
effect('eff-store-no-sender', '4.3', 'DH-009', 'a store without a sender is answered with success and not made');
effect('eff-bwd-one-session', '4.3', 'PL-BWD-003', 'passes are kept by request_id only, so sessions with the same one mix');
effect('eff-bwd-latest-url', '4.3', 'PL-BWD-002', 'a gradient goes back to the sender_url of the latest forward pass, not of its own');
effect('eff-bwd-twice', '4.3', 'PL-BWD-004', 'a gradient goes back twice');

relation('rel-responder-port', '4.3', 'DH-029', 'the port of the responder is the HTTP port plus 100');
relation('rel-sender-no-ip', '2.3', 'DH-027,DH-018', 'a sender without an address is listed without one');
relation('rel-found-responder-no-ip', '4.3', 'DH-028', 'the responder of a successful search for a value has no address');
relation('rel-find-32bit', '4.3', 'DH-030', 'only the first 32 bits of a distance count');
relation('rel-find-signed', '4.3', 'DH-016', 'the bytes of a distance are compared as signed numbers');
relation('rel-fwd-first-sequence', '2.3', 'PL-FWD-010', 'of a batch only the first sequence is answered');
relation('rel-fwd-session-id', '2.3', 'PL-FWD-003', 'request_id of all passes of a session is that of the first');
relation('rel-gossip-round-echo', '2.3', 'GR-GOSSIP-004', 'current_round of a refusal is the round_id of the gradient');
relation('rel-gossip-next-round', '4.3', 'GR-GOSSIP-005', 'current_round of an accepted gradient is one more than that of a refusal');
relation('rel-weights-cached', '4.3', 'GR-WEIGHT-004', 'the weights that were asked for first are given for every range');
relation('rel-ckpt-refused-data', '7.3', 'GR-CKPT-013', 'a checkpoint answer with success false has the newest checkpoint');
relation('rel-ckpt-echo-version', '2.3', 'GR-CKPT-015', 'version of a checkpoint is the min_version that was asked for');
relation('rel-ckpt-hash-plain', '2.3', 'GR-CKPT-014', 'a checkpoint that is asked for by its hash is not compressed');

limit('lim-last-shard', '7.3', 'GR-CODE-014', 'a pass through the last layer of the node gets NOT_FOUND');
limit('lim-ckpt-own-version', '4.3', 'GR-CKPT-012', 'the checkpoint is refused where min_version is its version');

refusal('ref-bwd-unknown-internal', '7.3', 'GR-CODE-015', 'a backward pass without a forward pass gets INTERNAL');
refusal('ref-gossip-known-node', '2.3', 'GR-GOSSIP-006', 'the model_hash is checked only until a node\'s first accepted gradient');
refusal('ref-weights-clipped', '7.3', 'GR-WEIGHT-002', 'a range that goes beyond the layers of the node is cut to them');
refusal('ref-ckpt-hash-internal', '7.3', 'GR-CODE-015', 'a model_hash that is not hexadecimal gets INTERNAL');
refusal('ref-empty-gossip-code', '7.3', 'GR-CODE-001', 'an empty proof, transaction or stake gets FAILED_PRECONDITION');
