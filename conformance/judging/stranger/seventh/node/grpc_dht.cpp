// The distributed hash table.
#include "grpc.hpp"
#include <algorithm>

struct Contact { string id, ip; int port; };
static std::mutex m;
static vector<Contact> contacts;
static std::map<string, string> values;
static size_t K() { return peculiar("small-k") ? 4 : 20; }

static string own_id() {
  string id = sha1(S.public_key);
  if (fault("own-id-of-sha256")) id = sha256(S.public_key);
  if (fault("own-id-per-answer")) { static int n = 0; id = sha1(S.public_key + std::to_string(n++)); }
  return id;
}
static void responder(node::DHTNodeInfo* n, const node::DHTNodeInfo& sender) {
  n->set_node_id(own_id());
  n->set_ip(fault("responder-without-ip") ? "" : "127.0.0.1");
  n->set_port(fault("responder-port-default") ? 8000 : fault("responder-port-above") ? 70000 + S.port % 1000 : S.port + 1000);
}

static void learn(const node::DHTNodeInfo& s) {
  if (peculiar("dht-does-not-learn")) return;
  bool whole = s.node_id().size() == 20 && (!s.ip().empty() || fault("senders-without-ip-listed")) && s.port() > 0 && (s.port() < 65536 || fault("any-port-learned"));
  if (!whole || s.node_id() == sha1(S.public_key) || s.ip().size() > 100) return;
  if (!fault("moved-node-listed-twice"))
    for (auto& c : contacts) if (c.id == s.node_id()) { if (!fault("moved-node-keeps-address")) { c.ip = s.ip(); c.port = s.port(); } return; }
  if (fault("moved-node-listed-twice")) for (auto& c : contacts) if (c.id == s.node_id() && c.port == s.port() && c.ip == s.ip()) return;
  if (contacts.size() < 20000) contacts.push_back({s.node_id(), s.ip(), s.port()});
}

static string distance(const string& a, const string& b) {
  string d(20, 0);
  size_t n = fault("distance-of-first-4-bytes") ? 4 : fault("distance-of-last-byte-left-out") ? 19 : 20;
  for (size_t i = 0; i < n; i++) d[i] = a[i] ^ b[i];
  if (fault("distance-by-difference")) for (size_t i = 0; i < n; i++) d[i] = char(std::abs(int((unsigned char)a[i]) - int((unsigned char)b[i])));
  return d;
}

template <class R>
static void closest(R& r, const string& target) {
  vector<std::pair<string, const Contact*>> v;
  for (auto& c : contacts) if (c.id.size() >= 20 || fault("short-ids-learned")) v.push_back({distance((c.id + string(20, 0)).substr(0, 20), target), &c});
  auto less = [](auto& a, auto& b) { return memcmp(a.first.data(), b.first.data(), 20) < 0; };
  if (!fault("nodes-in-order-of-arrival")) std::sort(v.begin(), v.end(), less);
  if (peculiar("dht-list-shuffled")) { if (v.size() > K()) v.resize(K()); std::reverse(v.begin(), v.end()); }
  size_t n = 0;
  for (auto& e : v) {
    if (n++ >= K()) break;
    if (fault("closest-left-out") && n == 1 && v.size() > 2) continue;
    auto* x = r.add_nodes();
    x->set_node_id(fault("listed-ids-cut") ? e.second->id.substr(0, 16) : e.second->id);
    x->set_ip(fault("listed-without-ip") ? "" : fault("listed-ip-as-bytes") ? string("\x7f\x00\x00\x01", 4) : e.second->ip);
    x->set_port(fault("listed-port-zero") ? 0 : e.second->port);
  }
}

static Status ping(const node::DHTPingRequest& q, node::DHTPingResponse& r) {
  std::lock_guard<std::mutex> l(m);
  if (!fault("ping-does-not-introduce")) learn(q.sender());
  responder(r.mutable_responder(), q.sender());
  return Status::OK;
}

static Status find_node(const node::DHTFindNodeRequest& q, node::DHTFindNodeResponse& r) {
  std::lock_guard<std::mutex> l(m);
  learn(q.sender());
  if (q.target_id().size() != 20) {
    return Status(StatusCode::INVALID_ARGUMENT, "target_id must have 20 bytes");
  }
  responder(r.mutable_responder(), q.sender());
  closest(r, fault("search-around-self") ? sha1(S.public_key) : fault("search-around-sender") && q.sender().node_id().size() == 20 ? q.sender().node_id() : q.target_id());
  return Status::OK;
}

static string key_of(const string& k) {
  if (fault("keys-by-8-bytes")) return k.substr(0, 8);
  return k;
}

static Status store(const node::DHTStoreRequest& q, node::DHTStoreResponse& r) {
  std::lock_guard<std::mutex> l(m);
  learn(q.sender());
  responder(r.mutable_responder(), q.sender());
  bool fits = peculiar("dht-keys-of-20-bytes") ? q.key().size() == 20 : !q.key().empty() && q.key().size() <= 256;
  if (q.value().empty() || q.value().size() > 65536 || !fits) {
    if (fault("refused-store-stores")) values[key_of(q.key())] = q.value().substr(0, 1000);
    r.set_success(false);
    return Status::OK;
  }
  string v = q.value();
  if (fault("values-cut-at-64")) v = v.substr(0, 64);
  if (!fault("store-forgets")) values[key_of(q.key())] = v;
  r.set_success(!fault("store-says-false"));
  return Status::OK;
}

static Status find_value(const node::DHTFindValueRequest& q, node::DHTFindValueResponse& r) {
  std::lock_guard<std::mutex> l(m);
  learn(q.sender());
  if (q.key().empty() || q.key().size() > 256) return Status(StatusCode::INVALID_ARGUMENT, "key must have 1 to 256 bytes");
  responder(r.mutable_responder(), q.sender());
  auto it = values.find(key_of(q.key()));
  if (it != values.end()) {
    r.set_found(!fault("found-never-true"));
    r.set_value(fault("value-left-out") ? "" : it->second);
    return Status::OK;
  }
  string t = q.key().size() == 20 ? q.key() : sha1(q.key());
  closest(r, t);
  return Status::OK;
}

void add_dht() {
  for (auto& p : S.peers) contacts.push_back({sha1("key of " + p.id), p.host, p.port + 1000});
  add_operation("DHTPing", operation<node::DHTPingRequest, node::DHTPingResponse>(ping));
  add_operation("DHTFindNode", operation<node::DHTFindNodeRequest, node::DHTFindNodeResponse>(find_node));
  add_operation("DHTStore", operation<node::DHTStoreRequest, node::DHTStoreResponse>(store));
  add_operation("DHTFindValue", operation<node::DHTFindValueRequest, node::DHTFindValueResponse>(find_value));
}
