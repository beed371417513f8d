// What the gRPC operations share.
#pragma once
#include "chain.hpp"
#include "node.pb.h"
#include "state.hpp"
#include <grpcpp/grpcpp.h>

using grpc::Status;
using grpc::StatusCode;
using Operation = std::function<Status(const string& in, string& out)>;

// Parses, runs, serialises.
template <class Q, class R>
Operation operation(std::function<Status(const Q&, R&)> f) {
  return [f](const string& in, string& out) {
    Q q;
    R r;
    if (!q.ParseFromString(in)) return Status(fault("garbage-is-internal") ? StatusCode::INTERNAL : StatusCode::INVALID_ARGUMENT, "this is no such message");
    if (fault("unknown-fields-refused") && !Q::GetReflection()->GetUnknownFields(q).empty()) return Status(StatusCode::INVALID_ARGUMENT, "unknown field");
    Status s = f(q, r);
    out = r.SerializeAsString();
    return s;
  };
}
void spoil_message(const string& method, bool request, string& bytes);   // grpc_wire.cpp
void add_operation(const string& name, Operation f);
void add_pipeline();
void add_dht();
void add_training();
std::unique_ptr<grpc::Server> serve_grpc(int port);
void learn_sender(const node::DHTNodeInfo& n);
