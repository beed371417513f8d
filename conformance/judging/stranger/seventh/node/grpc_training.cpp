// Weights, checkpoints, gossiped gradients.
#include "grpc.hpp"
#include <cmath>
#include <set>

static int round_now() { return S.round; }

static string state_dict(int version, const vector<int>& layers) {
  json head = {{"format", "nw-state"}, {"version", version}, {"tensors", json::array()}};
  string data;
  for (int l : layers) {
    head["tensors"].push_back({{"name", "layers." + std::to_string(l) + ".weight"}, {"shape", {S.hidden, S.hidden}}, {"offset", data.size()}});
    for (int i = 0; i < S.hidden * S.hidden; i++) { float f = float(mix(l * 7001 + i + version) % 2001) / 4000.f - 0.25f; data.append((char*)&f, 4); }
  }
  string h = head.dump(), o(4, 0);
  std::uint32_t n = h.size();
  memcpy(o.data(), &n, 4);
  return o + h + data;
}
static string model_hash(int version) { return sha256_hex(state_dict(version, S.layers)); }
static const char* phase(int version) { return version < 25 ? "bootstrap" : "early"; }
static int newest() { return round_now(); }
static bool exists(int v) { return v >= newest() - 2 && v <= newest(); }

static Status weights(const node::WeightRequest& q, node::WeightResponse& r) {
  const string& t = q.shard_range();
  vector<int> want;
  if (t.empty() || t.size() > 200 || t.find_first_not_of("0123456789-, ") != string::npos) return Status(StatusCode::INVALID_ARGUMENT, "shard_range must be like 2, 2-4 or 2,4");
  string part;
  for (size_t i = 0; i <= t.size(); i++) {
    if (i < t.size() && t[i] != ',') { if (t[i] != ' ') part += t[i]; continue; }
    int a, b;
    char rest;
    if (sscanf(part.c_str(), "%d-%d%c", &a, &b, &rest) == 2 && part[0] != '-') {}
    else if (part.find('-') == string::npos && sscanf(part.c_str(), "%d%c", &a, &rest) == 1) b = a;
    else return Status(StatusCode::INVALID_ARGUMENT, "shard_range must be like 2, 2-4 or 2,4");
    if (a > b || b > 100000) return Status(StatusCode::INVALID_ARGUMENT, "a range begins with its lowest layer");
    for (int k = a; k <= b; k++) want.push_back(k);
    part.clear();
  }
  std::set<int> have(S.layers.begin(), S.layers.end());
  vector<int> give;
  for (int w : want) if (have.count(w)) give.push_back(w);
  if (give.size() < want.size() && !(fault("weights-partial-range") && give.size())) {
    if (fault("absent-weights-empty")) return Status::OK;
    if (fault("absent-weights-all")) give = S.layers;
    else return Status(StatusCode::NOT_FOUND, "a layer of the range is not on this node");
  }
  if (fault("weights-always-first-layer")) give = {S.layers[0]};
  if (!fault("weights-empty")) r.set_weights_data(state_dict(newest(), give));
  return Status::OK;
}

static Status checkpoint(const node::GetCheckpointRequest& q, node::GetCheckpointResponse& r) {
  int v = newest();
  bool found = true;
  int least = q.min_version();
  if (!q.model_hash().empty() && !fault("checkpoint-hash-ignored")) {
    found = false;
    for (int x = newest(); exists(x); x--) if (model_hash(x) == q.model_hash()) { v = x; found = true; }
  }
  if (v < least && !fault("checkpoint-min-version-ignored")) found = false;
  if (peculiar("no-checkpoints")) found = false;
  string raw = state_dict(v, S.layers);
  if (!found) {
    r.set_success(false);
    if (!fault("checkpoint-failure-without-reason")) r.set_error_message("there is no such checkpoint");
    return Status::OK;
  }
  r.set_success(!fault("checkpoint-success-not-set"));
  r.set_version(fault("checkpoint-version-zero") ? 0 : fault("checkpoint-version-of-request") && least ? least : v);
  r.set_model_hash(fault("checkpoint-hash-of-data") ? sha256_hex(lz4_frame(raw)) : model_hash(v));
  r.set_phase(fault("checkpoint-phase-differs") ? "training" : phase(v));
  r.set_checkpoint_data(fault("checkpoint-empty") ? "" : fault("checkpoint-not-compressed") ? raw : fault("checkpoint-lz4-cut") ? lz4_frame(raw).substr(0, 200) : lz4_frame(raw));
  r.set_total_size(fault("checkpoint-size-zero") ? 0 : fault("checkpoint-size-negative") ? -i64(raw.size()) : raw.size());
  return Status::OK;
}

static Status info(const node::GetCheckpointInfoRequest&, node::GetCheckpointInfoResponse& r) {
  int v = newest();
  r.set_version(fault("info-version-behind") ? v - 1 : v);
  r.set_model_hash(fault("info-hash-short") ? model_hash(v).substr(0, 16) : model_hash(v));
  r.set_phase(fault("info-phase-empty") ? "" : phase(v));
  r.set_params(fault("info-params-zero") ? 0 : fault("info-params-negative") ? -model_parameters() : model_parameters());
  r.set_loss(fault("info-loss-infinite") ? INFINITY : chain_loss());
  return Status::OK;
}

static Status gossip(const node::GossipGradientRequest& q, node::GossipGradientResponse& r) {
  S.grads_submitted++;
  static std::atomic<int> wrong{0};
  auto refuse = [&](const string& why) {
    r.set_accepted(false);
    if (!fault("gossip-refusal-without-reason")) r.set_reason(why);
    r.set_current_round(fault("gossip-refusal-names-sender-round") ? q.round_id() : fault("gossip-refusal-counts-rounds") ? round_now() + ++wrong : fault("gossip-refusal-round-negative") ? -1 : round_now());
    return Status::OK;
  };
  if (peculiar("gossip-refuses-all")) return refuse("this node is not training");
  if (q.node_id().empty() && !fault("gossip-anonymous-accepted")) return refuse("node_id is empty");
  if (q.model_hash() != model_hash(newest()) && !fault("gossip-any-model-accepted")) return refuse("this is another model");
  if (std::abs(i64(q.round_id()) - round_now()) > 1) return refuse("this is another round");
  if (q.batch_size() < 1) return refuse("batch_size must be above 0");
  if (!std::isfinite(q.loss())) return refuse("loss is not finite");
  if (q.layer_gradients().empty()) return refuse("there is no gradient");
  for (auto& e : q.layer_gradients()) {
    string raw;
    if (!unlz4_frame(e.second, raw, 64 << 20) || raw.empty() || raw.size() % 4) return refuse("the gradient of " + e.first + " is no LZ4 frame of float32");
    for (size_t i = 0; i < raw.size(); i += 4) { float f; memcpy(&f, raw.data() + i, 4); if (!std::isfinite(f)) return refuse("the gradient of " + e.first + " is not finite"); }
  }
  S.grads_accepted++;
  r.set_accepted(true);
  r.set_current_round(fault("gossip-acceptance-names-sender-round") ? q.round_id() : fault("gossip-acceptance-without-round") ? 0 : round_now());
  return Status::OK;
}

void add_training() {
  add_operation("GetWeights", operation<node::WeightRequest, node::WeightResponse>(weights));
  add_operation("GetCheckpoint", operation<node::GetCheckpointRequest, node::GetCheckpointResponse>(checkpoint));
  add_operation("GetCheckpointInfo", operation<node::GetCheckpointInfoRequest, node::GetCheckpointInfoResponse>(info));
  add_operation("GossipGradient", operation<node::GossipGradientRequest, node::GossipGradientResponse>(gossip));
}
