package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.time.Instant;
import java.util.List;

/** One committed native block. */
record Block(int height, String hash, String previous, Instant time, String proposer, String appHash, List<Tx> txs) {
    static Block make(int height, String previous, Instant time, String proposer, String appHash, List<Tx> txs) {
        JsonArray roots = new JsonArray();
        txs.forEach(t -> roots.add(t.hash()));
        JsonObject header = J.o("chain_id", Chain.ID, "height", height, "previous", previous, "time", time.toEpochMilli(),
                "proposer", proposer, "app_hash", appHash, "txs", roots);
        return new Block(height, Util.sha256(J.canonical(header)), previous, time, proposer, appHash, List.copyOf(txs));
    }

    JsonObject view(boolean decoded) {
        JsonArray a = new JsonArray();
        for (int i = 0; i < txs.size(); i++) {
            Tx t = txs.get(i);
            JsonObject o = J.o("hash", t.hash(), "index", i, "type", t.type(), "public_key", t.publicKey(),
                    "result", J.o("code", 0, "log", "", "fee", t.body().has("fee") ? t.body().get("fee") : J.el("0")));
            if (t.type().equals("inference_request")) {
                o.addProperty("request_id", t.requestId());
            }
            if (F.on("s2-list-results-missing") && !decoded) o.remove("result");
            if (decoded) {
                o.add("body", t.body());
                o.addProperty("signature", t.signature());
                o.addProperty("raw", t.base64());
            }
            if (F.on("block-tx-undecoded") && decoded) o.remove("body");
            a.add(o);
        }
        Object h = height;
        String hash = this.hash;
        if (F.on("block-single-hash-differs") && decoded) hash = Util.sha256("x" + hash);
        String prev = previous;
        JsonObject o = J.o("height", h, "hash", hash, "previous_hash", prev, "time", Util.time(time), "proposer", proposer,
                "app_hash", appHash, "tx_count", F.on("block-tx-count-off") ? a.size() + 1 : a.size(), "transactions", a);
        return o;
    }
}
