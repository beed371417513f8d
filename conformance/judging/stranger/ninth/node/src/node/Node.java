package node;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;

/** What the node knows of itself and of its network. */
final class Node {
    static final int LAYERS = 8;
    static final int FIRST = 4;
    static final String VERSION = "1.6.2";
    final int port;
    final long startMillis = System.currentTimeMillis();
    final Instant started = Instant.now();
    final byte[] id;
    final String idHex;
    final List<JsonObject> peers = new ArrayList<>();
    final List<JsonObject> proofs = new ArrayList<>();
    final Config config;
    final Model model = new Model();
    Chain chain;

    Node(int port) {
        this.port = port;
        this.id = Util.digest("SHA-1", Keys.named("node").publicKey());
        this.idHex = Util.hex(id);
        this.config = new Config(this);
        peer("alpha", 7101, "driver", List.of(0, 1), 11.25, 90);
        peer("bravo", 7102, "worker", List.of(2, 3), 18.5, 75);
        peer("carol", 7103, "worker", List.of(0, 1, 2, 3), 24.0, 60);
        peer("delta", 7104, "validator", List.of(6, 7), 9.75, 45);
        peer("eagle", 7105, "worker", List.of(4, 5), 31.125, 30);
        Instant t = started.minus(20, ChronoUnit.HOURS);
        for (int i = 0; i < 30; i++) {
            t = t.plus(37, ChronoUnit.MINUTES);
            boolean ok = i % 7 != 3;
            proofs.add(J.o("id", "proof-" + Util.sha256("p" + i).substring(0, 12), "type", i % 5 == 4 ? "backward" : "forward", "layer", FIRST + i % 4,
                    "timestamp", Util.time(t), "verified", ok, "reward", ok ? 0.25 : 0.0));
        }
    }

    private void peer(String name, int p, String role, List<Integer> layers, double ms, int minutes) {
        peers.add(J.o("id", Util.hex(Util.digest("SHA-1", name.getBytes(StandardCharsets.UTF_8))), "address", "10.0.0." + (p % 100) + ":" + p,
                "role", role, "layers", layers, "latency_ms", ms, "connected_since", Util.time(started.minus(minutes, ChronoUnit.MINUTES))));
    }

    long uptime() {
        return (System.currentTimeMillis() - startMillis) / 1000;
    }

    List<Integer> layers() {
        return List.of(4, 5, 6, 7);
    }

    int globalStep() {
        return 100 + model.version * 50;
    }

    double loss() {
        return model.loss();
    }
}
