// POST /inference: the toy generator, its price, the stream.
#include "http.hpp"
#include "generate.hpp"
#include <chrono>
#include <cmath>
#include <thread>

static const char* WORDS[] = {" river", " stone", " light", " wind", " old", " bright", " the", " a", " of", " and", " moves", " under", " over", " quiet", " road", " tree",
                              " morning", " night", " falls", " sings", " cold", " warm", " house", " field", " bird", " slow", " green", " blue", " keeps", " finds", " turns", " with",
                              ",", ".", " silver", " dust", " hill", " cloud", " rain", " door", " small", " wide", " deep", " far", " near", " again", " never", " always",
                              " before", " after", " between", " from", " into", " water", " fire", " glass", " salt", " bread", " hand", " voice", " gate", " path", " sea", " stars"};

int count_prompt(const string& p) {
  int n = 0;
  for (unsigned char c : p) n += (c & 0xc0) != 0x80;
  if (fault("prompt-tokens-constant")) return 8;
  return n;
}

Generated generate(const string& prompt, int most, double temperature, const vector<string>& stop) {
  static std::atomic<int> turn{0};
  std::uint64_t seed = hash_text(prompt);
  if (temperature > 0 || peculiar("never-the-same-text")) seed = mix(seed + 77 * ++turn);
  Generated g;
  g.prompt_tokens = count_prompt(prompt);
  g.reason = "length";
  if (peculiar("texts-end-early")) { int n = 6 + seed % 40; if (n < most) { most = n; g.reason = "stop"; } }
  if (fault("prompt-takes-room")) most = std::max(1, most - g.prompt_tokens);
  if (fault("max-tokens-exceeded-by-one")) most++;
  for (int i = 0; i < most; i++) {
    string w = WORDS[mix(seed + i * 31) % 64];
    size_t from = g.text.size();
    g.text += w;
    g.pieces.push_back(w);
    size_t cut = string::npos;
    string s;
    for (size_t k = 0; k < stop.size(); k++) {
      if (fault("only-first-stop-counts") && k) break;
      const string& want = stop[k];
      size_t back = from > want.size() ? from - want.size() : 0;
      size_t p = string::npos;
      if (fault("stop-within-one-token-only")) { size_t q = w.find(want); p = q == string::npos ? q : from + q; }
      else if (fault("stop-ignores-case")) {
        string low = g.text, wl = want;
        for (auto& ch : low) ch = tolower(ch);
        for (auto& ch : wl) ch = tolower(ch);
        p = low.find(wl, back);
      } else if (fault("stop-trimmed")) {
        string t = want;
        while (t.size() > 1 && t.front() == ' ') t.erase(0, 1);
        p = g.text.find(t, back > 1 ? back - 1 : 0);
      } else p = g.text.find(want, back);
      if (p < cut) { cut = p; s = want; }
    }
    if (cut == string::npos || fault("stop-ignored")) continue;
    g.reason = "stop";
    // cut the text, and the pieces with it
    while (g.text.size() > cut) {
      size_t over = g.text.size() - cut;
      if (g.pieces.back().size() <= over) { g.text.resize(g.text.size() - g.pieces.back().size()); g.pieces.pop_back(); }
      else { g.pieces.back().resize(g.pieces.back().size() - over); g.text.resize(cut); }
    }
    break;
  }
  g.tokens = g.pieces.size();
  int per = fault("slow-tokens") ? 3000 : 60;
  std::this_thread::sleep_for(std::chrono::microseconds(per * g.tokens));
  return g;
}

i64 price_of(const Generated& g) {
  if (peculiar("free-generations")) return 0;
  i64 p = g.prompt_tokens * 500 + g.tokens * 2000;
  return peculiar("dear-generations") ? p * 20 : p;
}

struct Wish { string prompt; int most = 100; double temperature = 1, top_p = 1; i64 top_k = 50; bool stream = false; vector<string> stop; };

static bool bad(Call& c, const char* text) { send_error(c, 400, "INVALID_REQUEST", text); return false; }

static bool read_wish(Call& c, Wish& w) {
  json b = c.body;
  if (fault("arrays-of-one-unwrapped")) for (auto& e : b.items()) if (e.key() != "stop" && e.value().is_array() && e.value().size() == 1) e.value() = json(e.value()[0]);
  if (!b.contains("prompt") && fault("prompt-default-empty")) b["prompt"] = "";
  else if (!b.contains("prompt")) return bad(c, "prompt is required");
  if (b["prompt"].is_number() && fault("prompt-number-accepted")) b["prompt"] = b["prompt"].dump();
  if (!b["prompt"].is_string()) return bad(c, "prompt must be a string");
  w.prompt = b["prompt"];
  if (w.prompt.empty() && !fault("prompt-default-empty")) return bad(c, "prompt is empty");
  if (w.prompt.size() > 200000) return bad(c, "prompt is too long");
  if (fault("foreign-letters-crash")) for (unsigned char ch : w.prompt) if (ch >= 0xf0) { send_error(c, 500, "INTERNAL", "tokeniser: byte sequence"); return false; }
  if (fault("max-tokens-default-256")) w.most = 256;
  if (b.contains("max_tokens")) {
    json v = b["max_tokens"];
    if (v.is_string() && fault("max-tokens-text-accepted")) v = atoi(v.get<string>().c_str());
    if (!v.is_number_integer()) return bad(c, "max_tokens must be a whole number");
    i64 n = v, most = peculiar("max-tokens-256") ? 256 : 4096;
    if (n < 1 || n > most) return bad(c, "max_tokens is out of range");
    if (!fault("max-tokens-ignored")) w.most = n;
    if (fault("max-tokens-ignored-in-streams") && b.contains("stream") && b["stream"] == true) w.most = 100;
    if (fault("max-tokens-ignored-with-stop") && b.contains("stop")) w.most = 100;
  }
  if (b.contains("temperature")) {
    json v = b["temperature"];
    if (v.is_string() && fault("temperature-text-accepted")) v = atof(v.get<string>().c_str());
    if (!v.is_number()) return bad(c, "temperature must be a number");
    w.temperature = v;
    double high = fault("temperature-to-1") ? 1 : fault("temperature-unbounded") ? 1e300 : fault("temperature-to-2.5") ? 2.5 : 2, low = fault("temperature-below-zero-accepted") ? -1e300 : 0;
    if (fault("temperature-2-refused") && w.temperature >= 2) return bad(c, "temperature is out of range");
    if (fault("temperature-clamped")) w.temperature = std::min(2.0, std::max(0.0, w.temperature));
    if (!(w.temperature >= low && w.temperature <= high)) return bad(c, "temperature is out of range");
  }
  if (b.contains("top_p")) {
    json v = b["top_p"];
    if (v.is_boolean() && fault("top-p-bool-accepted")) v = 1;
    if (!v.is_number()) return bad(c, "top_p must be a number");
    w.top_p = v;
    if (fault("top-p-1-refused") && w.top_p >= 1) return bad(c, "top_p is out of range");
    if (!(w.top_p > 0 && w.top_p <= 1)) return bad(c, "top_p is out of range");
  }
  if (b.contains("top_k")) {
    json v = b["top_k"];
    if (!v.is_number_integer() && fault("top-k-any-type")) v = 50;
    if (!v.is_number_integer()) return bad(c, "top_k must be a whole number");
    w.top_k = v;
    if (fault("top-k-at-most-50") && w.top_k > 50) return bad(c, "top_k is out of range");
    if (w.top_k < 1) return bad(c, "top_k is out of range");
  }
  if (b.contains("stream")) {
    json v = b["stream"];
    if (fault("stream-truthy") && !v.is_boolean()) v = !v.empty();
    if (!v.is_boolean()) {
      return bad(c, "stream must be true or false");
    }
    w.stream = v;
  }
  if (b.contains("stop")) {
    json v = b["stop"];
    if (v.is_string() && fault("stop-text-accepted")) v = json::array({v});
    if (!v.is_array() || v.size() > 16) return bad(c, "stop must be an array of at most 16 texts");
    if (v.empty() && fault("empty-stop-refused")) return bad(c, "stop is empty");
    if (v.size() > 1 && fault("one-stop-at-most")) return bad(c, "stop has more than one text");
    for (auto& e : v) {
      if (!e.is_string()) { if (fault("stop-entries-any-type")) continue; return bad(c, "stop must be an array of texts"); }
      if (e.get<string>().empty()) return bad(c, "stop has an empty text");
      w.stop.push_back(e);
    }
    static vector<string> before;
    if (fault("stop-remembered")) { if (w.stop.empty()) w.stop = before; else before = w.stop; }
  }
  if (fault("stop-ignored-in-streams") && w.stream) w.stop.clear();
  return true;
}

static json usage(const Generated& g, bool stream) {
  int p = g.prompt_tokens, n = g.tokens;
  if (stream && fault("stream-usage-prompt-by-words")) { p = 1; for (char ch : g.text) p += 0 * ch; p = std::max(1, g.prompt_tokens / 4); }
  if (stream && fault("stream-usage-counts-done")) n++;
  if (stream && fault("stream-usage-zero")) n = 0, p = 0;
  int t = p + n;
  if (!stream && fault("total-tokens-is-completion")) t = n;
  if (stream && fault("stream-total-is-max")) t = p + 100;
  if (!stream && fault("completion-counts-prompt")) { n += p; t = n; }
  return {{"prompt_tokens", p}, {"completion_tokens", n}, {"total_tokens", t}};
}

static void answer_stream(Call& c, std::shared_ptr<Generated> g) {
  if (fault("stream-drops-last-token") && g->pieces.size()) g->pieces.pop_back();
  string out;
  bool crlf = false;
  string end = fault("stream-single-line-breaks") ? "\n" : crlf ? "\r\n\r\n" : "\n\n";
  auto event = [&](const json& j, bool last = false) {
    string head = fault("stream-without-data-prefix") ? "" : fault("stream-named-fields") ? "event: token\njson: " : "data: ";
    string text = j.dump();
    if (fault("stream-duplicate-keys") && !last) text = text.substr(0, text.size() - 1) + ",\"index\":0}";
    out += head + text + (last && fault("stream-last-without-blank-line") ? "\n" : end);
  };
  size_t per = peculiar("stream-in-large-pieces") ? 8 : 1;
  int k = 0;
  for (size_t i = 0; i < g->pieces.size(); i += per) {
    string t;
    for (size_t x = i; x < std::min(i + per, g->pieces.size()); x++) t += g->pieces[x];
    int index = k++;
    if (fault("stream-index-from-one")) index++;
    json e = {{"token", t}, {"index", index}};
    if (fault("stream-token-renamed")) { e["text"] = t; e.erase("token"); }
    if (fault("stream-token-as-object")) e["token"] = {{"text", t}};
    event(e);
  }
  json last = {{"token", fault("final-token-lower") ? "[done]" : fault("final-token-empty") ? "" : "[DONE]"}, {"finish_reason", g->reason}, {"usage", usage(*g, true)}};
  if (fault("final-without-finish-reason")) last.erase("finish_reason");
  if (fault("final-usage-flat")) { for (auto& e : last["usage"].items()) last[e.key()] = e.value(); last.erase("usage"); }
  if (!fault("stream-without-final")) {
    if (fault("final-as-plain-text")) out += "data: [DONE]\n\n"; else event(last, true);
  }
  if (fault("stream-trailing-token")) event({{"token", "."}, {"index", k}});
  const char* type = fault("stream-as-json-type") ? "application/json" : fault("stream-as-plain-text") ? "text/plain" : fault("stream-as-octets") ? "application/x-ndjson" : "text/event-stream";
  bool slow = !peculiar("stream-at-once");
  auto text = std::make_shared<string>(out);
  S.bytes_out += out.size();
  c.r.status = 200;
  c.r.set_header("Cache-Control", "no-cache");
  c.r.set_chunked_content_provider(type, [text, slow](size_t at, httplib::DataSink& sink) {
    if (at >= text->size()) { sink.done(); return true; }
    size_t n = slow ? std::min<size_t>(600, text->size() - at) : text->size() - at;
    sink.write(text->data() + at, n);
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  });
}

static void inference(Call& c) {
  auto begin = std::chrono::steady_clock::now();
  auto ms = [&] { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count(); };
  if (!read_body(c)) return;
  Wish w;
  if (fault("refused-stream-is-event") && c.body.contains("stream") && c.body["stream"] == true) {
    Call probe{c.q, c.r, c.route, c.address, "", c.body};
    if (!read_wish(probe, w)) { string t = "data: " + c.r.body + "\n\n"; c.r.status = 200; c.r.set_content(t, "text/event-stream"); return; }
    w = Wish();
  }
  static std::atomic<int> running{0};
  struct Guard { Guard() { running++; } ~Guard() { running--; } } guard;
  if (fault("one-generation-at-a-time") && running > 1) { send_error(c, 500, "INTERNAL", "the model is busy"); return; }
  i64 before = 0;
  if (fault("counters-lost-at-once")) { Lock l(S.m); before = S.tokens_out; }
  if (!read_wish(c, w)) return;
  double queued = ms();
  auto g = std::make_shared<Generated>(generate(w.prompt, w.most, w.temperature, w.stop));
  double spent = ms() - queued;
  i64 cost = price_of(*g), shown = cost;
  {
    Lock l(S.m);
    Account* a = &S.accounts[c.address];
    if (fault("charged-to-first-account")) a = &S.accounts[S.tokens["tok-a"]];
    i64 charge = cost;
    if (fault("stream-charged-for-max-tokens") && w.stream) charge = g->prompt_tokens * 500 + i64(w.most) * 2000;
    if (a->available < charge && !fault("generation-overdraws")) {
      if (w.stream && fault("unpaid-stream-is-event")) {
        c.r.status = 200;
        c.r.set_content("data: " + json{{"error", {{"code", "INSUFFICIENT_BALANCE"}, {"message", "the account has too little"}, {"details", {{"required", units(charge)}, {"available", units(a->available)}}}}}}.dump() + "\n\n", "text/event-stream");
        return;
      }
      if (!(w.stream && fault("unpaid-stream-served"))) {
        send_error(c, 402, "INSUFFICIENT_BALANCE", "the account has too little", {{"required", units(charge)}, {"available", units(a->available)}});
        return;
      }
      charge = 0;
    }
    a->available -= charge;
    string id = S.fresh_id("gen");
    if (charge && !peculiar("charges-not-listed")) note(*a, id, "inference", -charge);
    if (!(fault("streams-not-counted") && w.stream) && !fault("requests-not-counted")) S.requests += fault("requests-counted-twice") || (fault("streams-counted-twice") && w.stream) ? 2 : 1;
    i64 add = g->tokens;
    if (fault("stream-tokens-not-counted") && w.stream) add = 0;
    if (fault("counters-lost-at-once")) S.tokens_out = before + add; else S.tokens_out += add;
    S.request_times.push_back(now_us());
    double total = ms();
    S.latencies.push_back(total);
    g->id = fault("result-id-of-prompt") ? "gen-" + sha256_hex(w.prompt).substr(0, 20) : fault("result-id-of-account") ? "gen-" + a->address : id;
  }
  if (w.stream && !fault("stream-ignored")) { answer_stream(c, g); return; }
  double total = ms();
  json t = {{"queue_ms", queued}, {"inference_ms", spent}, {"total_ms", total}};
  if (fault("timing-in-seconds")) t = {{"queue_ms", queued / 1000}, {"inference_ms", spent}, {"total_ms", total / 1000}};
  if (fault("timing-in-microseconds")) t = {{"queue_ms", queued * 1000}, {"inference_ms", spent * 1000}, {"total_ms", total * 1000}};
  int n = g->tokens;
  string text = g->text;
  json r = {{"id", g->id}, {"text", text}, {"tokens_generated", n}, {"finish_reason", g->reason}, {"usage", usage(*g, false)},
            {"cost", {{"amount", units(shown)}, {"currency", "NWT"}}}, {"timing", t}};
  send_json(c, 200, r);
}

void add_inference_routes() { add_route("POST", "/api/v1/inference", true, inference); }
