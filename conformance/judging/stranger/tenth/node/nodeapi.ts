import { bad, odd } from "./faults.ts";
import {
  HIDDEN,
  MY_LAYERS,
  NODE_NAME,
  STARTED,
  TOTAL_LAYERS,
  VERSION,
  DATA_SHARDS,
  iso,
  sha1,
} from "./identity.ts";
import { Refusal, queryInt, route, type Ctx } from "./http.ts";
import { metrics } from "./metrics.ts";
import { PROOFS, listed, shown, verifiedReward } from "./proofs.ts";
import { config } from "./config.ts";
import { trainer } from "./trainer.ts";
import { gossip } from "./gossipstate.ts";

export const PEERS = [
  {
    name: "toy peer 1",
    address: "192.0.2.11:8000",
    role: "worker",
    layers: [2, 3, 4],
    latency: 12.5,
    since: 7_200_000,
  },
  {
    name: "toy peer 2",
    address: "192.0.2.12:8000",
    role: "validator",
    layers: [4, 5],
    latency: 31,
    since: 3_600_000,
  },
].map((p) => ({ ...p, id: sha1(p.name) }));

const uptime = (): number => Math.floor((Date.now() - STARTED) / 1000);

function status() {
  let seconds = uptime();
  return {
    json: {
      node_id: NODE_NAME,
      version: VERSION,
      uptime_seconds: seconds,
      status: "running",
      role: "driver",
      layers: MY_LAYERS,
      peer_count: PEERS.length,
      training: {
        enabled: bad("rel-status-enabled-fixed") ? true : config.training.enabled,
        epoch: trainer.epoch(),
        step: trainer.step(),
        loss: trainer.localLoss(),
      },
      resources: {
        gpu_memory_used: 3_221_225_472,
        gpu_memory_total: 8_589_934_592,
        cpu_percent: 12.5 + (uptime() % 7),
        ram_used: 2_147_483_648,
      },
    },
  };
}

function health() {
  return { json: { healthy: true, checks: { gpu: "ok", network: "ok", storage: "ok", peers: "ok" } } };
}

function metricsNow() {
  return {
    json: metrics({
      steps: trainer.step(),
      perHour: trainer.perHour(),
      submitted: 40 + gossip.submitted,
      accepted: 38 + gossip.accepted,
    }),
  };
}

function peers() {
  const list = PEERS.map((p) => ({
    id: p.id.toString("hex"),
    address: p.address,
    role: p.role,
    layers: p.layers,
    latency_ms: p.latency,
    connected_since: iso(STARTED - (bad("rel-connected-later") ? -p.since : p.since)),
  }));
  return { json: { peers: list, total: list.length } };
}

function layers() {
  if (bad("rte-layers-idle") && !config.training.enabled)
    throw new Refusal(404, "NOT_FOUND", "There is no such route");
  const all = odd("layers-all");
  const list = Array.from({ length: TOTAL_LAYERS }, (_, i) => i).filter((i) => all || MY_LAYERS.includes(i));
  return {
    json: {
      layers: list.map((index) => ({
        index,
        type: "transformer",
        memory_mb: 768,
        status: MY_LAYERS.includes(index) ? "active" : "remote",
      })),
      total_layers: TOTAL_LAYERS,
      my_layer_count: MY_LAYERS.length,
    },
  };
}

function network() {
  return {
    json: {
      nodes: { total: 3, drivers: 1, workers: 1, validators: 1 },
      architecture: { layers: TOTAL_LAYERS, hidden_dim: HIDDEN, parameters: "4608" },
      capacity: { total_memory_gb: 24, used_memory_gb: 9 },
      training: { epoch: trainer.epoch(), global_step: trainer.globalStep(), loss: trainer.globalLoss() },
    },
  };
}

function proofs({ query }: Ctx) {
  const wanted = queryInt(query, "limit", 50);
  const limit = Math.min(wanted, 200);
  let list = listed();
  if (bad("lim-proofs-from-end") && wanted < list.length) list = list.slice(-limit);
  const most = bad("lim-proofs-one-more") ? limit + 1 : limit;
  const page = list.slice(0, most).map(shown);
  const verified = PROOFS.filter((p) => p.verified).length;
  return {
    json: {
      proofs: page,
      stats: {
        total_submitted: PROOFS.length,
        total_verified: verified,
        total_reward: verifiedReward(),
      },
    },
  };
}

function global() {
  const enabled = config.training.enabled;
  const inner = trainer.step() % config.training.diloco_steps;
  return {
    json: {
      global_avg_loss: trainer.globalLoss(),
      global_min_loss: trainer.globalLoss() - 0.05,
      hash_agreement_rate: 1.0,
      total_nodes_training: enabled ? 3 : 2,
      successful_syncs: 47,
      failed_syncs: 3,
      sync_success_rate: 0.94,
      global_steps: trainer.globalStep(),
      global_tokens: trainer.globalStep() * 4096,
      data_shards_covered: DATA_SHARDS,
      is_converging: true,
      training_verified: true,
      loss_trend: "improving",
      local: {
        node_id: NODE_NAME,
        training_rounds: Math.floor(trainer.step() / 50),
        current_loss: trainer.localLoss(),
        is_training: enabled,
      },
      diloco: {
        enabled: true,
        inner_step_count: inner,
        inner_steps_total: config.training.diloco_steps,
        progress: inner / config.training.diloco_steps,
        outer_step_count: Math.floor(trainer.step() / config.training.diloco_steps),
      },
    },
  };
}

function verify() {
  return {
    json: {
      is_working: true,
      reason: "The loss falls, and all nodes have the same model.",
      metrics: { loss_trend: "improving", hash_agreement: "100%", global_loss: trainer.globalLoss() },
    },
  };
}

export function nodeRoutes(): void {
  const v1 = "/api/v1";
  const get = (path: string, run: (c: Ctx) => any, auth = false): void => {
    const method = "GET";
    route({ method, path: v1 + path, label: "GET " + path, run, auth });
  };
  get("/status", status);
  get("/metrics", metricsNow);
  get("/health", health);
  get("/network", network);
  get("/peers", peers, true);
  get("/layers", layers, true);
  get("/proofs", proofs, true);
  const training = bad("rte-training-v1") ? v1 + "/training" : "/api/training";
  route({ method: "GET", path: training + "/global", label: "GET /training/global", run: global });
  route({ method: "GET", path: "/api/training/verify", label: "GET /training/verify", run: verify });
}
