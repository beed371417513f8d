package node;

import com.google.gson.JsonObject;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/** Counters behind GET /metrics. */
final class Metrics {
    static final AtomicLong bytesSent = new AtomicLong(48_211);
    static final AtomicLong bytesReceived = new AtomicLong(61_870);
    static final AtomicLong rpcCalls = new AtomicLong(17);
    static final AtomicLong requests = new AtomicLong(42);
    static final AtomicLong tokens = new AtomicLong(1680);
    static final AtomicLong submitted = new AtomicLong(310);
    static final AtomicLong accepted = new AtomicLong(297);
    private static final ArrayDeque<Long> times = new ArrayDeque<>();
    private static final List<Double> latencies = new ArrayList<>(List.of(12.5, 18.25, 31.0));
    private static String frozen;

    private Metrics() {}

    static void inference(int n, double ms, boolean stream) {
        if (F.on("s2-metrics-race")) {
            long r = requests.get();
            long t = tokens.get();
            try {
                Thread.sleep(30);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            requests.set(r);
            tokens.set(t);
        }
        count(n, ms, stream);
    }

    private static synchronized void count(int n, double ms, boolean stream) {
        if (F.on("s2-metrics-stream-twice") && stream) {
            requests.addAndGet(1);
            tokens.addAndGet(n);
        }
        if (!(F.on("metrics-stream-not-counted") && stream)) {
            requests.addAndGet(1);
        }
        if (!F.on("metrics-tokens-frozen")) {
            tokens.addAndGet(n);
        }
        times.add(System.currentTimeMillis());
        latencies.add(ms);
        if (latencies.size() > 500) {
            latencies.remove(0);
        }
    }

    static synchronized JsonObject view(Node node) {
        long now = System.currentTimeMillis();
        while (!times.isEmpty() && times.peek() < now - 60_000) {
            times.poll();
        }
        List<Double> sorted = new ArrayList<>(latencies);
        Collections.sort(sorted);
        double avg = sorted.stream().mapToDouble(x -> x).average().orElse(0);
        double p99 = sorted.get(Math.min(sorted.size() - 1, (int) (sorted.size() * 0.99)));
        if (F.on("metrics-p99-below-avg")) p99 = avg / 2;
        if (frozen == null) frozen = Util.time(Instant.now());
        long req = F.on("s2-metrics-requests-wrap") ? requests.get() % 64 : requests.get();
        long acc = accepted.get();
        JsonObject inf = J.o("requests_total", F.on("metrics-total-float") ? (Object) (double) req : (Object) req,
                "requests_per_minute", F.on("s2-metrics-nan-idle") && times.isEmpty() ? Double.NaN : (double) times.size(),
                "avg_latency_ms", Math.max(0, Math.round(avg * 100) / 100.0), "p99_latency_ms", Math.round(Math.max(p99, F.on("metrics-p99-below-avg") ? 0 : avg) * 100) / 100.0,
                "tokens_generated", tokens.get());
        Object ts = F.on("metrics-timestamp-epoch") ? (Object) (now / 1000) : (Object) (F.on("metrics-timestamp-frozen") ? frozen
                : F.on("s2-metrics-timestamp-minute") ? Util.time(Instant.now().truncatedTo(java.time.temporal.ChronoUnit.MINUTES))
                : F.on("metrics-timestamp-local") ? Util.localTime(Instant.now()) : Util.time(Instant.now()));
        JsonObject net = J.o("bytes_sent", bytesSent.get(), "bytes_received", bytesReceived.get(), "active_connections", 3,
                "rpc_calls", rpcCalls.get());
        JsonObject rewards = J.o("earned_today", 1.5, "earned_total", 37.25, "pending", 12.5);
        if (F.on("s2-metrics-rewards-strings")) rewards = J.o("earned_today", "1.50", "earned_total", "37.25", "pending", "12.50");
        bytesSent.addAndGet(500);
        return J.o("timestamp", ts, "inference", inf,
                "training", J.o("steps_total", node.globalStep(), "steps_per_hour", 120,
                        F.on("metrics-camel-case") ? "gradientsSubmitted" : "gradients_submitted", F.on("s2-metrics-gradients-swapped") ? acc : submitted.get(), "gradients_accepted", F.on("s2-metrics-gradients-swapped") ? submitted.get() : acc),
                "network", net, "rewards", rewards);
    }
}
