// Everything that the node remembers: accounts, proofs, peers, figures, configuration.
import { createHash } from 'node:crypto';
import { fault, peculiar, port, grpcPort } from './switches.js';
import { ATOMS, dateOf, addDays } from './money.js';

export const started = Date.now();
export const sha = (algorithm, data) => createHash(algorithm).update(data).digest();
export const hex = (text) => sha('sha256', text).toString('hex');

export const NODE_PUBLIC_KEY = '02' + hex('node key');
export const NODE_ID = 'node-' + hex('node key').slice(0, 16);
export const CURRENCY = peculiar('currency-code') ? 'ZED-2' : 'TOY';
export const TOTAL_LAYERS = 8;
export const HELD = [4, 5, 6, 7];
export const HIDDEN = 8;
export const VOCABULARY = 32;
export const ROUND = 42;
export const PARAMETERS = TOTAL_LAYERS * HIDDEN * HIDDEN + HIDDEN * VOCABULARY;

export const config = {
  node_id: NODE_ID,
  port,
  grpc_port: grpcPort,
  tracker_url: 'http://tracker.example:8090',
  training: { enabled: true, batch_size: 16, learning_rate: 0.0005, diloco_steps: 500 },
  resources: { max_memory_gb: 12, cpu_threads: 4 },
};
if (fault('grpc-port-off-by-one')) config.grpc_port = grpcPort + 1;
if (fault('config-node-id-differs')) config.node_id = NODE_ID.replace('node-', '');
if (peculiar('learning-rate-tiny')) config.training.learning_rate = 1e-9;
if (peculiar('max-memory-fraction')) config.resources.max_memory_gb = 11.75;

export const peers = peculiar('no-peers') ? [] : [0, 1, 2].map((n) => ({
  id: 'node-' + hex(`peer ${n}`).slice(0, 16),
  address: `10.20.0.${n + 11}:8000`,
  role: n === 0 ? 'driver' : 'worker',
  layers: [[0, 1], [2, 3], [3, 4]][n],
  latency_ms: 11.5 + 7 * n,
  connected_since: new Date(started - (n + 2) * 3_600_000).toISOString(),
}));
if (peculiar('many-peers')) {
  for (let n = 3; n < 60; n += 1) {
    peers.push({ ...peers[1], id: 'node-' + hex(`peer ${n}`).slice(0, 16), address: `10.20.1.${n}:8000` });
  }
}
if (peculiar('peer-with-ipv6')) peers[0].address = '[fd00::11]:8000';
if (peculiar('peer-by-name')) peers[0].address = 'driver-one.example:8000';

export const proofs = [];
for (let n = 0; n < 26; n += 1) {
  proofs.push({
    id: `proof-${hex(`proof ${n}`).slice(0, 12)}`,
    type: n % 4 === 3 ? 'backward' : 'forward',
    layer: HELD[n % HELD.length],
    timestamp: new Date(started - (n + 1) * 1_900_000).toISOString(),
    verified: n % 5 !== 0,
    reward: n % 5 !== 0 ? 0.25 + (n % 3) * 0.125 : 0,
  });
}
if (peculiar('no-proofs')) proofs.length = 0;

function account(name, available) {
  return {
    address: `toy1${hex(name).slice(0, 32)}`,
    available: available * ATOMS, staked: 0, pending: 0, stake: null, history: [],
  };
}
const a = account('account a', 4000);
const b = account('account b', 1200);
b.staked = 200 * ATOMS;
b.stake = { duration_days: 30, start_date: dateOf(started - 5 * 86_400_000), multiplier: 1.08 };
b.stake.unlock_date = addDays(b.stake.start_date, 30);
if (peculiar('both-staked')) {
  a.staked = 50 * ATOMS;
  a.stake = { ...b.stake };
}

let counter = 0;
export const newId = (kind) => `${kind}-${hex(`${started} ${(counter += 1)}`).slice(0, 20)}`;

function fill(owner, other, length) {
  for (let n = length - 1; n >= 0; n -= 1) {
    const timestamp = new Date(started - (n + 1) * 2_000_000).toISOString();
    const id = `tx-${hex(`${owner.address} ${n}`).slice(0, 20)}`;
    const proof = proofs[n % Math.max(1, proofs.length)];
    if (n % 3 === 1) {
      owner.history.push({ id, type: 'send', amount: -(n + 1) / 4, timestamp, to: other.address, memo: `old ${n}` });
    } else {
      owner.history.push({
        id, type: 'reward', amount: proof?.verified ? proof.reward : 0.25, timestamp,
        details: { proof_id: proof?.id ?? `proof-${hex(`old ${n}`).slice(0, 12)}`, role: 'validator' },
      });
    }
  }
}
fill(a, b, 37);
fill(b, a, 9);
if (peculiar('short-history')) a.history.splice(0, 35);

export const tokens = new Map([['tok-a', a], ['tok-b', b]]);
export const expired = new Set(['tok-x']);
export const accountAt = (address) => [a, b].find((one) => one.address === address);

export const figures = {
  requests: 120, tokens: 7_310, latencies: [38, 41, 44, 47, 52, 55, 61, 64, 70, 83], recent: [],
  rpc: 315, sent: 48_211_904, received: 51_530_112,
};
