// Forward and backward passes through the toy model.
#include "grpc.hpp"
#include <cmath>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/support/byte_buffer.h>
#include <thread>

using Vec = vector<float>;
static float weight(int layer, int i, int j) { return float(mix(layer * 100003 + i * 131 + j) % 2001) / 4000.f - 0.25f; }
static float head(int i, int v) { return float(mix(900001 + i * 257 + v) % 2001) / 2000.f - 0.5f; }

struct Kept { vector<Vec> inputs; int batch, seq, first; string sender; };
static std::mutex m;
static std::map<string, Kept> kept;
static vector<string> order;

static string raw(const Vec& v) { return string((const char*)v.data(), v.size() * 4); }
static string key_of(const string& session, const string& request) { return fault("passes-by-request-alone") ? request : fault("passes-by-session-alone") ? session : session + "\n" + request; }

static Vec layer_forward(int layer, const Vec& x) {
  int H = S.hidden;
  Vec y = x;
  for (size_t t = 0; t + H <= x.size(); t += H)
    for (int i = 0; i < H; i++) {
      float s = 0;
      for (int j = 0; j < H; j++) s += weight(layer, i, j) * x[t + j];
      y[t + i] += 0.1f * std::tanh(s);
    }
  return y;
}
static Vec layer_backward(int layer, const Vec& x, const Vec& g) {
  int H = S.hidden;
  Vec r = g;
  for (size_t t = 0; t + H <= x.size(); t += H)
    for (int i = 0; i < H; i++) {
      float s = 0;
      for (int j = 0; j < H; j++) s += weight(layer, i, j) * x[t + j];
      float d = 0.1f * g[t + i] * (1 - std::tanh(s) * std::tanh(s));
      for (int j = 0; j < H; j++) r[t + j] += d * weight(layer, i, j);
    }
  return r;
}

static bool held(int layer) { for (int i : S.layers) if (i == layer) return true; return false; }

// The gRPC address of a node: its HTTP port plus 1000.
static string address_of(string url) {
  bool direct = url.rfind("grpc://", 0) == 0;
  size_t p = url.find("://");
  if (p != string::npos) url = url.substr(p + 3);
  url = url.substr(0, url.find('/'));
  p = url.rfind(':');
  if (p == string::npos) return "";
  int port = atoi(url.c_str() + p + 1);
  if (!direct && !fault("gradients-to-http-port")) port += 1000;
  return port > 0 && port < 65536 ? url.substr(0, p) + ":" + std::to_string(port) : "";
}

static void send_back(Kept k, string session, string request, Vec grad) {
  string to = address_of(k.sender);
  if (to.empty()) return;
  node::PipelineBackwardRequest q;
  q.set_session_id(session);
  q.set_request_id(fault("gradients-with-new-request-id") ? "back-" + request : request);
  Vec g = grad;
  q.set_grad_output(raw(g));
  for (int n : {k.batch, k.seq, S.hidden}) q.add_grad_shape(n);
  q.set_target_shard(std::max(0, k.first - 1));
  string bytes = q.SerializeAsString();
  spoil_message("SendBack", true, bytes);
  grpc::ChannelArguments a;
  a.SetMaxReceiveMessageSize(100 << 20);
  a.SetMaxSendMessageSize(100 << 20);
  a.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  a.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  a.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  auto channel = grpc::CreateCustomChannel(to, grpc::InsecureChannelCredentials(), a);
  grpc::internal::RpcMethod method("/node.NodeService/PipelineBackward", grpc::internal::RpcMethod::NORMAL_RPC, channel);
  int tries = fault("gradients-tried-eight-times") ? 8 : 3, wait = 5;
  for (int i = 0; i < tries; i++) {
    grpc::ClientContext c;
    if (!fault("gradients-without-deadline")) c.set_deadline(std::chrono::system_clock::now() + (fault("gradients-deadline-in-milliseconds") ? std::chrono::milliseconds(wait * 40) : std::chrono::milliseconds(wait * 1000)));
    c.set_wait_for_ready(false);
    grpc::Slice slice(bytes.data(), bytes.size());
    grpc::ByteBuffer in(&slice, 1), answer;
    Status s = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(channel.get(), method, &c, in, &answer);
    if (s.ok()) {
      if (fault("gradients-sent-twice") && i == 0) continue;
      return;
    }
    if (s.error_code() == StatusCode::NOT_FOUND && !fault("gradients-again-after-not-found")) return;
    if (s.error_code() == StatusCode::INVALID_ARGUMENT && !fault("gradients-again-after-invalid")) return;
    if (s.error_code() == StatusCode::DEADLINE_EXCEEDED) wait *= 2;
    int pause = fault("gradients-pause-too-long") ? 6000 : std::min(2000, 100 << (i + 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
  }
}

static Status forward(const node::PipelineForwardRequest& q, node::PipelineForwardResponse& r) {
  int H = S.hidden, target = q.target_shard();
  if (fault("negative-target-counts-from-end") && target < 0) target += S.total_layers;
  if (target < 0) return Status(StatusCode::INVALID_ARGUMENT, "target_shard is below 0");
  if (!held(target)) {
    if (fault("absent-layer-invalid")) return Status(StatusCode::INVALID_ARGUMENT, "not here");
    if (!fault("absent-layer-computed")) return Status(StatusCode::NOT_FOUND, "layer " + std::to_string(target) + " is not on this node");
    target = S.layers[0];
  }
  auto failed = [&](const string& why) {
    r.Clear();
    r.set_request_id(q.request_id());
    r.set_success(false);
    if (!fault("forward-failure-without-reason")) r.set_error_message(why);
    return Status::OK;
  };
  if (peculiar("pipeline-refuses")) return failed("this node takes passes of its own peers only");
  if (q.hidden_shape_size() != 3) return Status(StatusCode::INVALID_ARGUMENT, "hidden_shape must have three dimensions");
  i64 B = q.hidden_shape(0), T = q.hidden_shape(1);
  if (fault("one-sequence-at-most") && B > 1) B = 1;
  else if (B < 1 || T < 1 || B > 64 || T > 4096) return Status(StatusCode::INVALID_ARGUMENT, "hidden_shape is out of range");
  if (q.hidden_shape(2) != H) return Status(StatusCode::INVALID_ARGUMENT, "the hidden dimension is " + std::to_string(H));
  if (i64(q.hidden_states().size()) != q.hidden_shape(0) * T * H * 4) {
    if (fault("short-tensor-padded")) {} else if (fault("wrong-size-is-internal")) return Status(StatusCode::INTERNAL, "segment");
    else return Status(StatusCode::INVALID_ARGUMENT, "hidden_states has another size than hidden_shape gives");
  }
  Vec x(B * T * H);
  memcpy(x.data(), q.hidden_states().data(), std::min(q.hidden_states().size(), x.size() * 4));
  static Vec before;
  if (fault("pass-answers-the-one-before") && before.size() == x.size()) std::swap(before, x); else before = x;
  for (float f : x) if (!std::isfinite(f)) return failed("hidden_states has a value that is not finite");
  Kept k{{}, int(B), int(T), target, q.sender_url()};
  for (int i : S.layers) if (i >= target) {
    k.inputs.push_back(x);
    x = layer_forward(i, x);
    if (q.use_cache()) r.add_past_key_values(raw(Vec(x.begin(), x.begin() + H)));
  }
  int V = S.vocabulary;
  Vec logits(B * T * V);
  for (i64 t = 0; t < B * T; t++) for (int v = 0; v < V; v++) { float s = 0; for (int i = 0; i < H; i++) s += head(i, v) * x[t * H + i]; logits[t * V + v] = s; }
  r.set_success(true);
  r.set_request_id(fault("forward-without-request-id") ? "" : fault("forward-request-id-cut") ? q.request_id().substr(0, std::min<size_t>(64, q.request_id().size())) : fault("forward-answers-session-id") ? q.session_id() : q.request_id());
  r.set_is_final(!fault("last-shard-not-final"));
  r.set_logits(raw(logits));
  for (i64 n : {B, T, i64(V)}) r.add_logits_shape(n);
  Vec grad;
  if (!q.training_labels().empty()) {
    const string& t = q.training_labels();
    size_t n = B * T;
    vector<i64> labels(n);
    if (t.size() == n * 4) for (size_t i = 0; i < n; i++) { int32_t v; memcpy(&v, t.data() + i * 4, 4); labels[i] = v; }
    else if (t.size() == n * 8) for (size_t i = 0; i < n; i++) memcpy(&labels[i], t.data() + i * 8, 8);
    else return Status(StatusCode::INVALID_ARGUMENT, "training_labels has no number for each position");
    double loss = 0;
    grad.assign(B * T * H, 0);
    for (size_t p = 0; p < n; p++) {
      if (labels[p] == -100) continue;
      if (labels[p] < 0 || labels[p] >= V) return Status(StatusCode::INVALID_ARGUMENT, "a label is no token");
      double top = -1e30, sum = 0;
      for (int v = 0; v < V; v++) top = std::max<double>(top, logits[p * V + v]);
      for (int v = 0; v < V; v++) sum += std::exp(logits[p * V + v] - top);
      loss += std::log(sum) + top - logits[p * V + labels[p]];
      for (int v = 0; v < V; v++) {
        double g = (std::exp(logits[p * V + v] - top) / sum - (v == labels[p])) / n;
        for (int i = 0; i < H; i++) grad[p * H + i] += g * head(i, v);
      }
    }
    loss /= n;
    if (!fault("training-without-loss")) r.set_loss(loss);
  }
  {
    std::lock_guard<std::mutex> l(m);
    string key = key_of(q.session_id(), q.request_id());
    if (fault("all-gradients-to-last-sender")) for (auto& e : kept) e.second.sender = k.sender;
    if (fault("one-pass-is-kept")) { kept.clear(); order.clear(); }
    if (grad.empty() || k.sender.empty()) {
      if (!fault("no-graph-is-kept")) { kept[key] = k; order.push_back(key); }
      while (order.size() > 2000) { kept.erase(order[0]); order.erase(order.begin()); }
    }
  }
  if (grad.size() && !k.sender.empty() && !fault("validator-sends-no-gradients")) {
    for (size_t i = k.inputs.size(); i-- > 0;) grad = layer_backward(target + i, k.inputs[i], grad);
    std::thread(send_back, k, q.session_id(), q.request_id(), grad).detach();
  }
  return Status::OK;
}

static Status backward(const node::PipelineBackwardRequest& q, node::PipelineBackwardResponse& r) {
  auto failed = [&](const string& why) {
    r.set_success(false);
    if (!fault("backward-failure-without-reason")) r.set_error_message(why);
    return Status::OK;
  };
  std::lock_guard<std::mutex> l(m);
  if (!held(q.target_shard())) {
    return Status(StatusCode::NOT_FOUND, "this layer is not on this node");
  }
  auto it = kept.find(key_of(q.session_id(), q.request_id()));
  if (it == kept.end()) {
    if (fault("refusal-forgets-passes")) kept.clear();
    return failed("no pass of this session and request is waiting for gradients");
  }
  Kept k = it->second;
  i64 n = i64(k.batch) * k.seq * S.hidden;
  bool fits = q.grad_shape_size() == 3 && q.grad_shape(0) == k.batch && q.grad_shape(1) == k.seq && q.grad_shape(2) == S.hidden && i64(q.grad_output().size()) == n * 4;
  if (!fits) {
    if (fault("wrong-gradients-use-up-pass")) kept.erase(it);
    return Status(StatusCode::INVALID_ARGUMENT, "the gradients do not have the shape of the pass");
  }
  Vec g(n);
  memcpy(g.data(), q.grad_output().data(), n * 4);
  for (float f : g) if (!std::isfinite(f)) return failed("grad_output has a value that is not finite");
  for (size_t i = k.inputs.size(); i-- > 0;) g = layer_backward(k.first + i, k.inputs[i], g);
  if (!fault("passes-are-not-used-up")) kept.erase(it);
  if (!k.sender.empty() && !fault("gradients-not-passed-on")) std::thread(send_back, k, q.session_id(), q.request_id(), g).detach();
  r.set_success(true);
  return Status::OK;
}

void add_pipeline() {
  add_operation("PipelineForward", operation<node::PipelineForwardRequest, node::PipelineForwardResponse>(forward));
  add_operation("PipelineBackward", operation<node::PipelineBackwardRequest, node::PipelineBackwardResponse>(backward));
}
