// PipelineForward and PipelineBackward, and the gradients that go back to the previous node.
import grpc from '@grpc/grpc-js';
import { fault, peculiar, sleep } from './switches.js';
import { HELD, HIDDEN, VOCABULARY } from './state.js';
import { codec } from './messages.js';
import { readFloats, toBytes, forward, backward, lossOf } from './tensors.js';

export class Status extends Error {
  constructor(code, message) { super(message); this.code = grpc.status[code]; }
}
const graphs = new Map();
const keyOf = (message) => JSON.stringify([message.session_id, message.request_id]);
const MISSING = () => {
  return new Status('NOT_FOUND', 'This node does not hold the layer.');
};

function checkShape(bytes, shape, last) {
  if (shape.length !== 3 || shape.some((one) => !(one >= 1 && one <= 1e7)) || shape[2] !== last) {
    throw new Status('INVALID_ARGUMENT', `The shape must be [batch, seq, ${last}].`);
  }
  if (bytes.length !== shape[0] * shape[1] * shape[2] * 4) {
    throw new Status('INVALID_ARGUMENT', 'The bytes do not fit the shape.');
  }
}

let urlOfSession = null;
let lastLogits = null;

export async function pipelineForward(message) {
  let target = message.target_shard;
  if (peculiar('slow-answers')) await sleep(150);
  if (fault('negative-shard-from-end') && target < 0) target = HELD.at(-1) + 1 + target;
  if (fault('absent-layer-computed')) target = HELD.includes(target) ? target : HELD[0];
  if (!HELD.includes(target)) {
    throw MISSING();
  }
  const shape = message.hidden_shape;
  checkShape(message.hidden_states, shape, HIDDEN);
  const states = readFloats(message.hidden_states);
  const refuse = (text) => ({
    request_id: message.request_id, success: false, error_message: text,
  });
  if (states.some((one) => !Number.isFinite(one))) return refuse('The hidden states have values that are not finite.');
  const [batch, seq] = shape;
  let labels = null;
  if (message.training_labels.length) {
    const bytes = Buffer.from(message.training_labels);
    if (bytes.length !== batch * seq * 4) return refuse('There must be one label for each position.');
    labels = Array.from({ length: batch * seq }, (_, n) => bytes.readInt32LE(n * 4));
    if (labels.some((one) => one !== -100 && (one < 0 || one >= VOCABULARY))) return refuse('A label is outside the vocabulary.');
  }
  const layers = HELD.filter((one) => one >= target);
  const passed = forward(states, layers);
  const answer = {
    request_id: message.request_id, success: true, is_final: true,
    logits: toBytes(passed.logits), logits_shape: [batch, seq, VOCABULARY],
  };
  if (fault('logits-of-pass-before')) { const mine = answer.logits; if (lastLogits?.length === mine.length) answer.logits = lastLogits; lastLogits = mine; }
  if (peculiar('hidden-states-beside-logits')) Object.assign(answer, { hidden_states: toBytes(passed.hidden), hidden_shape: shape });
  if (fault('logits-one-sequence')) { answer.logits = answer.logits.subarray(0, seq * VOCABULARY * 4); answer.logits_shape = [1, seq, VOCABULARY]; }
  if (fault('logits-shape-missing')) delete answer.logits_shape;
  if (fault('logits-half-precision')) answer.logits = Buffer.from(answer.logits.subarray(0, answer.logits.length / 2));
  if (fault('request-id-cut')) answer.request_id = message.request_id.slice(0, 36);
  if (fault('request-id-missing')) delete answer.request_id;
  if (fault('sender-url-of-first')) urlOfSession ??= message.sender_url;
  const url = fault('sender-url-of-first') ? urlOfSession : message.sender_url;
  const graph = { trace: passed.trace, shape: [...shape], url, session_id: message.session_id, request_id: message.request_id, source: message.source_shard };
  if (labels) {
    const { loss, grad } = lossOf(passed.logits, labels);
    if (!fault('training-without-loss')) answer.loss = loss;
    sendBack(graph, backward(passed.trace, grad));
  } else {
    graphs.set(keyOf(message), graph);
    while (graphs.size > (fault('one-graph-kept') ? 1 : 256)) graphs.delete(graphs.keys().next().value);
  }
  return answer;
}

export async function pipelineBackward(message) {
  if (peculiar('slow-answers')) await sleep(150);
  if (!HELD.includes(message.target_shard)) {
    throw MISSING();
  }
  const key = keyOf(message);
  const graph = graphs.get(key);
  const refuse = (text) => {
    if (fault('backward-refusal-forgets')) graphs.delete(key);
    return { success: false, error_message: fault('backward-refusal-without-reason') ? '' : text };
  };
  if (!graph) return refuse('No graph was kept for such a pass.');
  const grad = message.grad_output;
  const [batch, seq] = graph.shape;
  const fits = message.grad_shape.join() === [batch, seq, VOCABULARY].join() && grad.length === batch * seq * VOCABULARY * 4;
  if (!fits) return refuse('The gradient does not have the shape of the logits.');
  const floats = readFloats(grad);
  if (floats.some((one) => !Number.isFinite(one))) return refuse('The gradient is not finite.');
  graphs.delete(key);
  sendBack(graph, backward(graph.trace, floats));
  return { success: true };
}

const request = codec('PipelineBackwardRequest');
const response = codec('PipelineBackwardResponse');

/** Sends the gradients of a pass to where the pass came from; up to three attempts. */
async function sendBack(graph, values) {
  const found = /^(?:\w+:\/\/)?(\[[^\]]+\]|[^/:]+):(\d{1,5})\/?$/.exec(graph.url ?? '');
  if (!found) return;
  const at = Number(found[2]) + (fault('gradients-to-http-port') ? 0 : 1000);
  if (at > 65_535) return;
  let bytes = toBytes(values);
  const message = {
    session_id: graph.session_id, request_id: graph.request_id,
    grad_output: bytes, grad_shape: graph.shape, target_shard: graph.source,
  };
  const client = new grpc.Client(`${found[1]}:${at}`, grpc.credentials.createInsecure(), {
    'grpc.max_receive_message_length': 100 * 1024 * 1024, 'grpc.max_send_message_length': 100 * 1024 * 1024,
    'grpc.keepalive_time_ms': 30_000, 'grpc.keepalive_timeout_ms': 10_000, 'grpc.keepalive_permit_without_calls': 1, 'grpc.enable_retries': 0,
  });
  const call = () => new Promise((resolve) => {
    const options = fault('gradients-without-deadline') ? {} : { deadline: Date.now() + 5000 };
    client.makeUnaryRequest('/node.NodeService/PipelineBackward', request.encode, response.decode, message, new grpc.Metadata(), options, (error) => resolve(error));
  });
  const attempts = fault('gradients-ten-attempts') ? 10 : 3;
  for (let n = 0; n < attempts; n += 1) {
    const error = await call();
    if (!error) {
      if (fault('gradients-sent-twice') && n === 0) continue;
      break;
    }
    const again = ['UNAVAILABLE', 'RESOURCE_EXHAUSTED', 'INTERNAL', 'DEADLINE_EXCEEDED'].some((name) => grpc.status[name] === error.code);
    if (!again && !(fault('gradients-retried-not-found') && error.code === grpc.status.NOT_FOUND)) break;
    if (!fault('gradients-no-pause')) await sleep(Math.min(2000, 200 * 2 ** n));
  }
  client.close();
}
