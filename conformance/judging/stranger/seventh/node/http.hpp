// The router: finds the route, checks the token, sends JSON.
#pragma once
#include "state.hpp"
#define CPPHTTPLIB_THREAD_POOL_COUNT 64
#include <httplib.h>

struct Call {
  const httplib::Request& q;
  httplib::Response& r;
  string route;            // "GET /api/v1/status"
  string address;          // of the account whose token was sent
  string rest;             // what follows a path that ends with *
  json body;               // of routes that read one
};
using Handler = std::function<void(Call&)>;
void add_route(const string& method, const string& path, bool auth, Handler h);
void send_json(Call& c, int status, json j);
void send_error(Call& c, int status, const string& code, const string& text, const json& details = nullptr);
bool read_body(Call& c);   // false: the refusal has been sent
void serve(httplib::Server& s);
string dump(const json& j);
void spoil(const string& route, json& j);   // json_faults.cpp
// An integer of the query: 0 absent, 1 read, -1 no number.
int query_int(Call& c, const char* name, i64& out);

void add_reading_routes();
void add_wallet_routes();
void add_inference_routes();
void add_config_routes();
void add_native_routes();
void add_rpc_routes();
