// What a node shows of itself: status, metrics, health, network, peers, layers, proofs, training.
import { fault, peculiar } from './switches.js';
import { started, config, peers, proofs, figures, NODE_ID, HELD, TOTAL_LAYERS, HIDDEN, PARAMETERS, ROUND } from './state.js';
import { accountOf } from './http.js';
import { numberOf } from './wallet.js';

let readings = 0;
export function status() {
  readings += 1;
  const answer = {
    node_id: NODE_ID, version: '1.3.0', uptime_seconds: Math.floor((Date.now() - started) / 1000),
    status: peculiar('draining') ? 'draining' : 'running', role: 'validator',
    layers: [...HELD], peer_count: peers.length,
    training: { enabled: config.training.enabled, epoch: 3, step: 21_400, loss: 2.3125 },
    resources: { gpu_memory_used: 6_442_450_944, gpu_memory_total: 17_179_869_184, cpu_percent: 23.5, ram_used: 3_221_225_472 },
  };
  if (peculiar('no-gpu')) Object.assign(answer.resources, { gpu_memory_used: 0, gpu_memory_total: 0 });
  if (fault('uptime-in-ms')) answer.uptime_seconds = Date.now() - started;
  if (fault('version-missing')) delete answer.version;
  if (fault('status-layers-not-held')) answer.layers = [0, ...HELD];
  if (fault('gpu-used-above-total')) answer.resources.gpu_memory_total = 4_294_967_296;
  if (fault('status-enabled-stale')) answer.training.enabled = true;
  if (fault('ram-used-negative')) answer.resources.ram_used |= 0;
  return answer;
}

const mean = (list) => list.reduce((sum, one) => sum + one, 0) / Math.max(1, list.length);
let backwards = 0;

export function metrics() {
  const now = Date.now();
  const sorted = [...figures.latencies].sort((x, y) => x - y);
  const average = mean(sorted);
  const p99 = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.99))] ?? 0;
  const rewards = proofs.reduce((sum, one) => sum + one.reward, 0);
  const answer = {
    timestamp: new Date(now).toISOString(),
    inference: {
      requests_total: figures.requests,
      requests_per_minute: figures.recent.filter((at) => now - at < 60_000).length,
      avg_latency_ms: Math.round(average * 100) / 100,
      p99_latency_ms: Math.round(Math.max(p99, average) * 100) / 100,
      tokens_generated: figures.tokens,
    },
    training: { steps_total: 21_400, steps_per_hour: 310, gradients_submitted: 940, gradients_accepted: 931 },
    network: {
      bytes_sent: figures.sent, bytes_received: figures.received, active_connections: peers.length + 1, rpc_calls: figures.rpc,
    },
    rewards: { earned_today: 1.5, earned_total: 40 + rewards, pending: 0.375 },
  };
  if (peculiar('metrics-zero-rewards')) answer.rewards = { earned_today: 0, earned_total: 0, pending: 0 };
  if (fault('metrics-timestamp-local')) answer.timestamp = new Date(now + 2 * 3_600_000).toISOString().replace('Z', '+02:00');
  if (fault('metrics-timestamp-hour-ahead')) answer.timestamp = new Date(now + 3_600_000).toISOString();
  if (fault('p99-below-average')) answer.inference.p99_latency_ms = Math.round(average * 50) / 100;
  if (fault('steps-per-hour-fraction')) answer.training.steps_per_hour = 310.25;
  if (fault('rpc-calls-null')) answer.network.rpc_calls = null;
  return answer;
}

export function health() {
  const word = peculiar('health-degraded') ? 'degraded' : 'ok';
  const answer = { healthy: true, checks: { gpu: 'ok', network: 'ok', storage: word, peers: 'ok' } };
  if (fault('health-storage-missing')) delete answer.checks.storage;
  if (fault('health-checks-booleans')) for (const key of Object.keys(answer.checks)) answer.checks[key] = true;
  return answer;
}

export function network() {
  const count = (role) => peers.filter((one) => one.role === role).length;
  const nodes = { total: peers.length + 1, drivers: count('driver'), workers: count('worker'), validators: 1 };
  const answer = {
    nodes,
    architecture: { layers: TOTAL_LAYERS, hidden_dim: HIDDEN, parameters: String(PARAMETERS) },
    capacity: { total_memory_gb: 64, used_memory_gb: 22.5 },
    training: { epoch: 3, global_step: 21_400, loss: 2.3125 },
  };
  if (peculiar('parameters-rounded')) answer.architecture.parameters = '0.8K';
  if (fault('network-parameters-number')) answer.architecture.parameters = PARAMETERS;
  return answer;
}

export function listPeers(request) {
  accountOf(request, '/peers');
  let list = peers.map((one) => ({ ...one }));
  if (fault('peers-with-itself-uncounted')) list.push({ ...list[0], id: NODE_ID, address: `127.0.0.1:${config.port}` });
  const answer = { peers: list, total: fault('peers-with-itself-uncounted') ? list.length - 1 : list.length };
  return answer;
}

export function listLayers(request) {
  accountOf(request, '/layers');
  const indices = peculiar('all-layers-listed') ? [...Array(TOTAL_LAYERS).keys()] : HELD;
  const layers = indices.map((index) => ({ index, type: 'transformer', memory_mb: 384, status: 'active' }));
  const answer = { layers, total_layers: TOTAL_LAYERS, my_layer_count: HELD.length };
  return answer;
}

let lastLimit = 0;
export function listProofs(request) {
  accountOf(request, '/proofs');
  let limit = numberOf(request.query, 'limit', peculiar('short-pages') ? 5 : 50, 100);
  if (fault('proofs-limit-remembered')) { if (request.query.limit) lastLimit = limit; else limit = lastLimit || limit; }
  if (fault('proofs-limit-ignored')) limit = 50;
  let list = proofs.slice(0, limit);
  list = list.map((one) => ({ ...one }));
  const verified = proofs.filter((one) => one.verified);
  const answer = {
    proofs: list,
    stats: {
      total_submitted: proofs.length, total_verified: verified.length,
      total_reward: verified.reduce((sum, one) => sum + one.reward, 0),
    },
  };
  const { stats } = answer;
  if (fault('proofs-verified-all')) stats.total_verified = proofs.length;
  if (fault('proofs-layer-null')) list.forEach((one) => { if (!one.verified) one.layer = null; });
  return answer;
}

export function trainingGlobal() {
  const { enabled, diloco_steps: steps } = config.training;
  const apart = peculiar('diverged') || fault('verify-ignores-divergence');
  const inner = Math.floor(steps * 0.4);
  const answer = {
    global_avg_loss: 2.3125, global_min_loss: 2.125, hash_agreement_rate: apart ? 0.75 : 1,
    total_nodes_training: peers.length + (enabled ? 1 : 0), successful_syncs: 190, failed_syncs: 10, sync_success_rate: 0.95,
    global_steps: 85_600, global_tokens: 350_617_600, data_shards_covered: [0, 1, 2, 5],
    is_converging: !apart, training_verified: !apart, loss_trend: 'improving',
    local: { node_id: NODE_ID, training_rounds: ROUND, current_loss: 2.3125, is_training: enabled },
    diloco: { enabled: true, inner_step_count: inner, inner_steps_total: steps, progress: inner / steps, outer_step_count: ROUND },
  };
  if (peculiar('loss-trend-steady')) answer.loss_trend = 'steady';
  if (fault('hash-agreement-percent')) answer.hash_agreement_rate = 100;
  if (fault('sync-rate-inconsistent')) answer.sync_success_rate = 0.5;
  if (fault('shards-count')) answer.data_shards_covered = 4;
  return answer;
}

export function trainingVerify() {
  const seen = trainingGlobal();
  const working = seen.is_converging || fault('verify-ignores-divergence');
  const answer = { is_working: working, reason: working ? 'The loss falls and all models agree.' : 'The models have different hashes.' };
  if (working) {
    answer.metrics = { loss_trend: seen.loss_trend, hash_agreement: `${seen.hash_agreement_rate * 100}%`, global_loss: seen.global_avg_loss };
  } else answer.action = 'Load the newest checkpoint and start again.';
  if (fault('verify-hash-fraction')) answer.metrics.hash_agreement = '1.0';
  if (fault('verify-trend-other')) answer.metrics.loss_trend = 'stable';
  if (fault('verify-not-working-without-action')) { answer.is_working = false; delete answer.metrics; }
  return answer;
}
