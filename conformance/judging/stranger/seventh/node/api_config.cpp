// GET and PATCH /config.
#include "http.hpp"
#include <thread>

struct Key { const char *part, *name; char kind; double low, high; };
static const Key KEYS[] = {{"training", "enabled", 'b', 0, 0}, {"training", "batch_size", 'i', 1, 1024}, {"training", "learning_rate", 'n', 1e-9, 1},
                           {"training", "diloco_steps", 'i', 1, 100000}, {"resources", "max_memory_gb", 'n', 0.5, 1024}, {"resources", "cpu_threads", 'i', 1, 256}};

static void get(Call& c) {
  Lock l(S.m);
  json j = S.config;
  if (fault("grpc-port-plus-1")) j["grpc_port"] = S.port + 1;
  if (fault("config-node-id-other")) j["node_id"] = S.node_id.substr(5);
  static json start = S.config;
  static int reads = 0;
  send_json(c, 200, j);
}

// The value that a key gets, or null where it is refused.
static json accepted(const Key& k, json v) {
  if (k.kind == 'b') return v.is_boolean() ? v : json();
  if (k.kind == 'i' ? !v.is_number_integer() : !v.is_number()) return json();
  double d = v;
  return d >= k.low && d <= k.high ? v : json();
}

static bool can_change(const Key& k) {
  if (peculiar("only-batch-size-changes")) return string(k.name) == "batch_size";
  return true;
}

static void patch(Call& c) {
  if (!read_body(c)) return;
  auto refuse = [&](const string& what) {
    send_error(c, 400, "INVALID_REQUEST", "this cannot be changed: " + what);
  };
  if (fault("config-whole-needed"))
    for (auto& k : KEYS) if (!c.body.contains(k.part) || !c.body[k.part].is_object() || !c.body[k.part].contains(k.name)) { refuse(string(k.part) + "." + k.name + " is missing"); return; }
  json before, flat = json::object();
  if (fault("config-lost-at-once")) { { Lock l(S.m); before = S.config; } std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
  bool dotted = fault("config-dotted-only");
  vector<std::pair<const Key*, json>> todo;
  json updated = json::array();
  int parts = 0;
  for (auto& e : c.body.items()) {
    bool known = false;
    if (e.value().is_object() && !dotted)
      for (auto& f : e.value().items()) {
        known = false;
        for (auto& k : KEYS) if (e.key() == k.part && f.key() == k.name && can_change(k)) {
          known = true;
          json v = accepted(k, f.value());
          if (v.is_null()) {
            if (fault("config-refusal-keeps-earlier-keys")) { Lock l(S.m); for (auto& t : todo) S.config[t.first->part][t.first->name] = t.second; }
            refuse(string(k.part) + "." + k.name);
            return;
          }
          todo.push_back({&k, v});
          updated.push_back(string(k.part) + "." + k.name);
        }
        if (!known) { refuse(e.key() + "." + f.key()); return; }
      }
    else if (dotted || fault("config-dotted-too")) {
      for (auto& k : KEYS) if (e.key() == string(k.part) + "." + k.name) {
        json v = accepted(k, e.value());
        if (v.is_null()) { refuse(e.key()); return; }
        known = true;
        todo.push_back({&k, v});
        updated.push_back(e.key());
      }
      if (!known) { refuse(e.key()); return; }
    } else { refuse(e.key()); return; }
    parts++;
  }
  Lock l(S.m);
  if (fault("config-lost-at-once") && before.size()) S.config = before;
  if (fault("config-part-replaced"))   // the keys beside a changed one fall back to their defaults
    for (auto& t : todo) {
      if (string(t.first->part) == "training") { bool on = S.config["training"]["enabled"]; S.config["training"] = {{"enabled", on}, {"batch_size", 16}, {"learning_rate", 0.001}, {"diloco_steps", 250}}; }
      else S.config["resources"] = {{"max_memory_gb", 8.0}, {"cpu_threads", 4}};
    }
  bool restart = peculiar("restart-for-threads");
  bool needs = false;
  for (auto& t : todo) {
    string name = t.first->name;
    if (fault("config-answer-only")) continue;
    json v = t.second;
    if (fault("config-memory-in-mb") && name == "max_memory_gb") v = v.get<double>() * 1024;
    if (restart && name == "cpu_threads") { needs = true; }
    S.config[t.first->part][name] = v;
  }
  static i64 changed = 0;
  if (todo.size()) changed = now_us();
  if (fault("config-reverts")) {
    json now = S.config;
    std::thread([now] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      Lock l(S.m);
      static json first = {{"batch_size", 32}, {"learning_rate", 0.0005}, {"diloco_steps", 500}};
      for (auto& e : first.items()) S.config["training"][e.key()] = e.value();
    }).detach();
  }
  if (fault("updated-short-names")) for (auto& u : updated) { string t = u; u = t.substr(t.find('.') + 1); }
  json r = {{"success", true}, {"updated", updated}, {"restart_required", needs}};
  send_json(c, 200, r);
}

void add_config_routes() {
  add_route("GET", "/api/v1/config", true, get);
  add_route("PATCH", "/api/v1/config", true, patch);
}
