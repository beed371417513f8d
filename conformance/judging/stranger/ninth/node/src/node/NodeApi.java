package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.time.Instant;
import java.util.List;

/** Read-only routes of the node API. */
final class NodeApi {
    private final Node node;
    private int statusCalls;
    private int smallestLimit = 1000;

    NodeApi(Node node) {
        this.node = node;
    }

    void routes(Web w) {
        w.on("GET", "/api/v1/status", this::status);
        w.on("GET", "/api/v1/metrics", c -> c.json(Metrics.view(node)));
        w.on("GET", "/api/v1/health", this::health);
        w.secured("GET", "/api/v1/peers", this::peers);
        w.secured("GET", "/api/v1/layers", this::layers);
        if (F.on("network-needs-token")) {
            w.secured("GET", "/api/v1/network", this::network);
        } else {
            w.on("GET", "/api/v1/network", this::network);
        }
        w.secured("GET", "/api/v1/proofs", this::proofs);
        String t = F.on("training-under-v1") ? "/api/v1/training" : "/api/training";
        w.on("GET", t + "/global", this::global);
        if (F.on("verify-needs-token")) {
            w.secured("GET", t + "/verify", this::verify);
        } else {
            w.on("GET", t + "/verify", this::verify);
        }
    }

    void status(Ctx c) throws IOException {
        statusCalls++;
        Object up = node.uptime();
        if (F.on("uptime-iso-duration")) up = java.time.Duration.ofSeconds(node.uptime()).toString();
        if (F.on("s2-uptime-minutes")) up = node.uptime() / 60 * 60;
        if (F.on("s2-uptime-epoch")) up = System.currentTimeMillis() / 1000;
        if (F.on("s2-uptime-double")) up = node.uptime() * 2;
        Object layers = node.layers();
        if (F.on("status-layers-differ")) layers = List.of(4, 5, 6);
        if (F.on("status-layers-doubles")) layers = List.of(4.0, 5.0, 6.0, 7.0);
        int epoch = node.model.epoch();
        int step = node.globalStep();
        Object loss = node.loss();
        JsonObject training = J.o("enabled", node.config.flag("training.enabled"), "epoch", epoch, "step", step, "loss", loss);
        if (F.on("status-training-enabled-stale")) training.addProperty("enabled", true);
        Runtime rt = Runtime.getRuntime();
        long used = (rt.totalMemory() - rt.freeMemory()) >> 20;
        JsonObject res = J.o("gpu_memory_used", 2048, "gpu_memory_total", 8192, "cpu_percent", 12.5, "ram_used", used);
        if (F.on("s2-status-gpu-units")) res.addProperty("gpu_memory_total", 8);
        if (F.on("status-ram-float")) res.addProperty("ram_used", used + 0.5);
        String role = F.on("s2-status-role-capital") ? "Validator" : "validator";
        JsonObject o = J.o("node_id", F.on("status-node-id-signed") ? signed(node.id) : node.idHex, "version", Node.VERSION, "uptime_seconds", up,
                "status", P.on("status-syncing") ? "syncing" : "running",
                "role", role, "layers", layers, "peer_count", F.on("status-peer-count-off") ? node.peers.size() + 1 : node.peers.size(), "training", training == null ? J.el(true) : training, "resources", res);
        c.json(o);
    }

    private static String signed(byte[] b) {
        StringBuilder sb = new StringBuilder();
        for (byte x : b) {
            sb.append(Integer.toHexString(x));
        }
        return sb.toString();
    }

    void health(Ctx c) throws IOException {
        JsonObject checks = J.o("gpu", "ok", "network", "ok", "storage", "ok", "peers", "ok");
        if (F.on("health-checks-bools")) checks.entrySet().forEach(e -> e.setValue(J.el(true)));
        if (F.on("health-peers-missing")) checks.remove("peers");
        c.json(J.o("healthy", F.on("s2-health-healthy-word") ? (Object) "ok" : (Object) true, "checks", checks));
    }

    void peers(Ctx c) throws IOException {
        JsonArray a = new JsonArray();
        for (JsonObject p : node.peers) {
            JsonObject o = p.deepCopy();
            if (F.on("peer-address-slash")) o.addProperty("address", "/" + o.get("address").getAsString());
            if (F.on("peer-layers-null") && o.get("role").getAsString().equals("driver")) o.add("layers", J.el(null));
            if (F.on("peer-since-java")) o.addProperty("connected_since", java.util.Date.from(Instant.parse(o.get("connected_since").getAsString())).toString());
            if (F.on("s2-peer-address-url")) o.addProperty("address", "http://" + o.get("address").getAsString());
            if (F.on("s2-peer-since-future")) o.addProperty("connected_since", Util.time(Instant.parse(o.get("connected_since").getAsString()).plusSeconds(19800)));
            if (F.on("s2-peer-latency-negative") && o.get("latency_ms").getAsDouble() > 30) o.addProperty("latency_ms", -1.0);
            if (F.on("s2-peers-first-three") && a.size() == 3) continue;
            a.add(o);
        }
        int total = F.on("peers-total-off") ? a.size() - 1 : node.peers.size();
        if (F.on("peers-map")) {
            JsonObject m = new JsonObject();
            a.forEach(x -> m.add(x.getAsJsonObject().get("id").getAsString(), x));
            c.json(J.o("peers", m, "total", total));
            return;
        }
        c.json(J.o("peers", a, "total", total));
    }

    void layers(Ctx c) throws IOException {
        JsonArray a = new JsonArray();
        for (int i : node.layers()) {
            JsonObject l = J.o("index", F.on("layer-index-from-zero") ? i - Node.FIRST : i, "type", "transformer", "memory_mb", 64 + i,
                    "status", "active");
            if (F.on("s2-layer-memory-text")) l.addProperty("memory_mb", (64 + i) + " MB");
            a.add(l);
            if (F.on("s2-layers-head-twice") && i == 7) a.add(J.o("index", i, "type", "head", "memory_mb", 12, "status", "active"));
        }
        int mine = a.size();
        c.json(J.o("layers", a, "total_layers", F.on("layers-total-is-mine") ? mine : Node.LAYERS,
                "my_layer_count", F.on("layers-count-off") ? mine + 1 : mine));
    }

    void network(Ctx c) throws IOException {
        int drivers = 0;
        int workers = 0;
        int validators = 1;
        for (JsonObject p : node.peers) {
            switch (p.get("role").getAsString()) {
                case "driver" -> drivers++;
                case "worker" -> workers++;
                default -> validators++;
            }
        }
        int total = drivers + workers + validators;
        if (F.on("s2-network-total-short")) total -= 2;
        JsonObject train = J.o("epoch", node.model.epoch(), "global_step", node.globalStep(), "loss", node.loss());
        if (F.on("network-step-behind")) train.addProperty("global_step", 7);
        Object params = F.on("s2-network-parameters-number") ? (Object) 1152 : (Object) "1152";
        c.json(J.o("nodes", J.o("total", total, "drivers", drivers, "workers", workers, "validators", validators),
                "architecture", J.o("layers", Node.LAYERS, "hidden_dim", Model.H, "parameters", params),
                "capacity", J.o("total_memory_gb", 96.0, "used_memory_gb", 41.5),
                "training", train));
    }

    void proofs(Ctx c) throws IOException {
        int limit = c.intParam("limit", 20, 1, P.on("page-max-10") ? 10 : 100);
        if (F.on("proofs-limit-ignored")) limit = 100;
        if (F.on("s2-proofs-limit-sticky")) {
            smallestLimit = Math.min(smallestLimit, limit);
            limit = smallestLimit;
        }
        JsonArray a = new JsonArray();
        double reward = 0;
        int verified = 0;
        for (int i = node.proofs.size() - 1; i >= 0; i--) {
            JsonObject p = node.proofs.get(i).deepCopy();
            boolean ok = p.get("verified").getAsBoolean();
            reward += p.get("reward").getAsDouble();
            verified += ok || F.on("s2-proofs-all-verified") ? 1 : 0;
            if (F.on("s2-proofs-last-page") ? i < limit : a.size() < limit) a.add(p);
        }
        int total = node.proofs.size();
        JsonObject stats = J.o("total_submitted", total, "total_verified", verified, "total_reward", F.on("s2-proofs-reward-micros") ? reward * 1e6 : reward);
        JsonObject r = J.o("proofs", a, "stats", stats);
        c.json(r);
    }

    private boolean diverged() {
        return P.on("diverged");
    }

    void global(Ctx c) throws IOException {
        boolean div = diverged();
        int ok = 48;
        int failed = 2;
        Object rate = div ? 0.75 : 1.0;
        if (F.on("global-agreement-percent")) rate = 100.0;
        double sync = ok / (double) (ok + failed);
        if (F.on("global-sync-int-division")) sync = ok / (ok + failed);
        double avg = node.loss();
        double min = F.on("global-min-above-avg") ? avg + 0.5 : avg * 0.9;
        int steps = (int) node.config.number("training.diloco_steps");
        int inner = F.on("s2-diloco-inner-above") ? 17 : Math.min(17, steps);
        JsonObject diloco = J.o("enabled", true, "inner_step_count", inner, "inner_steps_total", steps,
                "progress", F.on("diloco-progress-percent") ? inner * 100.0 / steps : inner / (double) steps, "outer_step_count", node.model.version);
        JsonObject local = J.o("node_id", F.on("global-local-id-differs") ? Util.sha256("other").substring(0, 40) : node.idHex, "training_rounds", node.model.version,
                "current_loss", avg, "is_training", node.config.flag("training.enabled"));
        JsonObject o = J.o("global_avg_loss", avg, "global_min_loss", min, "hash_agreement_rate", rate, "total_nodes_training", 4,
                "successful_syncs", ok, "failed_syncs", failed, "sync_success_rate", sync, "global_steps", node.globalStep(), "global_tokens", 1_843_200,
                "data_shards_covered", J.a(0, 1, 2, 5), "is_converging", !div, "training_verified", !div, "loss_trend", div ? "diverging" : "improving",
                "local", local, "diloco", diloco);
        if (F.on("s2-global-shards-text")) o.add("data_shards_covered", J.a("0", "1", "2", "5"));
        if (F.on("s2-global-avg-below-min")) o.addProperty("global_avg_loss", avg * 0.8);
        if (F.on("global-tokens-overflow")) o.addProperty("global_tokens", (int) 3_500_000_000L);
        if (F.on("global-verified-contradicts")) o.addProperty("training_verified", false);
        if (F.on("global-is-getter-names")) {
            o.add("converging", o.remove("is_converging"));
        }
        c.json(o);
    }

    void verify(Ctx c) throws IOException {
        if (diverged()) {
            c.json(J.o("is_working", false, "reason", "hash agreement is 75%: nodes have diverged", "action", "resynchronise from the latest checkpoint"));
            return;
        }
        Object agree = "100.0%";
        if (F.on("verify-agreement-unscaled")) agree = "1.0%";
        JsonObject m = J.o("loss_trend", "improving", "hash_agreement", agree, "global_loss", F.on("verify-loss-differs") ? node.loss() + 0.7 : node.loss());
        if (F.on("s2-verify-trend-differs")) m.addProperty("loss_trend", "stable");
        if (F.on("verify-global-loss-string")) m.addProperty("global_loss", String.format(java.util.Locale.GERMANY, "%.4f", node.loss()));
        JsonObject o = J.o("is_working", true, "reason", "loss is improving and all nodes agree", "metrics", m);
        if (F.on("verify-not-working-with-metrics")) o.addProperty("is_working", false);
        c.json(o);
    }
}
