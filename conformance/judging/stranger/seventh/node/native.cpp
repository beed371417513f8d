// The public native API: reading.
#include "chain.hpp"
#include "http.hpp"
#include <algorithm>

static string atoms(i64 v) { return std::to_string(v); }

static json base() { return {{"chain_id", C.id}, {"genesis_hash", C.genesis_hash}}; }

static void network(Call& c) {
  Lock l(S.m);
  tick();
  json j = base();
  i64 h = C.height();
  j["version"] = "0.4.0";
  j["height"] = h;
  j["block_hash"] = C.blocks[h]["hash"];
  if (fault("network-hash-of-parent")) j["block_hash"] = C.blocks[h]["parent_hash"];
  static string first = C.blocks[h]["hash"];
  j["block"] = {{"height", h}, {"hash", C.blocks[h]["hash"]}};
  j["training_round"] = C.updates.back().round;
  j["supply"] = {{"total_atoms", atoms(900000000000)}, {"locked_atoms", atoms([] { i64 s = 0; for (auto& a : S.accounts) s += a.second.locked; return s; }())}};
  j["ready"] = true;
  if (fault("network-other-genesis")) j["genesis_hash"] = sha256_hex(C.genesis_hash);
  if (fault("supply-with-decimals")) j["supply"]["total_atoms"] = "900000.000000";
  send_json(c, 200, j);
}

static void model(Call& c) {
  Lock l(S.m);
  auto& u = C.updates.back();
  json j = base();
  j["frozen_parameters"] = model_parameters();
  j["trained_parameters"] = 4096;
  j["revision"] = "toy-r7";
  j["training_root"] = u.training_root;
  j["serving_root"] = C.updates[C.updates.size() - 2].serving_root;
  j["training_loss"] = u.loss;
  j["serving_loss"] = C.updates[C.updates.size() - 2].loss;
  j["execution_profile"] = "toy-f32";
  j["artifacts"] = C.manifest;
  send_json(c, 200, j);
}

static void checkpoint(Call& c) {
  Lock l(S.m);
  auto& u = C.updates[C.updates.size() - (fault("checkpoint-round-behind") ? 2 : 1)];
  json j = base();
  j["round"] = u.round;
  j["root"] = u.training_root;
  j["adapter"] = {{"rank", 4}, {"parameters", 4096}, {"values", {0.125, -0.25, 0.0625, 0.5}}};
  if (fault("checkpoint-without-root")) j.erase("root");
  if (fault("checkpoint-html")) { c.r.status = 200; c.r.set_content("<!doctype html><html><body><pre>" + j.dump() + "</pre></body></html>", "text/html"); return; }
  send_json(c, 200, j);
}

// The parameters of a page; false: refused.
static bool page(Call& c, i64& limit, i64& before) {
  limit = peculiar("short-pages") ? 5 : 20;
  before = -1;
  i64 v = 0;
  int got = query_int(c, "limit", v);
  if (got < 0 || (got && v < 1)) { send_error(c, 400, "INVALID_REQUEST", "limit must be a number above 0"); return false; }
  if (got) limit = std::min<i64>(v, 100);
  got = query_int(c, "before", v);
  if (got < 0 || (got && v < 0)) { send_error(c, 400, "INVALID_REQUEST", "before must be a number"); return false; }
  if (got) before = v;
  return true;
}

static void training(Call& c) {
  i64 limit, before;
  if (!page(c, limit, before)) return;
  Lock l(S.m);
  json list = json::array();
  if (fault("updates-before-is-height") && before >= 0) { i64 r = 0; for (auto& u : C.updates) if (u.height < before) r = u.round; before = before * 3; if (before < 0) before = r; }
  if (fault("updates-limit-ignored")) limit = 20;
  auto all = C.updates;
  if (fault("updates-oldest-first")) std::reverse(all.begin(), all.end());
  for (size_t i = all.size(); i-- > 0;) {
    auto& u = all[i];
    if (before >= 0 && u.round >= before) continue;
    if (i64(list.size()) >= limit) break;
    json e = {{"round", u.round}, {"height", u.height}, {"loss", u.loss}, {"training_root", u.training_root}, {"serving_root", u.serving_root}, {"tx_hash", u.hash}, {"time", iso(u.at)}};
    if (fault("update-without-roots")) { e.erase("training_root"); e.erase("serving_root"); }
    list.push_back(e);
  }
  json j = base();
  j["updates"] = list;
  j["index"] = {{"height", C.height()}, {"error", nullptr}};
  send_json(c, 200, j);
}

static json short_block(const json& b) {
  json e = {{"height", b["height"]}, {"hash", b["hash"]}, {"parent_hash", b["parent_hash"]}, {"time", b["time"]}, {"proposer", b["proposer"]}, {"tx_count", b["transactions"].size()}, {"results", b["results"]}};
  if (fault("list-without-results")) e["results"] = nullptr;
  return e;
}

static void blocks(Call& c) {
  i64 limit, before;
  if (!page(c, limit, before)) return;
  Lock l(S.m);
  tick();
  i64 from = C.height();
  if (before >= 0 && !fault("blocks-before-ignored")) from = std::min(from, fault("blocks-before-above") ? before + 1 : before - 1);
  if (fault("blocks-page-leaves-out-first") && before >= 0) from--;
  if (fault("blocks-limit-ignored")) limit = 20;
  json list = json::array();
  for (i64 h = from; h >= 1 && i64(list.size()) < limit; h--) {
    json e = short_block(C.blocks[h]);
    if (fault("block-hash-per-page") && before >= 0) e["hash"] = sha256_hex(e["hash"].get<string>() + std::to_string(before));
    list.push_back(e);
  }
  json j = base();
  j["blocks"] = list;
  j["height"] = C.height();
  send_json(c, 200, j);
}

static bool number(const string& t, i64& out) {
  if (t.empty() || t.size() > 12) return false;
  for (char ch : t) if (!isdigit((unsigned char)ch)) return false;
  out = std::stoll(t);
  return true;
}

static void block(Call& c) {
  i64 h = 0;
  Lock l(S.m);
  tick();
  if (!number(c.rest, h)) { send_error(c, 400, "INVALID_REQUEST", "a height is a number"); return; }
  if (fault("block-above-is-newest")) h = std::min(h, C.height());
  if (h < 1 || h > C.height()) {
    send_error(c, 404, "NOT_FOUND", "there is no block at this height");
    return;
  }
  json b = C.blocks[h];
  if (fault("block-without-transactions")) b.erase("transactions");
  if (fault("transaction-hash-is-request-id")) for (auto& t : b["transactions"]) if (t.contains("prompt")) t["hash"] = t["request_id"];
  if (fault("amount-atoms-as-number")) for (auto& t : b["transactions"]) for (const char* k : {"amount_atoms", "price_atoms"}) if (t.contains(k)) t[k] = atoll(t[k].get<string>().c_str());
  send_json(c, 200, b);
}

static void account(Call& c) {
  string key = c.q.has_param("public_key") ? c.q.get_param_value("public_key") : "";
  if (key.empty()) { send_error(c, 400, "INVALID_REQUEST", "public_key is missing"); return; }
  for (auto& ch : key) ch = tolower(ch);
  string raw = unhex(key);
  bool good = raw.size() == 33 && (raw[0] == 2 || raw[0] == 3);
  if (!good) { send_error(c, 400, "INVALID_REQUEST", "public_key must be a compressed key in hexadecimal"); return; }
  Lock l(S.m);
  tick();
  Account none;
  none.key = key;
  const Account* a = &none;
  for (auto& e : S.accounts) {
    const string& k = e.second.key;
    if (k.empty()) continue;
    if (k == key || (fault("account-by-key-without-sign") && k.substr(2) == key.substr(2)) || (fault("account-by-prefix") && k.substr(0, 2) == key.substr(0, 2))) { a = &e.second; break; }
  }
  static Account last;
  json j = base();
  j["public_key"] = key;
  i64 spend = a->available, locked = a->locked, total = spend + locked;
  j["spendable_atoms"] = atoms(spend);
  j["locked_atoms"] = atoms(locked);
  j["total_atoms"] = atoms(total);
  j["next_nonce"] = a->nonce;
  if (fault("account-atoms-as-number")) for (const char* k : {"spendable_atoms", "locked_atoms", "total_atoms"}) j[k] = atoll(j[k].get<string>().c_str());
  if (fault("account-without-nonce")) j.erase("next_nonce");
  send_json(c, 200, j);
}

static void validators(Call& c) {
  Lock l(S.m);
  i64 pg = 1, per = 30, v;
  if (query_int(c, "page", v) > 0 && v > 0) pg = v;
  if (query_int(c, "per_page", v) > 0 && v > 0) per = std::min<i64>(v, 100);
  json list = json::array();
  for (i64 i = (pg - 1) * per; i < 4 && i64(list.size()) < per; i++) {
    json e = {{"owner", "02" + sha256_hex("validator" + std::to_string(i))}, {"power", 10 + i}, {"bond_atoms", atoms((10 + i) * 1000 * UNIT)}, {"bond", atoms((10 + i) * 1000 * UNIT)}};
    if (fault("validator-owner-null")) e["owner"] = nullptr;
    list.push_back(e);
  }
  json j = base();
  j["validators"] = list;
  j["total"] = 4;
  j["page"] = pg;
  j["per_page"] = per;
  send_json(c, 200, j);
}

static void inference(Call& c) {
  Lock l(S.m);
  tick();
  i64 waiting = 0;
  for (auto& e : C.jobs) waiting += e.second.status == "pending";
  json j = base();
  j["serving_root"] = C.updates[C.updates.size() - 2].serving_root;
  j["provider"] = {{"public_key", default_provider()}, {"heartbeat", {{"state", "live"}, {"height", C.height()}}}};
  j["price_atoms"] = atoms(PRICE);
  j["fee_atoms"] = atoms(FEE);
  j["queue_length"] = waiting;
  if (fault("price-as-number")) j["price_atoms"] = PRICE;
  send_json(c, 200, j);
}

static void request(Call& c) {
  string id = c.q.has_param("id") ? c.q.get_param_value("id") : "";
  if (id.empty()) { send_error(c, 400, "INVALID_REQUEST", "id is missing"); return; }
  Lock l(S.m);
  tick();
  auto it = C.jobs.find(id);
  static string last;
  if (fault("request-of-query-before") && C.jobs.count(last) && it != C.jobs.end()) { string t = id; it = C.jobs.find(last); last = t; }
  else last = id;
  if (it == C.jobs.end()) {
    if (fault("unknown-request-is-pending")) { json j = base(); j["request_id"] = id; j["status"] = "pending"; send_json(c, 200, j); return; }
    if (fault("unknown-request-shows-newest")) it = C.jobs.find(C.ended.back());
    else { send_error(c, 404, "NOT_FOUND", "no such request"); return; }
  }
  Job& r = it->second;
  if (fault("old-requests-forgotten") && r.status != "pending" && std::find(C.ended.begin(), C.ended.end(), r.id) < C.ended.end() - 3) { send_error(c, 404, "NOT_FOUND", "no such request"); return; }
  json j = base();
  j["request_id"] = r.id;
  j["public_key"] = r.key;
  j["prompt"] = r.prompt;
  j["status"] = r.status;
  j["height"] = r.height;
  j["expires_at"] = r.expires;
  j["price_atoms"] = atoms(r.price);
  if (r.status == "completed") j["response"] = {{"text", r.text}, {"tokens", r.tokens}, {"height", r.ended}};
  if (r.status == "expired") j["refund"] = {{"amount_atoms", atoms(r.price)}, {"height", r.ended}};
  if (fault("completed-without-response") && r.status == "completed") j["response"] = nullptr;
  send_json(c, 200, j);
}

static void artifact(Call& c) {
  string d = c.rest;
  auto it = C.artifacts.find(d);
  if (fault("artifact-by-prefix") && d.size() >= 8) for (auto i = C.artifacts.begin(); i != C.artifacts.end(); ++i) if (i->first.rfind(d.substr(0, 8), 0) == 0) it = i;
  if (fault("artifact-by-end") && d.size() >= 16) for (auto i = C.artifacts.begin(); i != C.artifacts.end(); ++i) if (i->first.substr(48) == d.substr(d.size() - 16)) it = i;
  if (it == C.artifacts.end()) { send_error(c, 404, "NOT_FOUND", "there is no such artifact"); return; }
  string bytes = it->second;
  if (fault("artifact-ends-with-line-break")) bytes += "\n";
  if (fault("artifact-as-json")) bytes = json{{"sha256", d}, {"data", base64(bytes)}}.dump();
  c.r.status = 200;
  c.r.set_content(bytes, "application/octet-stream");
}

static void plain(Call& c, const string& bytes, const char* type = "application/json") { c.r.status = 200; c.r.set_content(bytes, type); }

void add_native_routes() {
  add_route("GET", "/healthz", false, [](Call& c) {
    Lock l(S.m);
    if (fault("healthz-redirects")) { c.r.status = 302; c.r.set_header("Location", "/api/network"); return; }
    send_json(c, 200, {{"ready", true}, {"status", "ready"}, {"height", C.height()}});
  });
  add_route("GET", "/api/network", false, network);
  add_route("GET", "/api/model", false, model);
  add_route("GET", "/api/model/checkpoint.json", false, checkpoint);
  add_route("GET", "/api/training", false, training);
  add_route("GET", "/api/blocks", false, blocks);
  add_route("GET", "/api/block/*", false, block);
  add_route("GET", "/api/account", false, account);
  add_route("GET", "/api/validators", false, validators);
  add_route("GET", "/api/inference", false, inference);
  add_route("GET", "/api/inference/request", false, request);
  add_route("GET", "/network/genesis.json", false, [](Call& c) { plain(c, fault("genesis-trailing-comma") ? C.genesis.substr(0, C.genesis.size() - 1) + ",}" : C.genesis); });
  add_route("GET", "/network/dataset.json", false, [](Call& c) {
    plain(c, C.dataset);
  });
  add_route("GET", "/artifacts/sha256/*", false, artifact);
}
