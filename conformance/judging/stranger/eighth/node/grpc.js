// The gRPC server: NodeService in package node.
import grpc from '@grpc/grpc-js';
import { fault, peculiar } from './switches.js';
import { codec, isBad } from './messages.js';
import { figures, HELD, TOTAL_LAYERS, HIDDEN, VOCABULARY } from './state.js';
import { Status, pipelineForward, pipelineBackward } from './pipeline.js';
import * as dht from './dht.js';
import * as learning from './learning.js';
import { generate } from './generate.js';

const infer = async ({ prompt, max_tokens: most }) => {
  if (!prompt) throw new Status('INVALID_ARGUMENT', 'There is no prompt.');
  const result = generate({ prompt, max_tokens: Math.min(Math.max(most || 100, 0), 2048), temperature: 0 }, false);
  return { text: result.text, tokens: result.completion, done: true };
};
const verdict = async ({ id }) => ({ accepted: false, reason: id ? 'It cannot be verified.' : 'There is no id.' });
const shard = async () => ({ layers: HELD, total_layers: TOTAL_LAYERS, hidden: HIDDEN, vocabulary: VOCABULARY, role: 'validator' });

const OPERATIONS = {
  UnaryInference: ['InferenceRequest', 'InferenceResponse', infer],
  GetWeights: ['WeightRequest', 'WeightResponse', learning.getWeights],
  GossipGradient: ['GossipGradientRequest', 'GossipGradientResponse', learning.gossipGradient],
  GetCheckpoint: ['GetCheckpointRequest', 'GetCheckpointResponse', learning.getCheckpoint],
  GetCheckpointInfo: ['GetCheckpointInfoRequest', 'GetCheckpointInfoResponse', learning.getCheckpointInfo],
  GossipProof: ['Note', 'Verdict', verdict],
  GossipTransaction: ['Note', 'Verdict', verdict],
  GossipStake: ['Note', 'Verdict', verdict],
  RequestProofValidation: ['Note', 'Verdict', verdict],
  GossipValidationVote: ['Note', 'Verdict', verdict],
  PipelineForward: ['PipelineForwardRequest', 'PipelineForwardResponse', pipelineForward],
  PipelineBackward: ['PipelineBackwardRequest', 'PipelineBackwardResponse', pipelineBackward],
  GetShardInfo: ['Note', 'ShardInfo', shard],
  DHTPing: ['DHTPingRequest', 'DHTPingResponse', async (m) => dht.dhtPing(m)],
  DHTStore: ['DHTStoreRequest', 'DHTStoreResponse', async (m) => dht.dhtStore(m)],
  DHTFindNode: ['DHTFindNodeRequest', 'DHTFindNodeResponse', async (m) => dht.dhtFindNode(m)],
  DHTFindValue: ['DHTFindValueRequest', 'DHTFindValueResponse', async (m) => dht.dhtFindValue(m)],
  SwarmForward: ['Note', 'Verdict', verdict],
  GetSwarmStatus: ['Note', 'ShardInfo', shard],
  UpdatePeerCapacity: ['Note', 'Verdict', verdict],
};
if (fault('no-get-swarm-status')) delete OPERATIONS.GetSwarmStatus;
if (fault('dht-names-camel')) for (const name of ['Ping', 'Store', 'FindNode', 'FindValue']) {
  OPERATIONS[`Dht${name}`] = OPERATIONS[`DHT${name}`];
  delete OPERATIONS[`DHT${name}`];
}

export function serveGrpc(port) {
  const size = fault('grpc-four-mib') ? 4 * 1024 * 1024 : 100 * 1024 * 1024;
  const server = new grpc.Server({
    'grpc.max_receive_message_length': size, 'grpc.max_send_message_length': 100 * 1024 * 1024,
    'grpc.keepalive_permit_without_calls': 1, 'grpc.http2.min_ping_interval_without_data_ms': 1000,
  });
  let service = fault('service-in-package-v1') ? 'node.v1.NodeService' : 'node.NodeService';
  const definition = {};
  const handlers = {};
  for (const [name, [input, output, operation]] of Object.entries(OPERATIONS)) {
    const request = codec(input);
    const response = codec(output);
    definition[name] = {
      path: `/${service}/${name}`, requestStream: false, responseStream: fault('find-node-streams') && name === 'DHTFindNode',
      requestSerialize: request.encode, requestDeserialize: request.decode, responseSerialize: response.encode, responseDeserialize: response.decode,
    };
    const run = async (message) => {
      figures.rpc += 1;
      if (isBad(message)) {
        if (fault('garbage-internal')) throw new Status('INTERNAL', 'decode error');
        throw new Status('INVALID_ARGUMENT', 'The message cannot be read.');
      }
      return operation(message);
    };
    handlers[name] = (call, callback) => {
      run(call.request).then((value) => {
        if (definition[name].responseStream) { call.write(value); call.write(value); call.end(); } else callback(null, value);
      }).catch((error) => {
        let code = error instanceof Status ? error.code : grpc.status.INTERNAL;
        const failed = { code, message: peculiar('other-error-texts') ? 'nein' : error.message };
        if (definition[name].responseStream) call.destroy(Object.assign(new Error(failed.message), failed));
        else callback(failed);
      });
    };
  }
  const request = codec('InferenceRequest');
  const response = codec('InferenceResponse');
  definition.StreamInference = {
    path: `/${service}/StreamInference`, requestStream: true, responseStream: true,
    requestSerialize: request.encode, requestDeserialize: request.decode, responseSerialize: response.encode, responseDeserialize: response.decode,
  };
  handlers.StreamInference = (call) => {
    let working = Promise.resolve();
    let seen = 0;
    const fail = (code, message) => call.destroy(Object.assign(new Error(message), { code }));
    call.on('data', (message) => {
      seen += 1;
      if (fault('stream-takes-one-message') && seen > 1) { fail(grpc.status.UNIMPLEMENTED, 'one message at most'); return; }
      working = working.then(async () => {
        if (isBad(message)) throw new Status('INVALID_ARGUMENT', 'The message cannot be read.');
        call.write(await infer(message));
      }).catch((error) => fail(error.code ?? grpc.status.INTERNAL, error.message));
    });
    call.on('end', () => working.then(() => call.end()));
    call.on('error', () => {});
  };
  if (fault('no-stream-inference')) { delete definition.StreamInference; delete handlers.StreamInference; }
  server.addService(definition, handlers);
  const at = fault('grpc-at-port-plus-one') ? port - 999 : port;
  return new Promise((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${at}`, grpc.ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
}
