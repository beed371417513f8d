#include "chain.hpp"
#include "grpc.hpp"
#include "http.hpp"
#include <csignal>
#include <iostream>

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  int port = 8000;
  string tx;
  for (int i = 1; i < argc; i++) {
    string a = argv[i];
    if (a == "--list") { std::cout << list_switches().dump(1) << "\n"; return 0; }
    if (i + 1 >= argc) { std::cerr << "usage: node --port N [--fault ID] [--peculiar ID] | --list | --sign JSON\n"; return 2; }
    string v = argv[++i];
    if (a == "--port") port = atoi(v.c_str());
    else if (a == "--fault") { if (!choose_fault(v)) { std::cerr << "no such fault: " << v << "\n"; return 2; } }
    else if (a == "--peculiar") { if (!choose_peculiar(v)) { std::cerr << "no such peculiarity: " << v << "\n"; return 2; } }
    else if (a == "--sign") tx = v;
    else { std::cerr << "unknown option " << a << "\n"; return 2; }
  }
  if (!tx.empty()) {   // the operator's signer: prints the signed JSON, and it in base64
    json j = json::parse(tx, nullptr, false);
    if (!j.is_object()) return 2;
    j["signature"] = sign(j);
    std::cout << j.dump() << "\n" << base64(j.dump()) << "\n";
    return 0;
  }
  build_state(port);
  build_chain();
  add_reading_routes();
  add_wallet_routes();
  add_inference_routes();
  add_config_routes();
  add_native_routes();
  add_rpc_routes();
  auto g = serve_grpc(port + 1000);
  if (!g) { std::cerr << "the gRPC port is taken\n"; return 1; }
  httplib::Server s;
  serve(s);
  if (!s.listen("127.0.0.1", port)) { std::cerr << "the HTTP port is taken\n"; return 1; }
  return 0;
}
