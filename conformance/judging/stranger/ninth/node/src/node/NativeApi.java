package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.math.BigInteger;
import java.time.Instant;
import java.util.List;

/** The public native API 0.4.0. */
final class NativeApi {
    private final Chain chain;
    private int headCached;
    private boolean busy;
    private JsonObject lastAccount;
    private long lastAccountAt;
    private final java.util.Map<String, Object> nonces = new java.util.HashMap<>();

    NativeApi(Chain chain) {
        this.chain = chain;
    }

    void routes(Web w) {
        w.on("GET", "/healthz", this::healthz);
        w.on("GET", "/api/network", this::network);
        w.on("GET", "/api/model", this::model);
        w.on("GET", "/api/model/checkpoint.json", this::checkpoint);
        w.on("GET", "/api/training", this::training);
        w.on("GET", "/api/blocks", this::blocks);
        w.on("GET", "/api/block/{height}", this::block);
        w.on("GET", "/api/account", this::account);
        w.on("GET", "/api/validators", this::validators);
        w.on("GET", "/api/inference", this::inference);
        w.on("GET", "/api/inference/request", this::request);
    }

    private Block observed() {
        return chain.head();
    }

    void healthz(Ctx c) throws IOException {
        int h;
        long age;
        synchronized (chain) {
            h = chain.height();
            age = System.currentTimeMillis() - chain.head().time().toEpochMilli();
        }
        boolean stalled = age > 15000;
        if (F.on("healthz-200-not-ready")) {
            c.json(200, J.o("ready", false, "status", "catching_up", "height", h));
            return;
        }
        if (F.on("chain-stalls")) stalled = false;
        if (P.on("healthz-204")) {
            c.res.setStatus(stalled ? 503 : 204);
            return;
        }
        c.json(stalled ? 503 : 200, J.o("ready", !stalled, "status", stalled ? "stalled" : "ready", "height", h));
    }

    private static Object atoms(long v) {
        if (F.on("atoms-as-numbers")) return v;
        if (F.on("atoms-scientific")) return String.valueOf((double) v);
        return String.valueOf(v);
    }

    void network(Ctx c) throws IOException {
        synchronized (chain) {
            Block b = observed();
            long liquid = 0;
            long locked = 0;
            for (Chain.Acct a : chain.accounts.values()) {
                liquid += a.available;
                locked += a.locked;
            }
            long bonded = chain.bonds.stream().mapToLong(x -> x).sum();
            long total = liquid + locked + bonded;
            if (F.on("supply-int-overflow")) total = (int) total;
            JsonObject supply = J.o("total", atoms(total), "liquid", atoms(liquid), "locked", atoms(locked), "bonded", atoms(bonded));
            int shownHeight = F.on("network-height-differs-from-pair") ? b.height() + 2 : b.height();
            if (!b.txs().isEmpty() && b.height() > 100) busy = true;
            JsonObject pair = J.o("height", b.height(), "hash", F.on("s2-network-hash-behind") && busy ? b.previous() : b.hash());
            String gen = F.on("genesis-hash-differs") ? Util.sha256("g") : chain.artifacts.genesisHash;
            JsonObject o = J.o("api_version", "0.4.0", "chain_id", Chain.ID, "genesis_hash", gen, "height", shownHeight,
                    "block", pair, "training_round", F.on("network-round-differs") ? chain.round() - 5 : chain.round(), "supply", supply, "ready", true, "readiness", "ready");
            c.json(o);
        }
    }

    void model(Ctx c) throws IOException {
        synchronized (chain) {
            Chain.Update last = chain.updates.get(chain.updates.size() - 1);
            double best = chain.updates.stream().mapToDouble(u -> Double.parseDouble(u.after())).min().orElse(0);
            JsonObject losses = J.o("initial", chain.updates.get(0).before(), "latest", last.after(), "best", Seed.s(best));
            JsonObject o = J.o("chain_id", Chain.ID, "frozen_parameters", 14_336, "trainable_parameters", 256, "revision", "ninth-toy-r" + last.round(),
                    "training_round", last.round(), "serving_round", Chain.SERVING_ROUND,
                    "training_root", F.on("model-training-root-differs") ? chain.artifacts.root(last.round() - 1) : last.root(),
                    "serving_root", chain.artifacts.root(F.on("s2-model-serving-is-training") ? last.round() : Chain.SERVING_ROUND),
                    "losses", losses, "execution_profile", J.o("dtype", "float32", "device", "cpu", "deterministic", true));
            c.json(o);
        }
    }

    void checkpoint(Ctx c) throws IOException {
        synchronized (chain) {
            int r = chain.round();
            if (F.on("checkpoint-stale-after-update")) r = Math.min(r, 60);
            byte[] adapter = chain.artifacts.adapter(r);
            String root = Util.sha256(adapter);
            JsonObject o = J.o("chain_id", Chain.ID, "genesis_hash", chain.artifacts.genesisHash, "round", F.on("s2-checkpoint-round-behind") ? r - 1 : r, "root",
                    root,
                    "artifact", J.o("sha256", root, "size", adapter.length, "url", "/artifacts/sha256/" + root),
                    "adapter", java.util.Base64.getEncoder().encodeToString(adapter));
            c.json(o);
        }
    }

    private static int pageLimit(Ctx c) {
        return c.intParam("limit", P.on("page-max-10") ? 5 : 20, 1, P.on("page-max-10") ? 10 : 100);
    }

    void training(Ctx c) throws IOException {
        int limit = pageLimit(c);
        int before = c.intParam("before", Integer.MAX_VALUE, 0, Integer.MAX_VALUE);
        synchronized (chain) {
            if (F.on("training-before-is-height")) {
                int b = before;
                before = chain.updates.stream().filter(u -> u.height() >= b).mapToInt(Chain.Update::round).min().orElse(Integer.MAX_VALUE);
            }
            JsonArray a = new JsonArray();
            int next = 0;
            for (int i = chain.updates.size() - 1; i >= 0 && a.size() < limit; i--) {
                Chain.Update u = chain.updates.get(i);
                if (F.on("training-before-inclusive") ? u.round() > before : u.round() >= before) {
                    continue;
                }
                JsonObject o = J.o("round", u.round(), "height", u.height(), "tx_hash", u.txHash(), "owner", u.owner(), "loss_before", u.before(), "loss_after", u.after(),
                        "root", u.root(), "time", Util.time(u.time()));
                if (F.on("s2-training-loss-rounded")) {
                    o.addProperty("loss_before", String.format(java.util.Locale.ROOT, "%.2f", Double.parseDouble(u.before())));
                    o.addProperty("loss_after", String.format(java.util.Locale.ROOT, "%.2f", Double.parseDouble(u.after())));
                }
                if (F.on("s2-training-root-paged") && c.query.containsKey("before")) o.addProperty("root", chain.artifacts.root(u.round() - 1));
                if (F.on("training-loss-chain-broken")) o.add("loss_before", o.get("loss_after"));
                a.add(o);
                next = u.round();
            }
            JsonObject o = J.o("updates", a, "total", chain.updates.size(), "next_before", next <= 1 ? null : next,
                    "indexing", J.o("indexed_height", P.on("indexer-lags") ? chain.height() - 9 : chain.height(), "chain_height", chain.height(), "error", P.on("indexer-lags") ? "index behind consensus" : null));
            c.json(o);
        }
    }

    void blocks(Ctx c) throws IOException {
        int limit = pageLimit(c);
        int before = c.intParam("before", Integer.MAX_VALUE, 0, Integer.MAX_VALUE);
        synchronized (chain) {
            if (F.on("blocks-before-inclusive") && before != Integer.MAX_VALUE) before++;
            if (F.on("blocks-limit-one-less") && limit > 1) limit--;
            JsonArray a = new JsonArray();
            int top = Math.min(before - 1, chain.height());
            if (F.on("s2-blocks-before-ahead-empty") && before != Integer.MAX_VALUE && before > chain.height() + 1) top = 0;
            int h = top;
            for (; h >= 1 && a.size() < limit; h--) {
                if (F.on("s2-blocks-page-of-40-gap") && a.size() == 40 && h == top - 40) continue;
                if (F.on("blocks-skip-empty") && chain.blocks.get(h - 1).txs().isEmpty()) continue;
                a.add(chain.blocks.get(h - 1).view(false));
            }
            if (F.on("blocks-recent-is-first")) {
                a = new JsonArray();
                for (int i = 1; i <= limit && i <= chain.height(); i++) a.add(chain.blocks.get(i - 1).view(false));
            }
            c.json(J.o("blocks", a, "height", chain.height(), "next_before", h < 1 ? null : h + 1));
        }
    }

    void block(Ctx c) throws IOException {
        String s = c.vars.get("height");
        if (!s.matches("\\d{1,9}")) {
            throw ApiError.bad("height must be a positive integer");
        }
        int h = Integer.parseInt(s);
        synchronized (chain) {
            if (F.on("block-future-latest")) h = Math.min(h, chain.height());
            if (h > chain.height() && F.on("block-future-null")) {
                c.json(J.el(null));
                return;
            }
            if (h > chain.height() && F.on("block-future-500")) throw new IllegalStateException("Index " + (h - 1) + " out of bounds for length " + chain.height());
            if (h < 1 || h > chain.height()) {
                throw ApiError.notFound("no block at that height");
            }
            if (F.on("s2-block-new-off-by-one") && h > 100) h--;
            c.json(chain.blocks.get(h - 1).view(true));
        }
    }

    void account(Ctx c) throws IOException {
        String pk = c.query.get("public_key");
        if (pk == null && F.on("account-default-key")) pk = Keys.named("test").hex();
        if (pk == null || !pk.matches("[0-9a-fA-F]{64}")) {
            throw ApiError.bad("public_key must be 64 hex digits");
        }
        pk = pk.toLowerCase(java.util.Locale.ROOT);
        synchronized (chain) {
            Chain.Acct a = chain.accounts.get(pk);
            if (a == null && P.on("unknown-account-404")) {
                throw ApiError.notFound("no such account");
            }
            if (a == null && F.on("account-unknown-500")) throw new IllegalStateException("account is null");
            if (a == null) {
                a = new Chain.Acct();
            }
            long total = a.available + a.locked;
            if (F.on("account-total-without-locked")) total = a.available;
            Object nonce = a.nonce;
            if (F.on("account-nonce-last-used")) nonce = a.nonce - 1;
            JsonObject o = J.o("chain_id", Chain.ID, "public_key", pk, "available_balance", atoms(a.available), "locked_budget", atoms(a.locked), "total_liquid_balance", atoms(total),
                    "next_nonce", nonce, "height", chain.height());
            if (F.on("s2-account-locked-units")) o.addProperty("locked_budget", String.format(java.util.Locale.ROOT, "%.6f", a.locked / 1e6));
            if (F.on("s2-account-grouping")) o.addProperty("available_balance", String.format(java.util.Locale.US, "%,d", a.available));
            if (F.on("s2-account-nonce-stays")) o.add("next_nonce", J.el(nonces.computeIfAbsent(pk, k -> o.get("next_nonce"))));
            if (F.on("s2-account-cached")) {
                if (lastAccount != null && System.currentTimeMillis() - lastAccountAt < 1500) {
                    JsonObject x = lastAccount.deepCopy();
                    x.addProperty("public_key", pk);
                    c.json(x);
                    return;
                }
                lastAccount = o.deepCopy();
                lastAccountAt = System.currentTimeMillis();
            }
            if (F.on("account-balance-int32") && a.available > Integer.MAX_VALUE) o.addProperty("available_balance", String.valueOf((int) a.available));
            c.json(o);
        }
    }

    void validators(Ctx c) throws IOException {
        int max = 50;
        int per = c.intParam("per_page", 20, 1, max);
        int page = c.intParam("page", 1, 1, 1_000_000);
        synchronized (chain) {
            JsonArray a = new JsonArray();
            long power = 0;
            for (int i = 0; i < chain.validators.size(); i++) {
                long bond = chain.bonds.get(i);
                power += bond / 1_000_000;
                if (i < (long) (page - 1) * per || i >= (long) page * per) continue;
                Object p = bond / 1_000_000;
                String owner = chain.validators.get(i).hex();
                JsonObject v = J.o("owner", owner, "power", p, "bond", atoms(bond), "status", "active");
                if (F.on("s2-validator-bond-null") && i == chain.validators.size() - 1) v.add("bond", J.el(null));
                a.add(v);
            }
            c.json(J.o("validators", a, "total", chain.validators.size(), "total_power", power, "page", page, "per_page", per, "height", chain.height()));
        }
    }

    void inference(Ctx c) throws IOException {
        synchronized (chain) {
            Object q = chain.pending();
            if (F.on("queue-size-includes-finished")) q = chain.jobs.size();
            JsonObject o = J.o("chain_id", Chain.ID, "genesis_hash", F.on("s2-inference-other-genesis") ? Util.sha256(chain.artifacts.genesisHash) : chain.artifacts.genesisHash,
                    "serving_root", F.on("inference-serving-root-is-training") ? chain.artifacts.root(chain.round()) : chain.artifacts.root(Chain.SERVING_ROUND),
                    "default_provider", chain.provider, "heartbeat", J.o("status", "live", "height", chain.height()),
                    "price", F.on("s2-inference-price-units") ? "0.25" : atoms(Chain.PRICE), "fee", atoms(Chain.FEE), "queue_size", q, "max_tokens", 512);
            c.json(o);
        }
    }

    void request(Ctx c) throws IOException {
        String id = c.query.get("id");
        if (id == null || id.isEmpty() || id.length() > 200) {
            throw ApiError.bad("id is required");
        }
        synchronized (chain) {
            Chain.Job j = chain.jobs.get(id);
            if (j == null && F.on("request-unknown-200")) {
                c.json(J.o("request_id", id, "status", "pending"));
                return;
            }
            if (j != null && F.on("s2-request-pending-404") && j.status.equals("pending")) j = null;
            if (j == null && F.on("request-unknown-500")) throw new IllegalStateException("job is null");
            if (j == null) {
                throw ApiError.notFound("no such request");
            }
            JsonObject o = view(j);
            if (F.on("s2-response-dropped") && j.submitted > 100 && chain.height() > j.submitted + 5 && o.has("response")) o.add("response", J.el(null));
            c.json(o);
        }
    }

    static JsonObject view(Chain.Job j) {
        JsonObject b = j.tx.body();
        String status = j.status;
        JsonObject o = J.o("request_id", j.id, "status", status, "tx_hash", j.tx.hash(), "public_key", j.tx.publicKey(),
                "provider", b.get("provider"), "checkpoint", b.get("checkpoint"), "prompt", F.on("s2-request-prompt-cut") && J.str(b, "prompt").length() > 40 ? J.el(J.str(b, "prompt").substring(0, 40)) : b.get("prompt"), "max_tokens", b.get("max_tokens"),
                "price", b.get("price"), "fee", String.valueOf(Chain.FEE), "nonce", b.get("nonce"), "submitted_height", j.submitted, "expires_height", j.expires);
        if (j.response != null) {
            JsonObject r = j.response.deepCopy();
            if (F.on("response-changes")) r.addProperty("text", r.get("text").getAsString() + " " + System.nanoTime() % 97);
            o.add("response", r);
        }
        if (j.refund != null) {
            JsonObject r = j.refund.deepCopy();
            o.add("refund", r);
        }
        return o;
    }
}
