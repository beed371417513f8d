// Faults that are a changed field of an answer: route, place, change.
#include "http.hpp"

struct Spoil { const char *id, *route, *place, *op; json arg; };
static const vector<Spoil>& table() {
  static const string V = "GET /api/v1/";
  static const vector<Spoil> t = {
      {"status-version-missing", "GET /api/v1/status", "/version", "drop", {}},
      {"status-uptime-fraction", "GET /api/v1/status", "/uptime_seconds", "half", {}},
      {"status-layers-as-range", "GET /api/v1/status", "/layers", "set", "2-7"},
      {"status-loss-null", "GET /api/v1/status", "/training/loss", "set", nullptr},
      {"metrics-timestamp-number", "GET /api/v1/metrics", "/timestamp", "set", 1760000000},
      {"metrics-latency-renamed", "GET /api/v1/metrics", "/inference/avg_latency_ms", "rename", "average_latency_ms"},
      {"metrics-rewards-missing", "GET /api/v1/metrics", "/rewards", "drop", {}},
      {"health-storage-missing", "GET /api/v1/health", "/checks/storage", "drop", {}},
      {"result-total-tokens-missing", "POST /api/v1/inference", "/usage/total_tokens", "drop", {}},
      {"result-cost-as-number", "POST /api/v1/inference", "/cost", "set", 0.25},
      {"balance-amounts-text", "GET /api/v1/wallet/balance", "/balances/available", "text", {}},
      {"balance-pending-null", "GET /api/v1/wallet/balance", "/balances/pending", "set", nullptr},
      {"send-memo-missing", "POST /api/v1/wallet/send", "/memo", "drop", {}},
      {"history-details-missing", "GET /api/v1/wallet/transactions", "/transactions/*/details", "drop", {}},
      {"history-proof-renamed", "GET /api/v1/wallet/transactions", "/transactions/*/details/proof_id", "rename", "proof"},
      {"history-to-missing", "GET /api/v1/wallet/transactions", "/transactions/*/to", "drop", {}},
      {"stake-unlock-missing", "POST /api/v1/wallet/stake", "/stake/unlock_date", "drop", {}},
      {"peers-layers-as-count", "GET /api/v1/peers", "/peers/*/layers", "set", 3},
      {"peers-latency-text", "GET /api/v1/peers", "/peers/*/latency_ms", "set", "11ms"},
      {"network-parameters-number", "GET /api/v1/network", "/architecture/parameters", "set", 3072},
      {"config-learning-rate-text", "GET /api/v1/config", "/training/learning_rate", "text", {}},
      {"global-shards-as-count", "GET /api/training/global", "/data_shards_covered", "set", 4},
      {"verify-metrics-missing", "GET /api/training/verify", "/metrics", "drop", {}},
      {"proofs-verified-number", "GET /api/v1/proofs", "/proofs/*/verified", "set", 1},
      {"updated-missing", "PATCH /api/v1/config", "/updated", "drop", {}},
      // the whole answer in another wrapping
      {"status-in-envelope", "GET /api/v1/status", "", "wrap-data", {}},
      {"peers-bare-list", "GET /api/v1/peers", "/peers", "bare", {}},
      {"proofs-key-renamed", "GET /api/v1/proofs", "/proofs", "rename", "items"},
  };
  return t;
}

static void change(json& j, const vector<string>& at, size_t i, const Spoil& s) {
  if (at[i] == "*") { for (auto& e : j) if (e.is_object()) change(e, at, i + 1, s); return; }
  if (!j.is_object() || !j.contains(at[i])) return;
  if (i + 1 < at.size()) { change(j[at[i]], at, i + 1, s); return; }
  json& v = j[at[i]];
  string op = s.op;
  if (op == "drop") j.erase(at[i]);
  else if (op == "set") v = s.arg;
  else if (op == "text") v = v.dump();
  else if (op == "half") v = v.get<double>() + 0.5;
  else if (op == "wrap") v = json::array({v});
  else if (op == "append") v = v.get<string>() + s.arg.get<string>();
  else if (op == "rename") { json t = v; j.erase(at[i]); j[s.arg.get<string>()] = t; }
  else if (op == "bare") { json t = v; j = t; }
  else if (op == "flat") { json t = v; j.erase(at[i]); for (auto& e : t.items()) j[e.key()] = e.value(); }
}

void spoil(const string& route, json& j) {
  if (j.is_object() && j.contains("error")) return;
  for (auto& s : table()) {
    if (route != s.route || !fault(s.id)) continue;
    if (string(s.op) == "wrap-data") { j = {{"data", j}, {"ok", true}}; continue; }
    vector<string> at;
    string p = s.place, part;
    for (size_t i = 1; i <= p.size(); i++) if (i == p.size() || p[i] == '/') { at.push_back(part); part.clear(); } else part += p[i];
    change(j, at, 0, s);
  }
}
