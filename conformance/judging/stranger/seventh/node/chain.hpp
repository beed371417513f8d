// The native chain: blocks, updates, requests, artifacts.
#pragma once
#include "common.hpp"

struct Job { string id, key, prompt, status, provider; i64 height = 0, expires = 0, price = 0, ended = 0; int most = 0, tokens = 0; string text; };
struct Update { int round; i64 height; double loss; string training_root, serving_root, hash; i64 at; };

struct Chain {
  string id = "nwchain-4", genesis_hash, genesis, dataset, dataset_hash;
  vector<json> blocks;              // [h] is the block at height h; [0] is unused
  vector<Update> updates;           // oldest first
  std::map<string, Job> jobs;
  vector<string> ended;             // completed or expired, oldest first
  std::map<string, string> artifacts;   // digest -> bytes
  vector<json> manifest;
  i64 height() const { return i64(blocks.size()) - 1; }
};
extern Chain C;
void build_chain();
json make_block(i64 height, const json& transactions, i64 at);
void tick();                        // lets waiting jobs complete or expire; the lock must be held
double chain_loss();
i64 model_parameters();
string submit(const json& tx, string& request_id);   // an error text, empty if accepted
string sign(json tx);               // the signature of a message without one
constexpr i64 PRICE = 1500, FEE = 250;   // atoms per token, atoms per request
string default_provider();
