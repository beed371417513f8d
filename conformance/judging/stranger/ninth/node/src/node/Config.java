package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;

/** GET and PATCH /config. */
final class Config {
    private final Node node;
    private final Map<String, Object> values = new LinkedHashMap<>();
    private JsonObject cached;
    private Map<String, Object> initial;
    private long changedAt;
    private int reads;

    /** The values that are shown. */
    private Map<String, Object> now() {
        if (F.on("s2-config-reverts") && changedAt > 0 && System.currentTimeMillis() - changedAt > 6000) {
            values.putAll(initial);
            changedAt = 0;
        }
        return values;
    }

    Config(Node node) {
        this.node = node;
        values.put("tracker_url", "http://tracker.ninth.example:3000");
        values.put("training.enabled", true);
        values.put("training.batch_size", 8);
        values.put("training.learning_rate", 0.0003);
        values.put("training.diloco_steps", 64);
        values.put("resources.max_memory_gb", 6.5);
        values.put("resources.cpu_threads", 4);
        initial = new LinkedHashMap<>(values);
    }

    void routes(Web w) {
        w.secured("GET", "/api/v1/config", c -> c.json(view()));
        w.secured(F.on("config-put") ? "PUT" : "PATCH", "/api/v1/config", this::patch);
    }

    synchronized boolean flag(String k) {
        return (Boolean) now().get(k);
    }

    synchronized double number(String k) {
        return ((Number) now().get(k)).doubleValue();
    }

    synchronized JsonObject view() {
        Map<String, Object> values = now();
        if (F.on("s2-config-two-workers") && reads++ % 2 == 1) values = initial;
        int grpc = F.on("config-grpc-port-default") ? 9000 : node.port + 1000;
        JsonObject t = J.o("enabled", values.get("training.enabled"), "batch_size", values.get("training.batch_size"),
                "learning_rate", values.get("training.learning_rate"), "diloco_steps", values.get("training.diloco_steps"));
        JsonObject r = J.o("max_memory_gb", values.get("resources.max_memory_gb"), "cpu_threads", values.get("resources.cpu_threads"));
        JsonObject o = J.o("node_id", node.idHex, "port", node.port, "grpc_port", grpc,
                "tracker_url", values.get("tracker_url"), "training", t, "resources", r);
        return o;
    }

    void patch(Ctx c) throws IOException {
        JsonObject b = c.body();
        Map<String, Object> changes = new LinkedHashMap<>();
        JsonArray updated = new JsonArray();
        boolean restart = false;
        boolean applyEarly = F.on("config-partial-applied") || F.on("s2-config-half-applied");
        Map<String, Object> copy = new LinkedHashMap<>(values);
        if (F.on("s2-config-concurrent-lost")) {
            try {
                Thread.sleep(40);
            } catch (InterruptedException x) {
                Thread.currentThread().interrupt();
            }
        }
        synchronized (this) {
            for (Map.Entry<String, JsonElement> e : b.entrySet()) {
                if (e.getKey().equals("training") || e.getKey().equals("resources")) {
                    if (!e.getValue().isJsonObject()) {
                        throw ApiError.bad(e.getKey() + " must be an object");
                    }
                    if (F.on("s2-config-whole-section") && e.getValue().getAsJsonObject().size() < (e.getKey().equals("training") ? 4 : 2)) {
                        throw ApiError.bad(e.getKey() + " lacks a key");
                    }
                    for (Map.Entry<String, JsonElement> x : e.getValue().getAsJsonObject().entrySet()) {
                        put(changes, updated, e.getKey() + "." + x.getKey(), x.getValue());
                        if (applyEarly) values.putAll(changes);
                    }
                } else {
                    put(changes, updated, e.getKey(), e.getValue());
                }
            }
            for (String k : changes.keySet()) {
                restart |= k.startsWith("resources.") || k.equals("tracker_url");
            }
            if (F.on("config-resources-not-applied")) changes.keySet().removeIf(k -> k.startsWith("resources."));
            if (F.on("config-siblings-reset") && changes.containsKey("training.batch_size")) {
                values.put("training.learning_rate", 0.0);
                values.put("training.diloco_steps", 0);
            }
            if (F.on("s2-config-last-key-only") && changes.size() > 1) {
                String last = updated.get(updated.size() - 1).getAsString();
                changes.keySet().removeIf(k -> !k.equals(last));
            }
            if (F.on("s2-config-enabled-once") && Boolean.TRUE.equals(changes.get("training.enabled"))) changes.remove("training.enabled");
            if (F.on("s2-config-concurrent-lost")) values.putAll(copy);
            changedAt = System.currentTimeMillis();
            values.putAll(changes);
        }
        if (F.on("s2-config-updated-siblings")) {
            JsonArray l = new JsonArray();
            values.keySet().stream().filter(k -> b.has(k.split("\\.")[0])).forEach(l::add);
            updated = l;
        }
        if (F.on("config-updated-leaf-names")) {
            JsonArray l = new JsonArray();
            updated.forEach(x -> l.add(x.getAsString().substring(x.getAsString().lastIndexOf('.') + 1)));
            updated = l;
        }
        JsonObject r = J.o("success", true, "updated", updated, "restart_required", (Object) restart);
        if (F.on("config-restart-missing-false") && !restart) r.remove("restart_required");
        c.json(r);
    }

    private void put(Map<String, Object> changes, JsonArray updated, String key, JsonElement v) {
        Object old = values.get(key);
        if (key.equals("port") && F.on("config-port-changed")) {
            updated.add(key);
            return;
        }
        if (key.equals("node_id") || key.equals("port") || key.equals("grpc_port")) {
            throw ApiError.bad(key + " cannot be changed");
        }
        if (P.on("tracker-read-only") && key.equals("tracker_url")) {
            throw new ApiError(409, "READ_ONLY", "tracker_url cannot be changed here");
        }
        if (old == null) {
            if (P.on("unknown-config-ignored")) return;
            throw ApiError.bad("unknown key " + key);
        }
        Object val;
        if (F.on("s2-config-array-number") && v.isJsonArray() && v.getAsJsonArray().size() == 1) v = v.getAsJsonArray().get(0);
        if (old instanceof Boolean) {
            if (F.on("config-bool-from-string") && J.isString(v)) {
                val = Boolean.parseBoolean(v.getAsString());
            } else if (!J.isBool(v)) {
                throw ApiError.bad(key + " must be a bool");
            } else {
                val = v.getAsBoolean();
            }
        } else if (old instanceof Integer) {
            if (F.on("config-int-from-string") && J.isString(v) && v.getAsString().matches("\\d{1,6}")) {
                val = Integer.valueOf(v.getAsString());
            } else if (F.on("config-int-truncates") && J.isNumber(v) && !J.isInt(v)) {
                val = v.getAsInt();
            } else if (!J.isInt(v) || J.dec(v).longValue() < (1) || J.dec(v).longValue() > 1_000_000) {
                throw ApiError.bad(key + " must be an integer of at least 1");
            } else {
                val = v.getAsInt();
            }
        } else if (old instanceof Double) {
            if (!J.isNumber(v) || J.dec(v) == null || J.dec(v).signum() <= 0 || v.getAsDouble() > 1e6) {
                throw ApiError.bad(key + " must be a positive number");
            }
            val = F.on("config-learning-rate-float32") ? (double) v.getAsFloat() : v.getAsDouble();
            if (F.on("s2-config-rate-rounded")) val = Math.max(0.0001, Math.round(v.getAsDouble() * 1e4) / 1e4);
        } else {
            if (!J.isString(v) || !v.getAsString().matches("https?://[^\\s]{1,200}")) {
                throw ApiError.bad(key + " must be an http address");
            }
            val = v.getAsString();
        }
        if (F.on("config-learning-rate-not-reported") && key.equals("training.learning_rate")) {
            changes.put(key, val);
            return;
        }
        changes.put(key, val);
        updated.add(key);
    }
}
