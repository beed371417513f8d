// /rpc, /work, the earlier chain, old paths.
#include "chain.hpp"
#include "http.hpp"

static json rpc_block(i64 h) {
  json b = C.blocks[h];
  return {{"block_id", {{"hash", b["hash"]}}}, {"block", {{"header", {{"chain_id", C.id}, {"height", std::to_string(h)}, {"time", b["time"]}, {"last_block_id", {{"hash", b["parent_hash"]}}}}}, {"data", {{"txs", b["transactions"].size()}}}}}};
}

static json rpc_error(int code, const string& text) { return {{"error", {{"code", code}, {"message", text}}}}; }

// A height among the parameters: 0 absent, 1 read, -1 wrong.
static int height_of(const json& p, i64& h) {
  json v;
  if (p.is_object() && p.contains("height")) v = p["height"];
  else if (p.is_array() && p.size()) v = p[0];
  if (v.is_null()) return 0;
  if (v.is_string()) { string t = v; if (t.empty() || t.size() > 9 || t.find_first_not_of("0123456789") != string::npos) return -1; v = atoi(t.c_str()); }
  if (!v.is_number_integer()) return -1;
  h = v;
  return h >= 1 && h <= C.height() ? 1 : -1;
}

static json native_query(const string& path, const string& data) {
  if (path == "/job") {
    auto it = C.jobs.find(data);
    if (it == C.jobs.end()) return {{"code", 1}, {"log", "no such job"}, {"value", nullptr}};
    json v = {{"request_id", it->first}, {"status", it->second.status}, {"price", it->second.price}};
    return {{"code", 0}, {"log", ""}, {"value", base64(v.dump())}};
  }
  if (path == "/jobs" && !fault("query-jobs-missing")) {
    json v = json::array();
    for (auto& e : C.jobs) if (e.second.status == "pending") v.push_back(e.first);
    return {{"code", 0}, {"log", ""}, {"value", base64(v.dump())}};
  }
  return {{"code", 2}, {"log", "unknown path"}, {"value", nullptr}};
}

static json call(const string& method, const json& params) {
  if (method == "status" && !fault("rpc-status-missing"))
    return {{"result", {{"node_info", {{"network", C.id}, {"version", "0.4.0"}}}, {"sync_info", {{"latest_block_height", std::to_string(C.height())}, {"latest_block_hash", C.blocks[C.height()]["hash"]}, {"catching_up", false}}}}}};
  if (method == "block" && !fault("rpc-block-missing")) {
    i64 h = C.height();
    int got = height_of(params, h);
    if (got < 0) return rpc_error(-32602, "height is not that of a block");
    if (fault("rpc-height-ignored")) h = C.height();
    json r = rpc_block(h);
    return {{"result", r}};
  }
  if (method == "validators" && !fault("rpc-validators-missing")) {
    i64 h = C.height();
    if (height_of(params, h) < 0) return rpc_error(-32602, "height is not that of a block");
    json list;
    for (int i = 0; i < 4; i++) list.push_back({{"address", sha256_hex("validator" + std::to_string(i)).substr(0, 40)}, {"voting_power", std::to_string(10 + i)}});
    return {{"result", {{"block_height", std::to_string(h)}, {"validators", list}, {"count", "4"}, {"total", "4"}}}};
  }
  if (method == "abci_query" && !fault("rpc-query-missing")) {
    if (!params.is_object() || !params.contains("path") || !params["path"].is_string()) return rpc_error(-32602, "path is missing");
    string data = params.contains("data") && params["data"].is_string() ? params["data"].get<string>() : "", raw = unhex(data);
    return {{"result", {{"response", native_query(params["path"], raw.size() ? raw : data)}}}};
  }
  if (method == "broadcast_tx_sync" && !fault("rpc-broadcast-missing")) {
    json p = params.is_object() && params.contains("tx") ? params["tx"] : params.is_array() && params.size() ? params[0] : json();
    if (!p.is_string()) return rpc_error(-32602, "tx is missing");
    string raw;
    if (p.get<string>().size() > 60000 || !unbase64(p, raw)) return rpc_error(-32602, "tx is not base64");
    json tx = json::parse(raw, nullptr, false);
    if (!tx.is_object()) return {{"result", {{"code", 3}, {"log", "the transaction cannot be decoded"}, {"hash", sha256_hex("tx" + raw)}}}};
    string id, why = submit(tx, id);
    if (!why.empty()) return {{"result", {{"code", 4}, {"log", why}, {"hash", sha256_hex("tx" + tx.dump())}}}};
    return {{"result", {{"code", 0}, {"log", ""}, {"hash", fault("broadcast-hash-is-request-id") ? id : sha256_hex("tx" + tx.dump())}, {"request_id", id}}}};
  }
  if (fault("rpc-consensus-open") && method == "dump_consensus_state") return {{"result", {{"round_state", {{"height", std::to_string(C.height())}, {"round", 0}}}, {"peers", json::array()}}}};
  if (fault("rpc-net-info-open") && method == "net_info") return {{"result", {{"listening", true}, {"n_peers", "3"}, {"peers", json::array()}}}};
  if (fault("rpc-admin-open") && (method == "unsafe_flush_mempool" || method == "dial_peers" || method == "unsafe_dial_peers")) return {{"result", json::object()}};
  if (fault("rpc-genesis-open") && method == "genesis") return {{"result", {{"genesis", json::parse(C.genesis)}}}};
  if (fault("rpc-commit-open") && method == "broadcast_tx_commit") return {{"result", {{"check_tx", {{"code", 3}}}, {"hash", sha256_hex(params.dump())}}}};
  if (fault("rpc-unknown-is-null")) return {{"result", nullptr}};
  return rpc_error(-32601, "method not found");
}

static void rpc(Call& c) {
  json b = json::parse(c.q.body, nullptr, false);
  if (b.is_discarded()) { send_json(c, peculiar("rpc-errors-400") ? 400 : 200, {{"jsonrpc", "2.0"}, {"id", nullptr}, {"error", {{"code", -32700}, {"message", "parse error"}}}}); return; }
  json id = b.is_object() && b.contains("id") ? b["id"] : json();
  Lock l(S.m);
  tick();
  json r = !b.is_object() || !b.contains("method") || !b["method"].is_string() ? rpc_error(-32600, "invalid request") : call(b["method"], b.contains("params") ? b["params"] : json());
  r["jsonrpc"] = "2.0";
  r["id"] = id;
  send_json(c, r.contains("error") && peculiar("rpc-errors-400") ? 400 : 200, r);
}

// --- workers ----------------------------------------------------------------
static void work(Call& c, bool result) {
  json b = json::parse(c.q.body, nullptr, false);
  if (!b.is_object()) {
    if (fault("work-unsigned-accepted")) { send_json(c, 200, {{"work", nullptr}}); return; }
    send_error(c, 400, "INVALID_REQUEST", "the message is not a JSON object");
    return;
  }
  bool whole = b.contains("signature") && b["signature"].is_string() && b.contains("public_key") && b["public_key"].is_string();
  if (!whole && fault("work-unsigned-accepted")) { send_json(c, 200, {{"work", nullptr}, {"wait_seconds", 5}}); return; }
  if (!whole && fault("work-result-unsigned-accepted") && result) { send_json(c, 200, {{"accepted", true}}); return; }
  if (!whole) { send_error(c, 400, "UNSIGNED", "the message has no public_key and signature"); return; }
  if (b["signature"] != sign(b) && !fault("work-forged-accepted")) { send_error(c, 403, "FORGED", "the signature does not fit"); return; }
  if (result) send_json(c, 200, {{"accepted", false}, {"reason", "nothing was given out to this worker"}});
  else send_json(c, 200, {{"work", nullptr}, {"wait_seconds", 5}});
}

// --- the earlier chain ------------------------------------------------------
static void reference(Call& c) {
  bool get = c.q.method == "GET" || c.q.method == "HEAD";
  static bool deleted = false;
  if (fault("reference-missing")) { send_error(c, 404, "NOT_FOUND", "gone"); return; }
  if (!get) {
    if (fault("reference-delete-works") && c.q.method == "DELETE") { deleted = true; send_json(c, 200, {{"deleted", true}}); return; }
    if (fault("reference-post-accepted") && c.q.method == "POST") { send_json(c, 200, {{"accepted", true}}); return; }
    c.r.set_header("Allow", "GET");
    send_error(c, 405, "READ_ONLY", "the earlier chain can only be read");
    return;
  }
  if (deleted) { send_error(c, 404, "NOT_FOUND", "there is nothing here"); return; }
  auto old = [](i64 h) { return json{{"height", h}, {"hash", sha256_hex("v03 block " + std::to_string(h))}, {"parent_hash", sha256_hex("v03 block " + std::to_string(h - 1))}, {"tx_count", h % 3}}; };
  i64 h = atoll(c.rest.size() > 6 ? c.rest.c_str() + 6 : "0");
  if (fault("reference-shows-present-chain") && (c.rest == "blocks" || c.rest == "network")) {
    Lock l(S.m);
    json list = json::array();
    for (i64 i = C.height(); i > C.height() - 10; i--) list.push_back({{"height", i}, {"hash", C.blocks[i]["hash"]}});
    if (c.rest == "blocks") send_json(c, 200, {{"chain_id", "nwref-3"}, {"blocks", list}});
    else send_json(c, 200, {{"chain_id", C.id}, {"version", "0.3"}, {"height", C.height()}, {"block_hash", C.blocks[C.height()]["hash"]}});
  } else if (c.rest == "network") {
    json n = {{"chain_id", "nwref-3"}, {"version", "0.3"}, {"height", 30}, {"block_hash", old(30)["hash"]}, {"frozen", true}};
    send_json(c, 200, n);
  } else if (c.rest == "blocks") {
    json list = json::array();
    for (i64 i = 30; i >= 11; i--) list.push_back(old(i));
    send_json(c, 200, {{"chain_id", "nwref-3"}, {"blocks", list}});
  } else if (c.rest.rfind("block/", 0) == 0 && h >= 1 && h <= 30) send_json(c, 200, old(h));
  else if (c.rest == "training") send_json(c, 200, {{"chain_id", "nwref-3"}, {"updates", {{{"round", 1}, {"height", 9}, {"loss", 5.25}}, {{"round", 2}, {"height", 21}, {"loss", 5.0}}}}});
  else send_error(c, 404, "NOT_FOUND", "there is nothing here");
}

static void gone(Call& c) {
  if (fault("register-is-404")) { send_error(c, 404, "NOT_FOUND", "there is nothing here"); return; }
  send_error(c, 410, "GONE", "there is no registration any more");
}

static void moved(Call& c) {
  bool login = c.q.path.find("login") != string::npos;
  if (fault("login-is-page") && login) { c.r.status = 200; c.r.set_content("<html><body>log in</body></html>", "text/html"); return; }
  c.r.status = fault("login-is-410") ? 302 : peculiar("permanent-redirects") ? 308 : 302;
  c.r.set_header("Location", fault("login-redirects-to-root") ? "/" : fault("login-redirects-to-signup") && login ? "/signup" : "/join");
}

void add_rpc_routes() {
  add_route(fault("rpc-get-only") ? "GET" : "POST", "/rpc", false, rpc);
  add_route("GET", "/work/status", false, [](Call& c) {
    json j = {{"sponsor", nullptr}, {"stages", {"train", "infer"}}, {"attempts_remaining", 5}};
    send_json(c, 200, j);
  });
  add_route(fault("work-poll-get") ? "GET" : "POST", "/work/poll", false, [](Call& c) { work(c, false); });
  add_route("POST", "/work/result", false, [](Call& c) { work(c, true); });
  add_route("ANY", "/reference/v03/api/*", false, reference);
  for (const char* p : {"/api/register", "/register", "/api/v1/register"}) add_route("ANY", p, false, gone);
  for (const char* p : {"/login", "/signup", "/auth/login", "/auth/signup"}) add_route("ANY", p, false, moved);
  add_route("GET", "/join", false, [](Call& c) { c.r.status = 200; c.r.set_content("<!doctype html><title>Join</title><p>Make a key pair with the command-line tool; there is no registration.</p>", "text/html"); });
}
