// The distributed hash table: known nodes, stored values, and the closest nodes.
import { fault, peculiar, port } from './switches.js';
import { sha, NODE_PUBLIC_KEY, peers } from './state.js';
import { Status } from './pipeline.js';

const K = peculiar('small-k') ? 4 : 20;
const OWN = sha('sha1', Buffer.from(NODE_PUBLIC_KEY, 'hex'));
const known = new Map();
const values = new Map();
const MOST_NODES = 2000;
const MOST_VALUES = 5000;

for (const peer of peers.slice(0, 3)) {
  const id = sha('sha1', `public key of ${peer.id}`);
  known.set(id.toString('hex'), { node_id: id, ip: peer.address.replace(/:\d+$/, ''), port: 8000 });
}

let answers = 0;
function responder() {
  answers += 1;
  const own = { node_id: OWN, ip: '127.0.0.1', port };
  if (peculiar('responder-grpc-port')) own.port = port + 1000;
  if (fault('responder-without-address')) own.ip = '';
  return own;
}

function learn(sender) {
  if (!sender) return;
  const id = Buffer.from(sender.node_id);
  const reachable = sender.ip.trim() && sender.port >= 1 && sender.port <= 65_535;
  if (id.length !== 20 && !(fault('short-ids-learnt') && id.length)) return;
  if (!reachable && !fault('unreachable-senders-listed')) return;
  if (id.equals(OWN)) return;
  let key = id.toString('hex');
  if (fault('moved-node-listed-twice')) key += sender.port;
  if (known.size >= MOST_NODES && !known.has(key)) known.delete(known.keys().next().value);
  known.set(key, { node_id: id, ip: sender.ip, port: sender.port });
}

const distance = (one, other) => {
  const result = Buffer.alloc(20);
  for (let n = 0; n < 20; n += 1) result[n] = (one[n] ?? 0) ^ (other[n] ?? 0);
  return result;
};

function closest(target, forValue = false) {
  const wanted = Buffer.from(target);
  let list = [...known.values()].map((node) => ({ node, far: distance(node.node_id, wanted) }));
  list.sort((x, y) => Buffer.compare(x.far, y.far));
  if (fault('distance-as-difference')) {
    const number = (id) => BigInt(`0x${Buffer.from(id).toString('hex') || '0'}`);
    const away = (id) => { const d = number(id) - number(wanted); return d < 0n ? -d : d; };
    list.sort((x, y) => (away(x.node.node_id) < away(y.node.node_id) ? -1 : 1));
  }
  const nodes = list.slice(0, K).map(({ node }) => ({ ...node }));
  if (peculiar('lists-itself')) nodes.push({ node_id: OWN, ip: '127.0.0.1', port });
  if (fault('listed-ports-above')) nodes.forEach((one) => { one.port += 65_536; });
  return nodes;
}

function checkLength(bytes, what) {
  if (bytes.length === 20) return;
  if (fault('key-length-out-of-range-status')) throw Object.assign(new Status('INTERNAL', 'bad length'), { code: 11 });
  throw new Status('INVALID_ARGUMENT', `${what} must have 20 bytes.`);
}

const nameOf = (key) => {
  const bytes = Buffer.from(key);
  if (fault('keys-by-first-eight-bytes')) return bytes.subarray(0, 8).toString('hex');
  return bytes.toString('hex');
};

export function dhtPing({ sender }) {
  learn(sender);
  return { responder: responder() };
}

export function dhtFindNode({ sender, target_id: target }) {
  learn(sender);
  checkLength(target, 'target_id');
  const answer = { responder: responder(), nodes: closest(target) };
  return answer;
}

export function dhtStore({ sender, key, value }) {
  learn(sender);
  checkLength(key, 'key');
  if (fault('refused-store-stores')) {
    values.set(nameOf(key), value);
    return { responder: responder(), success: false };
  }
  let kept = value;
  if (fault('values-cut-at-255')) kept = value.slice(0, 255);
  if (fault('eight-values-kept') && values.size >= 8) values.delete(values.keys().next().value);
  if (values.size >= MOST_VALUES) values.delete(values.keys().next().value);
  if (!(peculiar('first-value-stays') && values.has(nameOf(key)))) values.set(nameOf(key), kept);
  return { responder: responder(), success: true };
}

export function dhtFindValue({ sender, key }) {
  learn(sender);
  checkLength(key, 'key');
  const found = values.get(nameOf(key));
  if (found !== undefined) {
    return { responder: responder(), value: found, found: true };
  }
  const answer = { responder: responder(), found: false, nodes: closest(key, true) };
  return answer;
}
