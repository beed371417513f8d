#include "chain.hpp"
#include "generate.hpp"
#include "state.hpp"
#include <cmath>

Chain C;

double chain_loss() { return C.updates.back().loss; }
i64 model_parameters() { return i64(S.total_layers) * S.hidden * S.hidden + i64(S.hidden) * S.vocabulary; }
string default_provider() { return "02" + sha256_hex("provider one"); }

// A toy scheme: it shows that a message is whole, and no more than that.
string sign(json tx) {
  tx.erase("signature");
  string key = tx.contains("public_key") && tx["public_key"].is_string() ? tx["public_key"].get<string>() : "";
  return sha256_hex("nw-signature|" + key + "|" + tx.dump());
}

static string root(const char* what, i64 n) { return sha256_hex(string(what) + std::to_string(n)); }

json make_block(i64 height, const json& transactions, i64 at) {
  string parent = height > 1 ? C.blocks[height - 1]["hash"].get<string>() : C.genesis_hash;
  json results = json::array();
  for (auto& t : transactions) results.push_back({{"hash", t["hash"]}, {"code", 0}, {"log", ""}});
  json b = {{"height", height}, {"parent_hash", parent}, {"time", iso(at)}, {"proposer", "02" + sha256_hex("validator" + std::to_string(height % 4))},
            {"transactions", transactions}, {"results", results}};
  b["hash"] = sha256_hex(b.dump() + C.id);
  return b;
}

static json request_tx(const Job& j, i64 nonce) {
  json t = {{"type", "inference_request"}, {"public_key", j.key}, {"chain_id", C.id}, {"nonce", nonce}, {"provider", j.provider}, {"checkpoint", root("serving", C.updates.empty() ? 0 : C.updates.back().round)},
            {"prompt", j.prompt}, {"max_tokens", j.most}, {"price_atoms", std::to_string(j.price)}, {"expires_at", j.expires}};
  t["signature"] = sign(t);
  t["hash"] = sha256_hex("tx" + t.dump());
  t["request_id"] = j.id;
  return t;
}

static void complete(Job& j, i64 height) {
  auto g = generate(j.prompt, std::min(j.most, 24), 0, {});
  j.text = g.text;
  j.tokens = g.tokens;
  j.status = "completed";
  j.ended = height;
  C.ended.push_back(j.id);
}

void build_chain() {
  i64 now = now_us();
  json data = {{"name", "toy-corpus"}, {"vocabulary", S.vocabulary}, {"sequences", json::array()}};
  for (int i = 0; i < 8; i++) { json s; for (int k = 0; k < 24; k++) s.push_back(mix(i * 100 + k) % S.vocabulary); data["sequences"].push_back(s); }
  C.dataset = data.dump();
  C.dataset_hash = sha256_hex(C.dataset);
  string named = fault("genesis-names-other-dataset") ? sha256_hex(C.dataset + "\n") : C.dataset_hash;
  json genesis = {{"chain_id", C.id}, {"genesis_time", "2025-03-01T00:00:00.000000Z"}, {"dataset_sha256", named}, {"initial_supply_atoms", "900000000000"},
                  {"validators", 4}, {"execution_profile", "toy-f32"}};
  C.genesis = genesis.dump();
  C.genesis_hash = sha256_hex(C.genesis);
  auto artifact = [&](const string& name, const string& bytes) {
    string d = sha256_hex(bytes);
    C.artifacts[d] = bytes;
    C.manifest.push_back({{"name", name}, {"sha256", d}, {"bytes", bytes.size()}});
  };
  string weights;
  for (int i = 0; i < 2048; i++) { float f = float(mix(i) % 2000) / 1000 - 1; weights.append((char*)&f, 4); }
  artifact("base-weights.bin", weights);
  artifact("dataset.json", C.dataset);
  artifact("vocabulary.txt", "river\nstone\nlight\nwind\n");
  const char* prompts[] = {"Once upon a time", "The river bends", "Where do birds sleep?", "Count the stars", "Say \"hello\"", "Zwölf Boxkämpfer", "Snow on the hill", "A quiet street",
                           "Bread and salt", "The last train", "Rain since morning", "A letter home", "The old gate", "Seven lamps"};
  C.blocks.push_back(json());
  int round = 0, made = 0;
  std::map<i64, vector<Job>> ending;
  for (i64 h = 1; h <= 84; h++) {
    i64 at = now - (84 - h) * 60 * UNIT - 20 * UNIT;
    json txs = json::array();
    if (h % 3 == 0 && round < 26) {
      round++;
      Update u{round, h, 4.5 - 0.0625 * round + 0.03125 * (round % 2), root("training", round), root("serving", round), "", at};
      json t = {{"type", "training_update"}, {"round", round}, {"loss", u.loss}, {"training_root", u.training_root}, {"serving_root", u.serving_root}, {"worker", "02" + sha256_hex("worker" + std::to_string(round % 3))}};
      t["signature"] = sign(t);
      t["hash"] = u.hash = sha256_hex("tx" + t.dump());
      txs.push_back(t);
      C.updates.push_back(u);
    }
    if ((h % 6 == 1 && made < 13) || h == 84) {
      Job j;
      j.prompt = prompts[made % 14];
      Account& a = S.accounts[made % 2 ? S.tokens["tok-b"] : S.tokens["tok-a"]];
      j.key = a.key;
      j.id = "req-" + sha256_hex("request" + std::to_string(made)).substr(0, 32);
      j.provider = default_provider();
      j.most = 16 + made;
      j.price = PRICE * j.most + FEE;
      j.height = h;
      j.expires = h == 84 ? 100000 : h + (made == 4 || made == 9 ? 3 : 40);
      j.status = "pending";
      txs.push_back(request_tx(j, a.nonce++));
      if (h < 84) ending[made == 4 || made == 9 ? h + 3 : h + 2].push_back(j);
      else a.locked += j.price;
      C.jobs[j.id] = j;
      made++;
    }
    for (auto& e : ending[h]) {
      Job& j = C.jobs[e.id];
      if (h >= j.expires) { j.status = "expired"; j.ended = h; C.ended.push_back(j.id); }
      else {
        complete(j, h);
        json t = {{"type", "inference_response"}, {"request_id", j.id}, {"provider", j.provider}, {"response", j.text}};
        t["signature"] = sign(t);
        t["hash"] = sha256_hex("tx" + t.dump());
        txs.push_back(t);
      }
    }
    if (h % 5 == 0) {
      json t = {{"type", "transfer"}, {"from", "02" + sha256_hex("holder" + std::to_string(h % 7))}, {"to", "02" + sha256_hex("holder" + std::to_string(h % 6 + 10))}, {"amount_atoms", std::to_string(h * 12500)}, {"nonce", h / 5}};
      t["signature"] = sign(t);
      t["hash"] = sha256_hex("tx" + t.dump());
      txs.push_back(t);
    }
    C.blocks.push_back(make_block(h, txs, at));
  }
}

static std::map<string, i64> due;   // request -> time of its completion

string submit(const json& tx, string& request_id) {
  for (const char* k : {"public_key", "chain_id", "provider", "checkpoint", "prompt", "price_atoms", "signature"})
    if (!tx.contains(k) || !tx[k].is_string()) return string(k) + " is missing";
  for (const char* k : {"nonce", "max_tokens", "expires_at"})
    if (!tx.contains(k) || !tx[k].is_number_integer()) return string(k) + " is missing";
  if (tx["signature"] != sign(tx) && !fault("signature-not-checked")) return "the signature does not fit";
  if (tx["chain_id"] != C.id && !fault("other-chain-accepted")) return "this is another chain";
  Account* a = nullptr;
  for (auto& e : S.accounts) if (e.second.key == tx["public_key"]) a = &e.second;
  if (!a) return "this account has nothing";
  if (tx["nonce"] != a->nonce && !fault("replay-accepted")) return "the nonce is not the next one";
  if (tx["expires_at"].get<i64>() <= C.height() && !fault("past-expiry-accepted")) return "the expiry has passed";
  i64 most = tx["max_tokens"], price = atoll(tx["price_atoms"].get<string>().c_str());
  if (most < 1 || most > 1024 || price != PRICE * most + FEE) return "the price is not the fixed price";
  if (a->available < price) return "too little can be spent";
  Job j;
  j.id = request_id = "req-" + sha256_hex(tx.dump()).substr(0, 32);
  j.key = a->key;
  j.prompt = tx["prompt"];
  j.most = most; j.price = price; j.provider = tx["provider"];
  j.height = C.height() + 1;
  j.expires = tx["expires_at"];
  j.status = "pending";
  if (!fault("nonce-not-advanced")) a->nonce++;
  if (!fault("budget-not-locked")) { a->available -= price; a->locked += price; }
  json t = tx;
  t["hash"] = sha256_hex("tx" + tx.dump());
  t["request_id"] = j.id;
  C.blocks.push_back(make_block(j.height, json::array({t}), now_us()));
  C.jobs[j.id] = j;
  if (j.expires > C.height() + 1) due[j.id] = now_us() + 1500000;
  return "";
}

void tick() {
  i64 now = now_us();
  static i64 last = now;
  if (peculiar("chain-grows") && now - last > 2 * UNIT) { last = now; C.blocks.push_back(make_block(C.height() + 1, json::array(), now)); }
  for (auto it = due.begin(); it != due.end();) {
    if (it->second > now || fault("signed-request-never-completes")) { ++it; continue; }
    Job& j = C.jobs[it->first];
    i64 h = C.height() + 1;
    complete(j, h);
    json t = {{"type", "inference_response"}, {"request_id", j.id}, {"provider", j.provider}, {"response", j.text}};
    t["signature"] = sign(t);
    t["hash"] = sha256_hex("tx" + t.dump());
    C.blocks.push_back(make_block(h, json::array({t}), now));
    for (auto& e : S.accounts) if (e.second.key == j.key) e.second.locked -= j.price;
    it = due.erase(it);
  }
  for (auto& e : C.jobs) {
    Job& j = e.second;
    if (j.status == "pending" && C.height() >= j.expires && !due.count(j.id)) {
      j.status = "expired"; j.ended = C.height(); C.ended.push_back(j.id);
      for (auto& x : S.accounts) if (x.second.key == j.key) { x.second.locked -= j.price; x.second.available += j.price; }
    }
  }
  while (C.ended.size() > 128) { C.jobs.erase(C.ended.front()); C.ended.erase(C.ended.begin()); }
}
