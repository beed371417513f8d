package node;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** The signed worker protocol. */
final class Work {
    private final Chain chain;
    private int remaining = 20;
    private final Map<String, JsonObject> open = new HashMap<>();
    private final Set<String> used = new HashSet<>();
    private int seq;

    Work(Chain chain) {
        this.chain = chain;
    }

    void routes(Web w) {
        w.on("GET", "/work/status", this::status);
        w.on("POST", "/work/poll", this::poll);
        w.on("POST", F.on("work-result-moved") ? "/work/submit" : "/work/result", this::result);
    }

    synchronized void status(Ctx c) throws IOException {
        JsonObject sponsor = J.o("public_key", Keys.named("treasury").hex(), "budget", "90000000");
        Object rem = remaining;
        JsonObject o = J.o("sponsor", sponsor, "stages", J.a(J.o("name", "train", "available", remaining > 0), J.o("name", "evaluate", "available", false)), "remaining_attempts", rem);
        c.json(o);
    }

    private Tx message(Ctx c, String type) throws IOException {
        String text = c.text(262_144);
        JsonElement e = J.parse(text);
        Tx t = e == null || !e.isJsonObject() ? null : Tx.of(Util.utf8(J.canonical(e)), e.getAsJsonObject());
        if (t == null && F.on("s2-work-message-500")) throw new IllegalStateException("public_key");
        if (t == null) {
            throw ApiError.bad("expected body, public_key and signature");
        }
        boolean check = !F.on("work-signature-unchecked") && !(F.on("work-result-unsigned") && type.equals("work_result"));
        if (check && !t.valid()) {
            throw new ApiError(401, "BAD_SIGNATURE", "signature does not verify");
        }
        if (!t.type().equals(type)) {
            throw ApiError.bad("type must be " + type);
        }
        if (!Chain.ID.equals(J.str(t.body(), "chain_id"))) {
            throw new ApiError(409, "WRONG_CHAIN", "wrong chain id");
        }
        if (!J.isInt(t.body().get("nonce"))) {
            throw ApiError.bad("nonce must be an integer");
        }
        if (F.on("s2-work-worker-once") && type.equals("work_poll") && open.values().stream().anyMatch(o -> o.get("worker").getAsString().equals(t.publicKey()))) {
            throw new IllegalStateException("duplicate key value violates unique constraint");
        }
        if (!used.add(t.publicKey() + ":" + t.body().get("nonce").getAsLong())) {
            throw new ApiError(409, "NONCE_USED", "nonce was used before");
        }
        return t;
    }

    synchronized void poll(Ctx c) throws IOException {
        Tx t = message(c, "work_poll");
        if (remaining <= 0) {
            c.res.setStatus(204);
            return;
        }
        if (!F.on("work-attempts-not-counted")) {
            remaining--;
        }
        String id = "work-" + ++seq;
        JsonObject a = J.o("work_id", id, "stage", "train", "round", chain.round() + 1, "base_root", chain.artifacts.root(chain.round()),
                "dataset_sha256", Util.sha256(chain.artifacts.dataset), "deadline_height", chain.height() + 60);
        a.addProperty("work_id", id);
        JsonObject o = a.deepCopy();
        o.addProperty("worker", t.publicKey());
        open.put(id, o);
        c.json(J.o("assignment", a));
    }

    synchronized void result(Ctx c) throws IOException {
        Tx t = message(c, "work_result");
        String id = J.str(t.body(), "work_id");
        JsonObject a = open.get(id);
        if (a == null && F.on("work-unknown-id-accepted")) {
            c.json(J.o("accepted", true, "reason", ""));
            return;
        }
        if (a == null || !a.get("worker").getAsString().equals(t.publicKey())) {
            throw ApiError.notFound("no such assignment");
        }
        String loss = J.str(t.body(), "loss");
        if (loss == null || !loss.matches("\\d{1,4}\\.\\d{1,12}")) {
            throw ApiError.bad("loss must be a decimal string");
        }
        if (!F.on("work-result-twice")) {
            open.remove(id);
        }
        if (a.get("round").getAsInt() != chain.round() + 1) {
            c.json(J.o("accepted", false, "reason", "the round has passed"));
            return;
        }
        if (F.on("work-result-not-on-chain")) {
            c.json(J.o("accepted", true, "reason", "", "round", chain.round() + 1, "tx_hash", t.hash()));
            return;
        }
        Chain.Update u = chain.train(t, loss);
        c.json(J.o("accepted", true, "reason", "", "round", u.round(), "root", u.root(), "tx_hash", u.txHash()));
    }
}
