package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;

/** Genesis, data set, adapters and the content-addressed mirror. */
final class Artifacts {
    final byte[] genesis;
    final byte[] dataset;
    final String genesisHash;
    private final Map<Integer, byte[]> adapters = new LinkedHashMap<>();
    private final Map<String, byte[]> bySha = new LinkedHashMap<>();

    Artifacts() {
        JsonArray shards = new JsonArray();
        for (int i = 0; i < 4; i++) {
            JsonArray ids = new JsonArray();
            for (int k = 0; k < 64; k++) {
                ids.add((i * 37 + k * 11) % Model.VOCAB);
            }
            shards.add(J.o("index", i, "tokens", ids));
        }
        dataset = Util.utf8(J.GSON.toJson(J.o("chain_id", Chain.ID, "vocabulary", Model.VOCAB, "tokens", 256, "shards", shards)));
        JsonArray vals = new JsonArray();
        for (int i = 1; i <= 7; i++) {
            vals.add(J.o("owner", Keys.named("validator-" + i).hex(), "bond", String.valueOf(1_000_000L * (40 - 3 * i))));
        }
        JsonObject g = J.o("chain_id", Chain.ID, "genesis_time", "2026-03-01T00:00:00Z", "initial_height", 1, "validators", vals,
                "atoms_per_unit", 1_000_000, "dataset_sha256", Util.sha256(dataset), "base_root", root(0));
        genesis = Util.utf8(J.GSON.toJson(g));
        genesisHash = Util.sha256(genesis);
        bySha.put(genesisHash, genesis);
        bySha.put(Util.sha256(dataset), dataset);
    }

    synchronized byte[] adapter(int round) {
        return adapters.computeIfAbsent(round, r -> {
            byte[] b = new byte[1024];
            for (int i = 0; i < 32; i++) {
                System.arraycopy(Util.digest("SHA-256", Util.utf8("adapter " + r + " " + i)), 0, b, i * 32, 32);
            }
            bySha.put(Util.sha256(b), b);
            return b;
        });
    }

    String root(int round) {
        return Util.sha256(adapter(round));
    }

    private boolean newRound(String sha) {
        for (Map.Entry<Integer, byte[]> e : new LinkedHashMap<>(adapters).entrySet()) {
            if (e.getKey() > 60 && Util.sha256(e.getValue()).equals(sha.toLowerCase(java.util.Locale.ROOT))) return true;
        }
        return false;
    }

    void routes(Web w) {
        w.on("GET", "/network/genesis.json", c -> {
            byte[] b = genesis;
            c.send(200, "application/json", b);
        });
        w.on("GET", "/network/dataset.json", c -> {
            if (F.on("dataset-not-genesis-bound")) {
                c.send(200, "application/json", Util.utf8(new String(dataset).replace("\"tokens\":256", "\"tokens\":255")));
                return;
            }
            c.send(200, "application/json", dataset);
        });
        w.on("GET", "/artifacts/sha256/{sha}", this::serve);
    }

    private void serve(Ctx c) throws IOException {
        String sha = c.vars.get("sha");
        if (F.on("s2-artifact-abbreviated") && sha.matches("[0-9a-f]{8,63}")) {
            synchronized (this) {
                for (String k : bySha.keySet()) {
                    if (k.startsWith(sha)) sha = k;
                }
            }
        }
        if (!sha.matches("[0-9a-fA-F]{64}")) {
            throw ApiError.bad("not a SHA-256 in hex");
        }
        byte[] b;
        synchronized (this) {
            b = bySha.get(sha.toLowerCase(java.util.Locale.ROOT));
        }
        if (F.on("s2-artifact-new-missing") && b != null && b.length == 1024 && newRound(sha)) b = null;
        if (b == null) {
            throw ApiError.notFound("no such artifact");
        }
        if (F.on("s2-artifact-json-newline") && b.length > 0 && b[0] == '{') {
            b = java.util.Arrays.copyOf(b, b.length + 1);
            b[b.length - 1] = '\n';
        }
        if (F.on("artifact-utf8-mangled")) {
            b = new String(b, java.nio.charset.StandardCharsets.UTF_8).getBytes(java.nio.charset.StandardCharsets.UTF_8);
        }
        c.send(200, "application/octet-stream", b);
    }
}
