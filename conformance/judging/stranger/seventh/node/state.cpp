#include "state.hpp"

State S;

i64 transfer_fee() {
  if (peculiar("no-fee")) return 0;
  if (peculiar("high-fee")) return UNIT / 4;
  return UNIT / 100;
}

string State::fresh_id(const string& prefix) {
  Lock l(m);
  return prefix + "-" + sha256_hex(std::to_string(started) + ":" + std::to_string(++serial)).substr(0, 20);
}

void note(Account& a, const string& id, const string& type, i64 amount, json more) {
  Entry e;
  e.id = id; e.type = type; e.amount = amount; e.at = now_us(); e.more = std::move(more);
  a.history.push_back(std::move(e));
}

static void past_history(Account& a, const Account& other, const string& tag, int n, i64 now) {
  for (int i = 0; i < n; i++) {
    Entry e;
    e.at = now - i64(n - i) * 5400 * UNIT - (i * 7919 % 1000) * 1000;
    e.id = "tx-" + sha256_hex(tag + std::to_string(i)).substr(0, 20);
    if (i % 3 != 2) {
      const Proof& p = S.proofs[(i * 5 + 1) % S.proofs.size()];
      e.type = "reward";
      e.amount = p.reward ? p.reward : UNIT / 2;
      e.more = {{"details", {{"proof_id", p.id}, {"role", "validator"}}}};
    } else if (i % 2) {
      e.type = "send";
      e.amount = -(i + 1) * UNIT / 4;
      e.more = {{"to", other.address}, {"fee", 0.01}, {"memo", ""}};
    } else {
      e.type = "receive";
      e.amount = (i + 1) * UNIT / 8;
      e.more = {{"from", other.address}, {"memo", "thanks"}};
    }
    a.history.push_back(e);
  }
}

void build_state(int port) {
  i64 now = now_us();
  S.port = port;
  S.started = now;
  S.public_key = string("\x02", 1) + sha256("key of the node at " + std::to_string(port));
  S.node_id = "node-" + hex(sha1(S.public_key)).substr(0, 16);
  S.layers = {2, 3, 4, 5, 6, 7};
  if (fault("layers-twice")) S.layers = {2, 3, 4, 5, 6, 7, 7};
  auto peer = [&](const char* id, const char* role, int at, vector<int> layers, double ms, int hours) {
    S.peers.push_back({string("node-") + sha256_hex(id).substr(0, 16), "127.0.0.1", role, at, layers, ms, now - i64(hours) * 3600 * UNIT});
  };
  if (!peculiar("no-peers")) {
    peer("north", "driver", 17301, {0, 1, 2}, 11.5, 30);
    peer("east", "worker", 17311, {2, 3, 4}, 4.25, 12);
    peer("south", "worker", 17321, {1, 3, 5}, 27.0, 3);
  }
  for (int i = 0; i < 24; i++) {
    Proof p;
    p.id = "proof-" + sha256_hex("proof" + std::to_string(i)).substr(0, 18);
    p.layer = 2 + i % 6;
    p.at = now - i64(i + 1) * 4000 * UNIT;
    p.verified = i % 5 != 3;
    p.reward = p.verified ? UNIT / 10 * (3 + i % 7) : 0;
    S.proofs.push_back(p);
  }
  auto account = [&](const char* token, const char* seed, i64 money) -> Account& {
    Account a;
    a.key = "02" + sha256_hex(string("public key of ") + seed);
    a.address = "nw1" + hex(sha1(a.key));
    a.available = money * UNIT;
    if (token) S.tokens[token] = a.address;
    return S.accounts[a.address] = a;
  };
  Account& a = account("tok-a", "alpha", 5000);
  Account& b = account("tok-b", "beta", 1500);
  b.staked = 200 * UNIT;
  b.start = now - i64(40) * 86400 * UNIT;
  b.days = 120;
  b.unlock = b.start + i64(120) * 86400 * UNIT;
  b.multiplier = 1.25;
  past_history(a, b, "a", 36, now);
  past_history(b, a, "b", 34, now);
  bool training = !peculiar("training-off");
  S.config = {{"node_id", S.node_id}, {"port", port}, {"grpc_port", port + 1000},
              {"tracker_url", "http://127.0.0.1:17300"},
              {"training", {{"enabled", training}, {"batch_size", 32}, {"learning_rate", 0.0005}, {"diloco_steps", 500}}},
              {"resources", {{"max_memory_gb", 12.5}, {"cpu_threads", 8}}}};
}
