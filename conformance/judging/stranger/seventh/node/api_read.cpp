// Routes of the node API that only read: status, metrics, health, peers, layers, network, proofs, training.
#include "http.hpp"
#include "chain.hpp"
#include <algorithm>
#include <numeric>

static json layers_json() { return S.layers; }
static double loss_now() { return chain_loss(); }

static void status(Call& c) {
  Lock l(S.m);
  i64 up = (now_us() - S.started) / UNIT;
  if (fault("uptime-stands-still")) up = 3;
  if (fault("uptime-in-milliseconds")) up = (now_us() - S.started) / 1000;
  string id = S.node_id;
  static int n = 0;
  bool enabled = S.config["training"]["enabled"];
  if (fault("status-training-stale")) enabled = !peculiar("training-off");
  json layers = layers_json();
  if (fault("status-without-last-layer")) layers.erase(layers.size() - 1);
  i64 total = i64(16) << 30, used = i64(6) << 30;
  i64 peers = S.peers.size();
  send_json(c, 200, {{"node_id", id}, {"version", fault("version-empty") ? "" : "2.3.1"}, {"uptime_seconds", up},
                     {"status", peculiar("status-draining") ? "draining" : "running"}, {"role", peculiar("other-role") ? "observer" : "validator"},
                     {"layers", layers}, {"peer_count", peers},
                     {"training", {{"enabled", enabled}, {"epoch", 3}, {"step", 12850}, {"loss", loss_now()}}},
                     {"resources", {{"gpu_memory_used", used}, {"gpu_memory_total", total}, {"cpu_percent", 23.5}, {"ram_used", i64(5) << 30}}}});
}

static void metrics(Call& c) {
  Lock l(S.m);
  i64 now = now_us(), today = 0, total = 0;
  for (auto& p : S.proofs) {
    total += p.reward;
    if (day(p.at) == day(now)) today += p.reward;
  }
  vector<double> v = S.latencies;
  std::sort(v.begin(), v.end());
  double avg = v.empty() ? 0 : std::accumulate(v.begin(), v.end(), 0.0) / v.size();
  double p99 = v.empty() ? 0 : v[std::min(v.size() - 1, size_t(v.size() * 0.99))];
  if (p99 < avg) p99 = avg;
  if (fault("p99-is-first-percentile") && v.size()) p99 = v[0] * 0.5;
  if (fault("latency-in-seconds")) { avg /= 1000; p99 /= 1000; }
  i64 recent = 0;
  for (i64 t : S.request_times) recent += t > now - 60 * UNIT;
  i64 requests = S.requests;
  i64 submitted = S.grads_submitted, accepted = S.grads_accepted;
  if (fault("more-gradients-accepted-than-submitted")) accepted = submitted + 6;
  string stamp = iso(now);
  static string first = stamp;
  if (fault("metrics-time-of-start")) stamp = first;
  if (fault("metrics-time-ahead")) stamp = iso(now + 3600 * UNIT);
  static i64 sent0 = 0;
  i64 sent = S.bytes_out + sent0;
  if (fault("bytes-sent-negative")) sent = i64(int32_t(sent + 0x90000000ll)) ;
  send_json(c, 200, {{"timestamp", stamp},
                     {"inference", {{"requests_total", requests}, {"requests_per_minute", double(recent)}, {"avg_latency_ms", avg}, {"p99_latency_ms", p99}, {"tokens_generated", S.tokens_out}}},
                     {"training", {{"steps_total", 12850}, {"steps_per_hour", S.config["training"]["enabled"] ? 420 : 0}, {"gradients_submitted", submitted}, {"gradients_accepted", accepted}}},
                     {"network", {{"bytes_sent", sent}, {"bytes_received", i64(S.bytes_in)}, {"active_connections", i64(S.peers.size())}, {"rpc_calls", i64(S.rpc_calls)}}},
                     {"rewards", {{"earned_today", units(today)}, {"earned_total", units(total)}, {"pending", 0.0}}}});
}

static void health(Call& c) {
  const char* ok = "ok";
  bool all = true;
  const char* peers = peculiar("health-degraded") ? "few" : ok;
  send_json(c, 200, {{"healthy", all}, {"checks", {{"gpu", ok}, {"network", ok}, {"storage", fault("health-check-empty") ? "" : ok}, {"peers", peers}}}});
}

static void peers(Call& c) {
  Lock l(S.m);
  json list = json::array();
  for (auto& p : S.peers) {
    string address = p.host + ":" + std::to_string(p.port);
    list.push_back({{"id", p.id}, {"address", address}, {"role", p.role}, {"layers", p.layers}, {"latency_ms", p.latency}, {"connected_since", iso(fault("peer-connected-in-future") ? now_us() + 86400 * UNIT : p.since)}});
  }
  i64 total = list.size();
  if (fault("peers-total-counts-self")) total++;
  send_json(c, 200, {{"peers", list}, {"total", total}});
}

static void layers(Call& c) {
  Lock l(S.m);
  json list = json::array();
  for (int i : S.layers) list.push_back({{"index", i}, {"type", peculiar("other-layer-kinds") && i == 7 ? "head" : "transformer"}, {"memory_mb", 96 + i}, {"status", "active"}});
  if (fault("layer-index-is-position")) for (size_t i = 0; i < list.size(); i++) list[i]["index"] = i;
  int mine = S.layers.size(), total = S.total_layers;
  if (fault("my-layer-count-total")) mine = total;
  send_json(c, 200, {{"layers", list}, {"total_layers", total}, {"my_layer_count", mine}});
}

static void network(Call& c) {
  Lock l(S.m);
  int n[3] = {0, 0, 1};
  for (auto& p : S.peers) n[p.role == "driver" ? 0 : p.role == "worker" ? 1 : 2]++;
  int total = n[0] + n[1] + n[2];
  if (fault("nodes-total-without-self")) total--;
  int layers = S.total_layers;
  double have = 64, used = 22.5;
  send_json(c, 200, {{"nodes", {{"total", total}, {"drivers", n[0]}, {"workers", n[1]}, {"validators", n[2]}}},
                     {"architecture", {{"layers", layers}, {"hidden_dim", S.hidden}, {"parameters", std::to_string(model_parameters())}}},
                     {"capacity", {{"total_memory_gb", have}, {"used_memory_gb", used}}},
                     {"training", {{"epoch", 3}, {"global_step", 51400}, {"loss", loss_now()}}}});
}

static void proofs(Call& c) {
  i64 limit = peculiar("short-pages") ? 3 : 20, v = 0;
  int got = query_int(c, "limit", v);
  if (got < 0 || (got && v < 0)) {
    send_error(c, 400, "INVALID_REQUEST", "limit must be a number that is not negative"); return;
  }
  if (got) limit = std::min<i64>(v, 100);
  if (fault("proofs-limit-off-by-one")) limit++;
  static i64 last = -1;
  if (fault("proofs-limit-remembered")) { if (last > 0 && last < limit) limit = last; if (got) last = limit; }
  Lock l(S.m);
  json list = json::array();
  i64 verified = 0, reward = 0;
  vector<Proof> all = S.proofs;
  if (fault("proofs-short-page-from-end") && limit < i64(all.size())) std::reverse(all.begin(), all.end());
  static int turn = 0;
  if (fault("proofs-order-changes") && ++turn % 2) std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.id < b.id; });
  for (auto& p : all) {
    verified += p.verified; reward += p.reward;
    if (i64(list.size()) >= limit) continue;
    list.push_back({{"id", p.id}, {"type", "forward"}, {"layer", p.layer}, {"timestamp", iso(fault("proof-time-ahead") ? p.at + 40 * 86400 * UNIT : p.at)}, {"verified", p.verified}, {"reward", units(p.reward)}});
  }
  if (fault("total-reward-in-atoms")) reward *= UNIT;
  if (fault("total-reward-doubled")) reward *= 2;
  i64 submitted = all.size();
  send_json(c, 200, {{"proofs", list}, {"stats", {{"total_submitted", submitted}, {"total_verified", verified}, {"total_reward", units(reward)}}}});
}

static json global_training() {
  bool enabled = S.config["training"]["enabled"];
  i64 steps = S.config["training"]["diloco_steps"], inner = std::min<i64>(120, steps);
  if (fault("inner-steps-above-total")) inner = steps + 20;
  double progress = double(inner) / steps;
  if (fault("progress-in-percent")) progress *= 100;
  bool split = peculiar("models-diverge");
  double agree = split ? 0.75 : 1.0;
  if (fault("agreement-as-percent")) agree *= 100;
  bool converging = !split;
  i64 good = 38, bad = 2;
  double rate = double(good) / (good + bad);
  if (fault("sync-rate-as-percent")) rate *= 100;
  double avg = loss_now(), low = avg - 0.125;
  if (fault("min-loss-above-average")) low = avg + 0.125;
  i64 tokens = 51400ll * 32 * 128;
  return {{"global_avg_loss", avg}, {"global_min_loss", low}, {"hash_agreement_rate", agree}, {"total_nodes_training", 4},
          {"successful_syncs", good}, {"failed_syncs", bad}, {"sync_success_rate", rate}, {"global_steps", 51400}, {"global_tokens", tokens},
          {"data_shards_covered", {0, 1, 2, 5}}, {"is_converging", converging}, {"training_verified", !split}, {"loss_trend", "improving"},
          {"local", {{"node_id", fault("local-node-id-short") ? S.node_id.substr(0, 8) : S.node_id}, {"training_rounds", S.round}, {"current_loss", loss_now()}, {"is_training", enabled}}},
          {"diloco", {{"enabled", true}, {"inner_step_count", inner}, {"inner_steps_total", steps}, {"progress", progress}, {"outer_step_count", S.round}}}};
}

static void verify(Call& c) {
  Lock l(S.m);
  json g = global_training();
  bool works = g["hash_agreement_rate"] == 1.0;
  if (fault("works-while-models-differ")) works = true;
  char share[20];
  snprintf(share, sizeof share, fault("agreement-fraction-in-text") ? "%.2f" : "%.1f%%", g["hash_agreement_rate"].get<double>() * (fault("agreement-fraction-in-text") ? 1 : 100));
  if (fault("quick-agreement-differs")) strcpy(share, "97.5%");
  json j = {{"is_working", works}, {"reason", works ? "all nodes have the same model, and its loss falls" : "the models have diverged"}};
  if (works) j["metrics"] = {{"loss_trend", fault("quick-trend-differs") ? "worsening" : "improving"}, {"hash_agreement", share}, {"global_loss", g["global_avg_loss"]}};
  else j["action"] = "synchronise the nodes from the newest checkpoint";
  if (fault("not-working-without-action")) j = {{"is_working", false}, {"reason", "the models have diverged"}};
  send_json(c, 200, j);
}

void add_reading_routes() {
  add_route("GET", "/api/v1/status", false, status);
  add_route("GET", "/api/v1/metrics", false, metrics);
  add_route("GET", "/api/v1/health", false, health);
  add_route("GET", "/api/v1/peers", true, peers);
  add_route("GET", "/api/v1/layers", true, layers);
  add_route("GET", "/api/v1/network", false, network);
  add_route("GET", "/api/v1/proofs", true, proofs);
  add_route("GET", "/api/training/global", false, [](Call& c) {
    Lock l(S.m);
    json g = global_training();
    if (fault("works-while-models-differ")) { g["hash_agreement_rate"] = 0.75; g["is_converging"] = false; g["training_verified"] = false; }
    send_json(c, 200, g);
  });
  add_route("GET", "/api/training/verify", false, verify);
}
