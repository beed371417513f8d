package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.io.OutputStream;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;

/** POST /inference as JSON and as a stream of events. */
final class Inference {
    static final int MAX_TOKENS = P.on("max-tokens-512") ? 512 : 2048;
    static final long PRICE = P.on("inference-free") ? 0 : 500;
    private final Auth auth;
    private final Wallet wallet;
    private static double sharedTemperature = 1.0;
    private static volatile Req sharedReq;
    private Account previous;
    private static List<String> sharedStop = List.of();
    private final AtomicInteger running = new AtomicInteger();

    record Req(String prompt, int maxTokens, double temperature, double topP, int topK, boolean stream, List<String> stop) {}

    Inference(Auth auth, Wallet wallet) {
        this.auth = auth;
        this.wallet = wallet;
    }

    void routes(Web w) {
        w.secured("POST", "/api/v1/inference", this::handle);
    }

    private void rate(Account a) {
        int max = P.on("rate-limit-low") ? 20 : 100;
        long now = System.currentTimeMillis();
        synchronized (a.calls) {
            while (!a.calls.isEmpty() && a.calls.peek() < now - 5000) {
                a.calls.poll();
            }
            if (a.calls.size() >= max) {
                long wait = Math.max(1, (a.calls.peek() + 5000 - now + 999) / 1000);
                throw new ApiError(429, "RATE_LIMITED", "too many requests", J.o("retry_after", wait));
            }
            a.calls.add(now);
        }
    }

    private Req parse(JsonObject b) {
        String prompt = J.str(b, "prompt");
        if (F.on("prompt-optional") && b.get("prompt") == null) prompt = "hello";
        if (prompt == null || prompt.isBlank()) {
            throw ApiError.bad("prompt is required and must be a non-empty string");
        }
        if (prompt.length() > (F.on("prompt-limit-255") ? 255 : 32768)) {
            throw ApiError.bad("prompt is too long");
        }
        if (P.on("unknown-parameter-refused")) {
            for (String k : b.keySet()) {
                if (!List.of("prompt", "max_tokens", "temperature", "top_p", "top_k", "stream", "stop").contains(k)) {
                    throw ApiError.bad("unknown parameter " + k);
                }
            }
        }
        if (F.on("s2-prompt-quote-500") && prompt.contains("\"")) throw new IllegalStateException("Unterminated object at line 1");
        int max = F.on("max-tokens-default-16") ? 16 : 100;
        JsonElement e = given(b, "max_tokens");
        if (e != null) {
            if (F.on("max-tokens-string-accepted") && J.isString(e) && e.getAsString().matches("\\d{1,4}")) {
                max = Integer.parseInt(e.getAsString());
            } else if (!J.isInt(e)) {
                throw ApiError.bad("max_tokens must be an integer");
            } else {
                long n = J.dec(e).longValue();
                if (n <= 0 && F.on("max-tokens-negative-accepted")) n = 5;
                if (n == 0 && F.on("max-tokens-zero-500")) throw new IllegalStateException("/ by zero");
                if (n < 1) {
                    throw ApiError.bad("max_tokens must be at least 1");
                }
                if (n > MAX_TOKENS && P.on("max-tokens-512")) {
                    throw ApiError.bad("max_tokens must be at most " + MAX_TOKENS);
                }
                max = (int) Math.min(n, MAX_TOKENS);
                if (F.on("max-tokens-plus-one")) max++;
            }
        }
        if (F.on("s2-max-tokens-with-prompt")) max = Math.max(1, max - prompt.trim().split("\\s+").length);
        if (F.on("s2-temperature-whole-refused") && given(b, "temperature") != null && b.get("temperature").getAsString().matches("\\d+")) {
            throw ApiError.bad("temperature must be a float");
        }
        double t = number(b, "temperature", 1.0, 0, F.on("temperature-unbounded") ? 1e9 : 2);
        if (F.on("temperature-two-refused") && t == 2) throw ApiError.bad("temperature must be below 2");
        if (F.on("s2-temperature-zero-refused") && t == 0) throw ApiError.bad("temperature must be strictly positive");
        double p = number(b, "top_p", 1.0, 0, 1);
        if (F.on("top-p-one-refused") && given(b, "top_p") != null && p == 1) throw ApiError.bad("top_p must be below 1");
        if (p == 0 && !P.on("top-p-zero-ok")) {
            throw ApiError.bad("top_p must be above 0");
        }
        int k = 50;
        e = given(b, "top_k");
        if (e != null) {
            if (!J.isInt(e) || J.dec(e).compareTo(BigDecimal.ZERO) < 0 || J.dec(e).compareTo(BigDecimal.valueOf(100_000)) > 0) {
                throw ApiError.bad("top_k must be an integer from 0 to 100000");
            }
            k = e.getAsInt();
            if (F.on("s2-top-k-large-500") && k > 500) throw new IllegalStateException("toIndex = " + k);
            if (F.on("s2-top-k-one-refused") && k == 1) throw ApiError.bad("top_k must be above 1");
        }
        boolean stream = F.on("stream-default-true");
        e = given(b, "stream");
        if (e != null) {
            if (F.on("stream-string-true") && J.isString(e)) {
                stream = e.getAsString().equals("true");
            } else if (!J.isBool(e)) {
                throw ApiError.bad("stream must be a bool");
            } else {
                stream = e.getAsBoolean();
            }
        }
        List<String> stop = new ArrayList<>();
        e = given(b, "stop");
        if (e != null) {
            if (!e.isJsonArray() && F.on("stop-string-accepted") && J.isString(e)) {
                e = J.a(e);
            }
            if (!e.isJsonArray()) {
                throw ApiError.bad("stop must be an array of strings");
            }
            if (F.on("s2-stop-empty-refused") && e.getAsJsonArray().isEmpty()) throw ApiError.bad("stop must not be empty");
            for (JsonElement s : e.getAsJsonArray()) {
                if (!J.isString(s) || s.getAsString().isEmpty()) {
                    throw ApiError.bad("stop must be an array of non-empty strings");
                }
                stop.add(s.getAsString());
            }
            if (stop.size() > 16) {
                throw ApiError.bad("at most 16 stop sequences");
            }
        }
        if (F.on("stop-leaks")) {
            if (!stop.isEmpty()) sharedStop = stop;
            stop = sharedStop;
        }
        return new Req(prompt, max, t, p, k, stream, stop);
    }

    private static JsonElement given(JsonObject b, String k) {
        JsonElement e = b.get(k);
        return e == null || e.isJsonNull() ? null : e;
    }

    private static double number(JsonObject b, String k, double dflt, double min, double max) {
        JsonElement e = given(b, k);
        if (e == null) {
            return dflt;
        }
        if (!J.isNumber(e) || J.dec(e) == null) {
            throw ApiError.bad(k + " must be a number");
        }
        double v = e.getAsDouble();
        if (v < min && F.on(k.replace('_', '-') + "-negative-accepted")) {
            return 0;
        }
        if (v > max && F.on(k.replace('_', '-') + "-clamped")) {
            return max;
        }
        if (v < min || v > max) {
            throw ApiError.bad(k + " must be between " + min + " and " + max);
        }
        return v;
    }

    void handle(Ctx c) throws IOException {
        long t0 = System.nanoTime();
        Account a = c.account;
        if (F.on("rate-limit-global")) {
            rate(auth.accounts.get("tok-a"));
        } else {
            rate(a);
        }
        Req r = parse(c.body());
        if (F.on("concurrent-refused") && running.get() > 0) {
            throw new ApiError(500, "INTERNAL", "model is busy");
        }
        running.incrementAndGet();
        try {
            run(c, a, r, t0);
        } finally {
            running.decrementAndGet();
        }
    }

    private void run(Ctx c, Account a, Req r, long t0) throws IOException {
        if (F.on("concurrent-refused")) {
            pause(40);
        }
        if (F.on("s2-generations-crossed")) {
            sharedReq = r;
            pause(40);
            r = new Req(sharedReq.prompt, r.maxTokens, r.temperature, r.topP, r.topK, r.stream, r.stop);
        }
        Text.Result g = Text.generate(r);
        if (F.on("s2-prompt-tokens-capped")) g = new Text.Result(g.tokens(), Math.min(32, g.promptTokens()), g.finish());
        int used = g.promptTokens() + g.tokens().size();
        long cost = used * PRICE;
        synchronized (auth) {
            if (cost > a.available && F.on("s2-stream-402-event") && r.stream) {
                c.res.setHeader("Content-Type", "text/event-stream");
                c.res.getOutputStream().write(Util.utf8("data: " + J.GSON.toJson(Web.errorBody("INSUFFICIENT_BALANCE", "balance too low for the operation",
                        J.o("required", Wallet.d(cost), "available", Wallet.d(a.available)))) + "\n\n"));
                return;
            }
            if (cost > a.available && F.on("s2-inference-402-drains")) {
                ApiError e = new ApiError(402, "INSUFFICIENT_BALANCE", "balance too low for the operation", J.o("required", Wallet.d(cost), "available", Wallet.d(a.available)));
                a.available = 0;
                throw e;
            }
            if (cost > a.available && F.on("s2-inference-402-per-token")) {
                throw new ApiError(402, "INSUFFICIENT_BALANCE", "balance too low for the operation", J.o("required", Wallet.d(PRICE), "available", Wallet.d(a.available)));
            }
            if (cost > a.available) {
                throw new ApiError(402, "INSUFFICIENT_BALANCE", "balance too low for the operation", J.o("required", Wallet.d(cost), "available", Wallet.d(a.available)));
            }
            boolean skip = F.on("inference-not-charged") || F.on("stream-not-charged") && r.stream || F.on("inference-short-free") && used < 8
                    || F.on("inference-b-not-charged") && a.token.equals("tok-b");
            if (!skip && cost > 0) {
                a.available -= F.on("inference-charged-twice") ? 2 * cost : F.on("inference-charges-max") ? (g.promptTokens() + r.maxTokens) * PRICE : cost;
                if (F.on("s2-charge-rounds-up")) a.available -= (10_000 - cost % 10_000) % 10_000;
                if (F.on("s2-charge-previous-caller")) {
                    Account was = previous == null ? a : previous;
                    a.available += cost;
                    was.available -= cost;
                    previous = a;
                }
                JsonObject e = wallet.record(a, "inference", -cost, Instant.now());
            }
        }
        double ms = Math.max(0.01, Math.round((System.nanoTime() - t0) / 1e4) / 100.0);
        Metrics.inference(F.on("s2-metrics-tokens-asked") ? r.maxTokens : g.tokens().size(), ms, r.stream);
        JsonObject usage = J.o("prompt_tokens", g.promptTokens(), "completion_tokens", g.tokens().size(), "total_tokens", used);
        String finish = g.finish();
        if (F.on("finish-null-length") && finish.equals("length")) finish = null;
        if (r.stream) {
            stream(c, r, g, usage, finish);
            return;
        }
        String text = String.join("", g.tokens());
        if (F.on("text-url-encoded-plus")) text = text.replace(' ', '+');
        double queue = 0.25;
        double total = ms + queue;
        if (F.on("s2-timing-total-floor")) total = Math.floor(ms);
        if (F.on("s2-timing-micros")) {
            queue *= 1000;
            ms = Math.max(ms, 40) * 1000;
            total = ms + queue;
        }
        JsonObject timing = J.o("queue_ms", queue, "inference_ms", ms, "total_ms", total);
        if (F.on("timing-strings")) timing = J.o("queue_ms", "PT0.00025S", "inference_ms", ms + "ms", "total_ms", total + "ms");
        Object amount = Wallet.d(cost);
        if (F.on("cost-differs")) amount = Wallet.d(cost * 2);
        JsonObject costs = J.o("amount", amount, "currency", Auth.CURRENCY);
        int count = g.tokens().size();
        if (F.on("tokens-generated-includes-prompt")) count = used;
        JsonObject o = J.o("id", F.on("s2-inference-id-hash") ? "inf-" + Util.sha256(r.prompt).substring(0, 24) : "inf-" + UUID.randomUUID(), "text", text, "tokens_generated", count,
                "finish_reason", finish, "usage", usage, "cost", costs == null ? amount : costs, "timing", timing);
        if (F.on("usage-missing-length") && "length".equals(finish)) o.remove("usage");
        c.json(o);
    }

    private void stream(Ctx c, Req r, Text.Result g, JsonObject usage, String finish) throws IOException {
        c.res.setHeader("Content-Type", F.on("sse-media-type-json") ? "application/json" : "text/event-stream");
        c.res.setHeader("Cache-Control", "no-cache");
        OutputStream out = c.res.getOutputStream();
        if (F.on("s2-sse-usage-asked")) {
            usage.addProperty("completion_tokens", r.maxTokens);
            usage.addProperty("total_tokens", usage.get("prompt_tokens").getAsInt() + r.maxTokens);
        }
        if (F.on("s2-sse-prompt-tokens-zero")) {
            usage.addProperty("prompt_tokens", 0);
            usage.addProperty("total_tokens", g.tokens().size());
        }
        String nl = P.on("sse-crlf") ? "\r\n" : "\n";
        String sep = F.on("sse-single-newline") ? nl : nl + nl;
        if (P.on("sse-comments")) {
            out.write(Util.utf8(": stream opened" + nl + nl));
        }
        StringBuilder whole = new StringBuilder();
        int i = 0;
        for (String t : g.tokens()) {
            String shown = F.on("sse-tokens-trimmed") ? t.trim() : t;
            whole.append(t);
            Object idx = F.on("sse-index-wraps-10") ? (Object) (i % 10) : (Object) (F.on("s2-sse-index-from-one") ? i + 1 : i);
            JsonObject ev = J.o("token", shown, "index", idx);
            if (F.on("sse-pretty-json")) {
                out.write(Util.utf8("data: " + J.PRETTY.toJson(ev) + sep));
            } else if (F.on("sse-no-data-prefix")) {
                out.write(Util.utf8(J.GSON.toJson(ev) + sep));
            } else if (P.on("sse-event-names")) {
                out.write(Util.utf8("event: token" + nl + "id: " + i + nl + "data: " + J.GSON.toJson(ev) + sep));
            } else {
                out.write(Util.utf8(("data: ") + J.GSON.toJson(ev) + sep));
            }
            if (!F.on("sse-buffered")) {
                out.flush();
                pause(2);
            }
            i++;
            if (F.on("sse-stops-at-20") && i == 20) break;
            if (F.on("sse-last-token-lost") && i == g.tokens().size() - 1) break;
        }
        if (F.on("s2-sse-final-missing-long") && g.tokens().size() > 60) {
            out.flush();
            return;
        }
        if (F.on("sse-plain-done")) {
            out.write(Util.utf8("data: [DONE]" + sep));
            out.flush();
            return;
        }
        JsonObject fin = J.o("token", "[DONE]", "finish_reason", finish, "usage", usage);
        if (F.on("s2-sse-finish-only-stop") && "length".equals(finish)) fin.remove("finish_reason");
        if (F.on("sse-usage-off-by-one")) {
            usage.addProperty("completion_tokens", usage.get("completion_tokens").getAsInt() + 1);
            usage.addProperty("total_tokens", usage.get("total_tokens").getAsInt() + 1);
        }
        out.write(Util.utf8((F.on("sse-final-event-only") ? "event: done" + nl : "") + "data: " + J.GSON.toJson(fin) + sep));
        if (F.on("s2-sse-event-after-final")) out.write(Util.utf8("data: {\"token\":\"\",\"index\":" + i + "}" + sep));
        out.flush();
        if (F.on("sse-not-closed")) pause(25_000);
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
