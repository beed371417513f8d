// What the node knows: accounts, configuration, counters.
#pragma once
#include "common.hpp"
#include <atomic>

struct Entry {   // of a history
  string id, type;
  i64 amount = 0, at = 0;
  json more = json::object();
};

struct Account {
  string address, key;   // key: compressed public key in hexadecimal
  i64 available = 0, staked = 0, pending = 0;
  i64 start = 0;         // of the stake, microseconds
  int days = 0;
  i64 unlock = 0;
  double multiplier = 1;
  i64 nonce = 0, locked = 0;
  vector<Entry> history;   // oldest first
};

struct Peer { string id, host, role; int port; vector<int> layers; double latency; i64 since; };
struct Proof { string id; int layer; i64 at; bool verified; i64 reward; };

struct State {
  std::recursive_mutex m;
  int port = 0;
  i64 started = 0;
  string node_id, public_key;
  std::map<string, string> tokens;      // token -> address
  std::map<string, Account> accounts;   // by address
  json config;
  vector<Peer> peers;
  vector<Proof> proofs;                 // newest first
  vector<int> layers;                   // held by this node
  int total_layers = 8, hidden = 16, vocabulary = 64;
  // counters
  i64 requests = 0, tokens_out = 0;
  vector<double> latencies;
  vector<i64> request_times;
  std::atomic<i64> bytes_in{0}, bytes_out{0}, rpc_calls{0};
  std::atomic<i64> grads_submitted{57}, grads_accepted{51};
  i64 serial = 1000;
  int round = 26;                       // training round; also in chain and checkpoints
  string fresh_id(const string& prefix);
};
extern State S;
void build_state(int port);
using Lock = std::lock_guard<std::recursive_mutex>;
i64 transfer_fee();
void note(Account& a, const string& id, const string& type, i64 amount, json more = json::object());
