// The service: takes bytes, so that a fault can change what is on the wire.
#include "grpc.hpp"
#include "generate.hpp"
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <list>
#include <thread>

static std::map<string, Operation> operations;
void add_operation(const string& name, Operation f) { operations[name] = std::move(f); }

static string text_of(grpc::ByteBuffer& b) {
  vector<grpc::Slice> s;
  string r;
  if (!b.Dump(&s).ok()) return r;
  for (auto& x : s) r.append((const char*)x.begin(), x.size());
  return r;
}
static grpc::ByteBuffer buffer_of(const string& t) { grpc::Slice s(t.data(), t.size()); return grpc::ByteBuffer(&s, 1); }

static Status run(const string& name, grpc::ByteBuffer& q, grpc::ByteBuffer& r) {
  S.rpc_calls++;
  string in = text_of(q), out;
  S.bytes_in += in.size();
  if (peculiar("slow-grpc")) std::this_thread::sleep_for(std::chrono::milliseconds(120));
  spoil_message(name, true, in);
  Status s;
  try { s = operations[name](in, out); } catch (const std::exception& e) { s = Status(StatusCode::INTERNAL, e.what()); }
  spoil_message(name, false, out);
  r = buffer_of(out);
  S.bytes_out += out.size();
  return s;
}

class Service : public grpc::Service {
 public:
  explicit Service(const string& package) {
    using grpc::internal::RpcMethod;
    using grpc::internal::RpcServiceMethod;
    for (auto& o : operations) {
      string name = o.first;
      string called = name;
      if (name == "GetShardInfo" && fault("shard-info-missing")) continue;
      if (name == "GossipValidationVote" && fault("vote-missing")) continue;
      if (name == "GetSwarmStatus" && fault("swarm-status-renamed")) called = "SwarmStatus";
      if (name == "UpdatePeerCapacity" && fault("peer-capacity-renamed")) called = "UpdateCapacity";
      if (name == "DHTFindNode" && fault("dht-names-lower")) called = "DhtFindNode";
      names.push_back("/" + package + "/" + called);
      if (name == "DHTPing" && fault("ping-answers-twice")) {
        AddMethod(new RpcServiceMethod(names.back().c_str(), RpcMethod::BIDI_STREAMING,
            new grpc::internal::BidiStreamingHandler<Service, grpc::ByteBuffer, grpc::ByteBuffer>(
                [name](Service*, grpc::ServerContext*, grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>* s) {
                  grpc::ByteBuffer q, r;
                  if (!s->Read(&q)) return Status(StatusCode::INTERNAL, "nothing");
                  Status st = run(name, q, r);
                  s->Write(r);
                  s->Write(r);
                  return st;
                }, this)));
        continue;
      }
      AddMethod(new RpcServiceMethod(names.back().c_str(), RpcMethod::NORMAL_RPC,
          new grpc::internal::RpcMethodHandler<Service, grpc::ByteBuffer, grpc::ByteBuffer, grpc::ByteBuffer, grpc::ByteBuffer>(
              [name](Service*, grpc::ServerContext*, const grpc::ByteBuffer* q, grpc::ByteBuffer* r) {
                grpc::ByteBuffer in(*q);
                return run(name, in, *r);
              }, this)));
    }
    if (fault("unlisted-operations-are-ok"))   // a catch-all that was left in
      for (const char* n : {"PutCheckpoint", "DoesNotExist", "NoSuchOperation", "Unknown", "NotAnOperation", "Nonexistent"}) {
        names.push_back("/" + package + "/" + n);
        AddMethod(new RpcServiceMethod(names.back().c_str(), RpcMethod::NORMAL_RPC,
            new grpc::internal::RpcMethodHandler<Service, grpc::ByteBuffer, grpc::ByteBuffer, grpc::ByteBuffer, grpc::ByteBuffer>(
                [](Service*, grpc::ServerContext*, const grpc::ByteBuffer*, grpc::ByteBuffer* r) { *r = buffer_of(""); return Status::OK; }, this)));
      }
    names.push_back("/" + package + "/StreamInference");
    AddMethod(new RpcServiceMethod(names.back().c_str(), RpcMethod::BIDI_STREAMING,
        new grpc::internal::BidiStreamingHandler<Service, grpc::ByteBuffer, grpc::ByteBuffer>(
            [](Service*, grpc::ServerContext*, grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>* s) {
              grpc::ByteBuffer q;
              int n = 0;
              while (s->Read(&q)) {
                if (n++ && fault("stream-inference-one-message")) return Status(StatusCode::UNIMPLEMENTED, "one message at a time");
                grpc::ByteBuffer r;
                Status st = run("UnaryInference", q, r);
                if (!st.ok()) return st;
                s->Write(r);
              }
              return Status::OK;
            }, this)));
  }
 private:
  std::list<string> names;
};

template <class Q, class R>
static void simple(const string& name, std::function<void(const Q&, R&)> f) {
  add_operation(name, operation<Q, R>([f](const Q& q, R& r) { f(q, r); return Status::OK; }));
}

static void add_others() {
  add_operation("UnaryInference", operation<node::InferenceRequest, node::InferenceResponse>([](const node::InferenceRequest& q, node::InferenceResponse& r) {
    if (q.prompt().empty()) return Status(StatusCode::INVALID_ARGUMENT, "prompt is empty");
    if (q.max_tokens() < 0 || q.max_tokens() > 4096) return Status(StatusCode::INVALID_ARGUMENT, "max_tokens is out of range");
    auto g = generate(q.prompt(), q.max_tokens() ? q.max_tokens() : 100, 0, {});
    r.set_request_id(q.request_id());
    r.set_text(g.text);
    r.set_tokens(g.tokens);
    r.set_done(true);
    return Status::OK;
  }));
  simple<node::GossipProofRequest, node::GossipProofResponse>("GossipProof", [](auto& q, auto& r) {
    bool known = !q.proof_id().empty();
    r.set_accepted(known);
    if (!known) r.set_reason("proof_id is empty");
  });
  add_operation("GossipTransaction", operation<node::GossipTransactionRequest, node::GossipTransactionResponse>([](const node::GossipTransactionRequest&, node::GossipTransactionResponse& r) {
    if (fault("gossip-transaction-unauthenticated")) return Status(StatusCode::UNAUTHENTICATED, "credentials are missing");
    r.set_reason("transactions come over /rpc only");
    return Status::OK;
  }));
  add_operation("GossipStake", operation<node::GossipStakeRequest, node::GossipStakeResponse>([](const node::GossipStakeRequest&, node::GossipStakeResponse& r) {
    if (fault("gossip-stake-unimplemented")) return Status(StatusCode::UNIMPLEMENTED, "later");
    r.set_reason("this node keeps its own stakes");
    return Status::OK;
  }));
  simple<node::ProofValidationRequest, node::ProofValidationResponse>("RequestProofValidation", [](auto& q, auto& r) {
    for (auto& p : S.proofs) if (p.id == q.proof_id()) r.set_valid(p.verified);
    if (!r.valid()) r.set_reason("not known as verified");
  });
  simple<node::ValidationVoteRequest, node::ValidationVoteResponse>("GossipValidationVote", [](auto&, auto& r) { r.set_reason("no vote is open"); });
  simple<node::GetShardInfoRequest, node::GetShardInfoResponse>("GetShardInfo", [](auto&, auto& r) {
    for (int i : S.layers) r.add_layers(i);
    r.set_total_layers(S.total_layers);
    r.set_role("validator");
  });
  add_operation("SwarmForward", operation<node::SwarmForwardRequest, node::SwarmForwardResponse>([](const node::SwarmForwardRequest&, node::SwarmForwardResponse& r) {
    r.set_error_message("this node is in no swarm");
    return Status::OK;
  }));
  simple<node::SwarmStatusRequest, node::SwarmStatusResponse>("GetSwarmStatus", [](auto&, auto& r) { r.set_peers(S.peers.size()); });
  simple<node::UpdatePeerCapacityRequest, node::UpdatePeerCapacityResponse>("UpdatePeerCapacity", [](auto&, auto& r) { r.set_success(true); });
}

std::unique_ptr<grpc::Server> serve_grpc(int port) {
  add_pipeline();
  add_dht();
  add_training();
  add_others();
  static Service service(fault("service-without-package") ? "NodeService" : fault("service-in-package-v1") ? "node.v1.NodeService" : fault("service-called-node") ? "node.Node" : "node.NodeService");
  if (fault("grpc-port-plus-10")) port += 10 - 1000;
  grpc::ServerBuilder b;
  const int MIB = 1024 * 1024;
  b.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials());
  b.RegisterService(&service);
  b.SetMaxReceiveMessageSize(fault("messages-of-4-mib") ? 4 * MIB : fault("messages-of-64-mib") ? 64 * MIB : 100 * MIB);
  b.SetMaxSendMessageSize(100 * MIB);
  b.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  b.AddChannelArgument("grpc.http2.min_ping_interval_without_data_ms", 5000);
  b.AddChannelArgument("grpc.keepalive_permit_without_calls", 1);
  return b.BuildAndStart();
}
