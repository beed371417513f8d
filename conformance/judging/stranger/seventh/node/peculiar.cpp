// The table of peculiarities: unusual, and permitted.
#include "faults.hpp"
#include <cstring>

struct Peculiarity { const char *id, *section, *what; };
static const vector<Peculiarity>& table() {
  static const vector<Peculiarity> t = {
      {"ascii-json", "4", "JSON with all letters beyond ASCII escaped"},
      {"pretty-json", "4", "JSON on several lines"},
      {"keys-in-reverse", "4", "the fields of objects in reverse order"},
      {"chunked-answers", "4", "answers in small chunks, without Content-Length"},
      {"charset-in-answers", "4", "application/json; charset=utf-8"},
      {"extra-fields", "2", "further fields in every object"},
      {"more-headers", "4", "further headers, among them CORS"},
      {"slow-answers", "4", "each JSON answer takes 150 ms"},
      {"closes-connections", "4", "one request per connection"},
      {"error-texts-in-german", "7.1", "messages of errors in another language"},
      {"bad-body-is-422", "7.1", "an invalid body is answered with 422"},
      {"wrong-method-is-404", "7.1", "404 instead of 405"},
      {"timestamps-in-milliseconds", "2", "timestamps with three decimals"},
      {"timestamps-with-offset", "2", "+00:00 instead of Z"},
      {"no-peers", "2.1", "the node knows no peers"},
      {"other-role", "2.1", "another role than the three known ones"},
      {"other-layer-kinds", "2.1", "a layer of another type"},
      {"status-draining", "3", "the status of the node is draining"},
      {"health-degraded", "2.1", "a check of the health says few"},
      {"training-off", "2.1", "training is off at the start"},
      {"models-diverge", "4.1", "a quarter of the nodes has another model: is_working is false"},
      {"total-without-pending", "2.1", "balances.total does not contain what is pending"},
      {"no-fee", "2.1", "transfers are free"},
      {"high-fee", "2.1", "transfers cost 0.25"},
      {"transfers-accepted-only", "3", "the status of a transfer is accepted"},
      {"no-transfers-to-self", "4.1", "transfers from an account to itself are refused with 400"},
      {"stake-minimum", "2.1", "a stake has at least 5 units and 7 days"},
      {"stakes-not-listed", "2.1", "stakes are not in the history"},
      {"long-cooldown", "3", "the cooldown is 21 days"},
      {"history-oldest-first", "4.1", "the history begins with the oldest entry"},
      {"history-without-charges", "4.1", "charges for generations are not in the history"},
      {"short-pages", "4.1", "pages have 5 entries (proofs 3) without a limit"},
      {"free-generations", "2.1", "generations cost nothing"},
      {"dear-generations", "2.1", "generations cost twenty times as much"},
      {"max-tokens-256", "4.1", "max_tokens above 256 is refused"},
      {"texts-end-early", "4.1", "the model ends its text by itself after 6 to 45 tokens"},
      {"never-the-same-text", "4.1", "also with temperature 0 texts differ each time"},
      {"stream-in-large-pieces", "6", "a token event has eight tokens"},
      {"stream-at-once", "6", "the whole stream comes in one piece"},
      {"only-batch-size-changes", "4.1", "training.batch_size is the only key that can be changed"},
      {"restart-for-threads", "4.1", "restart_required is true when cpu_threads changes, though the value is shown at once"},
      {"chain-grows", "2.2", "an empty block every 2 seconds, when somebody asks"},
      {"rpc-errors-400", "4.2", "errors of /rpc have the status 400"},
      {"permanent-redirects", "7.2", "old paths redirect with 308"},
      {"slow-grpc", "4.3", "each gRPC call takes 120 ms"},
      {"small-k", "4.3", "K is 4"},
      {"dht-does-not-learn", "4.3", "senders of DHT requests are not remembered"},
      {"dht-keys-of-20-bytes", "4.3", "only keys of 20 bytes are stored"},
      {"dht-list-shuffled", "4.3", "the closest nodes are not in the order of their distance"},
      {"gossip-refuses-all", "4.3", "no gradient is accepted"},
      {"no-checkpoints", "4.3", "GetCheckpoint has success false"},
      {"pipeline-refuses", "4.3", "passes have success false, with a reason"},
  };
  return t;
}

static const char* active = "";
bool choose_peculiar(const string& id) {
  for (auto& p : table()) if (id == p.id) { active = p.id; return true; }
  return false;
}
bool peculiar(const char* id) { return !strcmp(id, active); }
vector<string> peculiar_ids() {
  vector<string> r;
  for (auto& p : table()) r.push_back(p.id);
  return r;
}
