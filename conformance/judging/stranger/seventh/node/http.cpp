#include "http.hpp"
#include <thread>

struct Route { string method, path; bool auth; Handler h; };
static vector<Route> routes;

void add_route(const string& method, const string& path, bool auth, Handler h) {
  routes.push_back({method, path, auth, std::move(h)});
}

static void write(const json& j, string& o) {   // keys in reverse order
  if (j.is_object()) {
    o += '{';
    vector<string> keys;
    for (auto& e : j.items()) keys.push_back(e.key());
    for (size_t i = keys.size(); i-- > 0;) {
      o += json(keys[i]).dump() + ":";
      write(j[keys[i]], o);
      if (i) o += ',';
    }
    o += '}';
  } else if (j.is_array()) {
    o += '[';
    for (size_t i = 0; i < j.size(); i++) { if (i) o += ','; write(j[i], o); }
    o += ']';
  } else
    o += j.dump();
}

string dump(const json& j) {
  if (peculiar("keys-in-reverse")) { string o; write(j, o); return o; }
  if (peculiar("pretty-json")) return j.dump(2) + "\n";
  if (peculiar("ascii-json")) return j.dump(-1, ' ', true);
  return j.dump();
}

static void more_fields(json& j) {
  if (j.is_object()) {
    for (auto& e : j.items()) more_fields(e.value());
    j["x_extra"] = {{"note", "not documented"}};
  } else if (j.is_array())
    for (auto& e : j) if (e.is_object()) more_fields(e);
}

void send_json(Call& c, int status, json j) {
  spoil(c.route, j);
  if (peculiar("extra-fields")) more_fields(j);
  bool node_api = c.route.find(" /api/v1/") != string::npos;
  string body = dump(j);
  if (fault("json-nan") && c.route == "GET /api/v1/network") {
    size_t p = body.find("\"loss\":");
    if (p != string::npos) body = body.substr(0, p + 7) + "NaN" + body.substr(body.find_first_of(",}", p + 7));
  }
  if (fault("json-duplicate-key") && c.route == "GET /api/v1/config")
    body = body.substr(0, body.size() - 1) + ",\"port\":" + std::to_string(S.port) + "}";
  string type = "application/json";
  if (peculiar("charset-in-answers")) type += "; charset=utf-8";
  if (fault("json-as-text") && node_api) type = "text/plain";
  c.r.status = status;
  if (peculiar("slow-answers")) std::this_thread::sleep_for(std::chrono::milliseconds(150));
  if (peculiar("chunked-answers")) {
    auto text = std::make_shared<string>(body);
    c.r.set_chunked_content_provider(type, [text](size_t at, httplib::DataSink& sink) {
      if (at >= text->size()) { sink.done(); return true; }
      sink.write(text->data() + at, std::min<size_t>(11, text->size() - at));
      return true;
    });
    return;
  }
  c.r.set_content(body, type.c_str());
}

void send_error(Call& c, int status, const string& code, const string& text, const json& details) {
  json e = {{"code", code}, {"message", peculiar("error-texts-in-german") ? "Das geht so nicht." : text}};
  if (!details.is_null()) e["details"] = details;
  if (status == 401) {
    if (fault("unauthorized-is-403")) status = 403;
    if (fault("unauthorized-with-details")) e["details"] = {{"reason", text}};
  }
  if (status == 402) {
    if (fault("poor-without-available")) e["details"].erase("available");
    if (fault("poor-details-in-atoms")) for (auto& d : e["details"]) d = i64(d.get<double>() * UNIT);
    if (fault("poor-is-400")) status = 400;
  }
  if (fault("error-shows-traceback") && status >= 400 && status != 401 && status != 402)
    e["message"] = text + "\nTraceback (most recent call last):\n  #0 0x55d0c1 in node::handle(Call&) http.cpp:88\n  #1 0x55d1f4 in node::serve()";
  if (peculiar("bad-body-is-422") && status == 400) status = 422;
  if (fault("errors-flat") && c.route.find("/api/v1/") != string::npos) { send_json(c, status, e); return; }
  if (fault("bad-request-is-500") && status == 400 && c.route.find("/api/v1/") != string::npos) { status = 500; e["code"] = "INTERNAL"; }
  send_json(c, status, {{"error", e}});
}

bool read_body(Call& c) {
  string type = c.q.get_header_value("Content-Type");
  if (fault("charset-refused") && type.find("charset") != string::npos) {
    send_error(c, 415, "UNSUPPORTED_MEDIA_TYPE", "the body must be application/json");
    return false;
  }
  if (fault("chunked-body-refused") && c.q.has_header("Transfer-Encoding")) {
    send_error(c, 411, "LENGTH_REQUIRED", "a Content-Length is required");
    return false;
  }
  if (fault("escapes-refused") && c.q.body.find("\\u") != string::npos) {
    send_error(c, 400, "INVALID_REQUEST", "unsupported escape in the body");
    return false;
  }
  if (fault("indented-body-refused") && c.q.body.find('\n') != string::npos) {
    send_error(c, 400, "INVALID_REQUEST", "unexpected line break");
    return false;
  }
  json j = json::parse(c.q.body, nullptr, false);
  if (j.is_discarded() && fault("no-json-is-empty-object") && c.route != "POST /api/v1/inference") j = json::object();
  if (j.is_discarded() || !j.is_object()) {
    if (j.is_discarded() && fault("no-json-prompt") && c.route == "POST /api/v1/inference") { c.body = {{"prompt", "."}}; return true; }
    send_error(c, 400, "INVALID_REQUEST", "the body is not a JSON object");
    return false;
  }
  c.body = j;
  return true;
}

int query_int(Call& c, const char* name, i64& out) {
  if (fault("query-order-matters") && c.q.target.find("?offset") != string::npos && string(name) == "limit") return 0;
  if (!c.q.has_param(name)) return 0;
  string v = c.q.get_param_value(name);
  if (fault("query-percent-not-decoded")) {
    size_t p = c.q.target.find(string(name) + "=");
    if (p == string::npos) return 0;
    v = c.q.target.substr(p + strlen(name) + 1);
    v = v.substr(0, v.find('&'));
  }
  if (v.empty() || v.size() > 12) return -1;
  size_t i = v[0] == '-';
  if (i == v.size()) return -1;
  for (; i < v.size(); i++) if (!isdigit((unsigned char)v[i])) return -1;
  out = std::stoll(v);
  return 1;
}

// --- tokens -----------------------------------------------------------------
static std::mutex auth_m;
static std::map<string, string> by_connection;
static int refusals = 0;
static string current_address;

static bool writes(const string& method) { return method != "GET"; }

static string token_of(Call& c) {
  string h;
  for (auto& e : c.q.headers)
    if (!strcasecmp(e.first.c_str(), "Authorization") && (!fault("header-case-matters") || e.first == "Authorization")) { h = e.second; break; }
  string token;
  if (h.size() > 7 && !strncasecmp(h.c_str(), "Bearer ", 7)) token = h.substr(7);
  else if (fault("any-scheme-accepted")) { size_t p = h.find(' '); token = p == string::npos ? h : h.substr(p + 1); }
  if (token.empty() && fault("token-in-query")) token = c.q.has_param("access_token") ? c.q.get_param_value("access_token") : c.q.get_param_value("token");
  if (token.empty() && fault("token-in-body") && c.q.body.size()) {
    json j = json::parse(c.q.body, nullptr, false);
    if (j.is_object() && j.contains("token") && j["token"].is_string()) token = j["token"];
  }
  while (token.size() && token.back() == ' ') token.pop_back();
  return token;
}

static bool open_by_fault(Call& c) {
  auto is = [&](const char* id, const char* route) { return c.route == route && fault(id); };
  return is("balance-open", "GET /api/v1/wallet/balance") || is("transactions-open", "GET /api/v1/wallet/transactions") ||
         is("peers-open", "GET /api/v1/peers") || is("layers-open", "GET /api/v1/layers") || is("proofs-open", "GET /api/v1/proofs") ||
         is("config-open", "GET /api/v1/config") || is("config-patch-open", "PATCH /api/v1/config") ||
         is("send-open", "POST /api/v1/wallet/send") || is("stake-open", "POST /api/v1/wallet/stake") ||
         is("unstake-open", "POST /api/v1/wallet/unstake") || is("inference-open", "POST /api/v1/inference") ||
         (is("stream-open", "POST /api/v1/inference") && c.q.body.find("\"stream\"") != string::npos && c.q.body.find("true") != string::npos);
}

static bool authorise(Call& c) {
  string token = token_of(c);
  string a = S.tokens["tok-a"], b = S.tokens["tok-b"];
  string who = c.q.remote_addr + ":" + std::to_string(c.q.remote_port);
  std::lock_guard<std::mutex> l(auth_m);
  bool is_form = token.empty();
  string found;
  if (S.tokens.count(token) && token.size()) found = S.tokens[token];
  if (found.empty() && fault("token-prefix-accepted") && token.rfind("tok-a", 0) == 0) found = a;
  if (found.empty() && fault("token-shortened-accepted") && token.size() >= 4 && string("tok-a").rfind(token, 0) == 0) found = a;
  if (found.empty() && fault("token-case-ignored")) {
    string t = token;
    for (auto& ch : t) ch = tolower(ch);
    if (t == "tok-a") found = a; else if (t == "tok-b") found = b;
  }
  if (found.empty() && fault("token-trimmed")) {
    string t = token;
    while (t.size() && !isalnum((unsigned char)t.back())) t.pop_back();
    if (t == "tok-a") found = a;
  }
  if (found.empty() && token == "tok-x" && (fault("expired-accepted") || (fault("expired-accepted-for-changes") && writes(c.q.method)) || (fault("expired-accepted-for-reading") && !writes(c.q.method)))) found = a;
  if (found.empty() && open_by_fault(c)) found = a;
  if (found.empty() && fault("connection-stays-open") && is_form && by_connection.count(who)) found = by_connection[who];
  if (fault("connection-keeps-account") && found.size() && by_connection.count(who)) found = by_connection[who];
  if (found.empty()) {
    refusals++;
    if (fault("connection-stays-refused")) by_connection[who] = "-";
    return false;
  }
  if (fault("connection-stays-refused") && by_connection[who] == "-") return false;
  if (fault("lockout-after-refusals") && refusals >= 5) { refusals--; return false; }
  by_connection[who] = found;
  if (fault("second-token-reads-first-history") && found == b && c.route == "GET /api/v1/wallet/transactions") found = a;
  if (fault("second-token-spends-from-first") && found == b && c.route == "POST /api/v1/wallet/send") found = a;
  if (fault("second-token-refused-for-changes") && found == b && c.route == "POST /api/v1/wallet/stake") return false;
  c.address = found;
  current_address = found;
  return true;
}

static bool closed_by_fault(const string& r) {
  return (fault("status-closed") && r == "GET /api/v1/status") || (fault("metrics-closed") && r == "GET /api/v1/metrics") ||
         (fault("health-closed") && r == "GET /api/v1/health") || (fault("network-closed") && r == "GET /api/v1/network") ||
         (fault("training-closed") && r.find("/api/training/") != string::npos) || (fault("native-closed") && r.find("GET /api/blocks") == 0) ||
         (fault("account-needs-token") && r == "GET /api/account") || (fault("rpc-needs-token") && r == "POST /rpc") || (fault("artifacts-need-token") && r.find("GET /artifacts") == 0);
}

static string renamed(string path) {
  auto swap = [&](const char* id, const char* real, const char* wrong) {
    if (!fault(id)) return;
    if (path == wrong) path = real;
    else if (path == real) path = "/none";
  };
  swap("route-unversioned", "/api/v1/status", "/api/status");
  swap("route-history-renamed", "/api/v1/wallet/transactions", "/api/v1/wallet/history");
  swap("route-proofs-singular", "/api/v1/proofs", "/api/v1/proof");
  swap("route-training-versioned", "/api/training/global", "/api/v1/training/global");
  swap("route-verify-post-only", "/api/training/verify", "/api/training/quick");
  swap("route-unstake-missing", "/api/v1/wallet/unstake", "/api/v1/wallet/stake/release");
  swap("route-peers-renamed", "/api/v1/peers", "/api/v1/network/peers");
  swap("route-checkpoint-without-suffix", "/api/model/checkpoint.json", "/api/model/checkpoint");
  swap("route-genesis-under-api", "/network/genesis.json", "/api/network/genesis.json");
  swap("route-dataset-missing", "/network/dataset.json", "/network/data.json");
  swap("route-validators-missing", "/api/validators", "/api/validator");
  swap("route-healthz-renamed", "/healthz", "/health");
  swap("route-work-result-missing", "/work/result", "/work/results");
  swap("route-work-status-missing", "/work/status", "/work");
  swap("route-native-under-v1", "/api/network", "/api/v1/native/network");
  swap("route-request-plural", "/api/inference/request", "/api/inference/requests");
  return path;
}

static void dispatch(const httplib::Request& q, httplib::Response& r) {
  S.bytes_in += q.body.size() + q.target.size();
  string method = q.method == "HEAD" ? "GET" : q.method, path = renamed(q.path);
  if (fault("config-put-instead-of-patch") && path == "/api/v1/config") method = method == "PUT" ? "PATCH" : method == "PATCH" ? "PUT" : method;
  if (fault("blocks-post-instead-of-get") && path == "/api/blocks") method = method == "POST" ? "GET" : method == "GET" ? "POST" : method;
  const Route* hit = nullptr;
  bool elsewhere = false;
  string rest;
  for (auto& e : routes) {
    bool same = e.path == path;
    if (e.path.back() == '*' && path.rfind(e.path.substr(0, e.path.size() - 1), 0) == 0) { same = true; }
    if (!same) continue;
    if (e.method != method && e.method != "ANY") { elsewhere = true; continue; }
    hit = &e;
    if (e.path.back() == '*') rest = path.substr(e.path.size() - 1);
    break;
  }
  Call c{q, r, method + " " + (hit ? hit->path : path), "", rest, json()};
  if (!hit) {
    if (elsewhere && !peculiar("wrong-method-is-404")) { r.set_header("Allow", "GET, POST, PATCH"); send_error(c, 405, "METHOD_NOT_ALLOWED", "this path does not take " + method); }
    else send_error(c, 404, "NOT_FOUND", "there is nothing at this path");
    return;
  }
  bool auth = hit->auth || closed_by_fault(c.route);
  if (auth) {
    if (fault("body-read-before-token") && c.q.method != "GET" && json::parse(q.body, nullptr, false).is_discarded()) {
      send_error(c, 400, "INVALID_REQUEST", "the body is not JSON");
      return;
    }
    if (fault("query-read-before-token") && q.has_param("limit")) {
      string v = q.get_param_value("limit");
      if (v.empty() || v.find_first_not_of("0123456789") != string::npos) { send_error(c, 400, "INVALID_REQUEST", "limit is no number"); return; }
    }
    bool ok = authorise(c);
    if (!ok && fault("refused-patch-acts") && c.route == "PATCH /api/v1/config") {
      c.address = S.tokens["tok-a"];
      httplib::Response dummy;
      Call d{q, dummy, c.route, c.address, rest, json()};
      hit->h(d);
      ok = false;
    }
    if (!ok) {
      r.set_header("WWW-Authenticate", "Bearer");
      send_error(c, 401, "UNAUTHORIZED", "the token is missing, unknown or expired");
      return;
    }
    if (fault("accounts-mixed-at-once") && c.route == "GET /api/v1/wallet/balance") {
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
      std::lock_guard<std::mutex> l(auth_m);
      c.address = current_address;
    }
  }
  try {
    hit->h(c);
  } catch (const std::exception& e) {
    send_error(c, 500, "INTERNAL", e.what());
  }
}

void serve(httplib::Server& s) {
  auto any = [](const httplib::Request& q, httplib::Response& r) { dispatch(q, r); };
  const char* all = "[\\s\\S]*";
  s.Get(all, any).Post(all, any).Put(all, any).Patch(all, any).Delete(all, any).Options(all, any);
  s.set_keep_alive_max_count(peculiar("closes-connections") ? 1 : 1000000);
  s.set_keep_alive_timeout(60);
  s.set_tcp_nodelay(true);
  s.set_socket_options([](socket_t sock) { int yes = 1; setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); });
  s.new_task_queue = [] { return new httplib::ThreadPool(256); };
  s.set_post_routing_handler([](const httplib::Request&, httplib::Response& r) {
    char a[64];
    time_t t = now_us() / 1000000;
    tm g;
    gmtime_r(&t, &g);
    strftime(a, sizeof a, "%a, %d %b %Y %H:%M:%S GMT", &g);
    r.set_header("Date", a);
    if (peculiar("more-headers")) { r.set_header("X-Powered-By", "node"); r.set_header("Cache-Control", "no-store"); r.set_header("Access-Control-Allow-Origin", "*"); }
    S.bytes_out += r.body.size() + 120;
  });
}
