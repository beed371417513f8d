package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.Base64;

/** Allowlisted native JSON-RPC 2.0. */
final class Rpc {
    private static final int MAX_BODY = 262_144;
    private static final int MAX_TX = 16_384;
    private final Chain chain;

    Rpc(Chain chain) {
        this.chain = chain;
    }

    private static final class RpcError extends RuntimeException {
        final int code;

        RpcError(int code, String message) {
            super(message, null, false, false);
            this.code = code;
        }
    }

    void routes(Web w) {
        w.on("POST", "/rpc", this::handle);
    }

    void handle(Ctx c) throws IOException {
        String text;
        try {
            text = c.text(MAX_BODY);
        } catch (ApiError e) {
            if (e.status == 413) throw e;
            text = "";
        }
        JsonElement e = J.parse(text);
        JsonElement id = null;
        try {
            if (e == null) {
                throw new RpcError(-32700, "parse error");
            }
            if (!e.isJsonObject()) {
                throw new RpcError(-32600, "batches are not accepted");
            }
            JsonObject o = e.getAsJsonObject();
            JsonElement given = o.get("id");
            if (given != null && !given.isJsonPrimitive() && !given.isJsonNull()) {
                throw new RpcError(-32600, "invalid id");
            }
            id = given;
            if (!"2.0".equals(J.str(o, "jsonrpc")) || J.str(o, "method") == null) {
                throw new RpcError(-32600, "invalid request");
            }
            JsonElement p = o.get("params");
            if (p != null && !p.isJsonNull() && !p.isJsonObject() && !(p.isJsonArray() && p.getAsJsonArray().isEmpty())) {
                throw new RpcError(-32602, "params must be an object");
            }
            JsonElement result = call(J.str(o, "method"), p == null || !p.isJsonObject() ? new JsonObject() : p.getAsJsonObject());
            JsonObject r = J.o("jsonrpc", "2.0", "id", id, "result", result);
            c.json(r);
        } catch (RpcError x) {
            int status = P.on("rpc-error-http-400") ? 400 : 200;
            c.json(status, J.o("jsonrpc", "2.0", "id", id, "error", J.o("code", (Object) x.code, "message", x.getMessage())));
        }
    }

    private JsonElement call(String method, JsonObject p) {
        synchronized (chain) {
            switch (method) {
                case "status":
                    return status();
                case "health":
                    return J.o();
                case "block":
                    return block(p);
                case "validators":
                    if (F.on("s2-rpc-validators-missing")) break;
                    return validators(p);
                case "abci_query":
                    return query(p);
                case "broadcast_tx_sync":
                    return broadcast(p);
                case "unsafe_flush_mempool":
                case "dump_consensus_state":
                    if (F.on("s2-rpc-consensus-relayed")) return J.o("round_state", J.o("height", String.valueOf(chain.height() + 1), "round", 0, "step", 1));
                    break;
                case "net_info":
                    break;
                case "priv_validator":
                case "export_key":
                    if (F.on("rpc-private-key-exposed")) return J.o("priv_key", Util.sha256("secret"));
                    break;
                case "broadcast_tx_commit":
                    break;
                default:
            }
            throw new RpcError(-32601, "method not allowed");
        }
    }

    private JsonObject status() {
        Block b = chain.head();
        int h = F.on("rpc-status-height-lags") ? b.height() - 30 : b.height();
        return J.o("node_info", J.o("network", F.on("s2-rpc-chain-other") ? "ninth-main" : Chain.ID, "version", "0.4.0"),
                "sync_info", J.o("latest_block_height", String.valueOf(h), "latest_block_hash", F.on("rpc-status-hash-base64") ? Base64.getEncoder().encodeToString(Util.unhex(b.hash())) : b.hash(),
                        "latest_block_time", Util.time(b.time()), "catching_up", F.on("rpc-catching-up")),
                "validator_info", J.o("public_key", chain.validators.get(0).hex(), "voting_power", "37"));
    }

    private int height(JsonObject p) {
        JsonElement e = p.get("height");
        if (e == null || e.isJsonNull()) {
            return chain.height();
        }
        String s = e.isJsonPrimitive() ? e.getAsString() : "";
        if (!s.matches("\\d{1,9}")) {
            throw new RpcError(-32602, "height must be an integer");
        }
        int h = Integer.parseInt(s);
        if (h < 1 || h > chain.height()) {
            throw new RpcError(-32603, "height must be between 1 and " + chain.height());
        }
        return h;
    }

    private JsonObject block(JsonObject p) {
        Block b = chain.blocks.get((F.on("s2-rpc-block-latest") ? chain.height() : height(p)) - 1);
        JsonArray txs = new JsonArray();
        b.txs().forEach(t -> txs.add(t.base64()));
        return J.o("block_id", J.o("hash", F.on("rpc-block-hash-differs") ? Util.sha256("r" + b.hash()) : b.hash()),
                "block", J.o("header", J.o("chain_id", Chain.ID, "height", String.valueOf(b.height()), "time", Util.time(b.time()),
                        "last_block_id", J.o("hash", b.previous()), "app_hash", b.appHash(), "proposer", b.proposer()), "data", J.o("txs", txs)));
    }

    private JsonObject validators(JsonObject p) {
        int h = height(p);
        int per = num(p, "per_page", 30);
        int page = num(p, "page", 1);
        JsonArray a = new JsonArray();
        for (int i = (page - 1) * per; i < chain.validators.size() && i < page * per; i++) {
            a.add(J.o("public_key", chain.validators.get(i).hex(), "voting_power", String.valueOf(chain.bonds.get(i) / (1_000_000))));
        }
        return J.o("block_height", String.valueOf(h), "validators", a, "count", String.valueOf(a.size()),
                "total", String.valueOf(chain.validators.size()));
    }

    private static int num(JsonObject p, String k, int dflt) {
        JsonElement e = p.get(k);
        if (e == null || e.isJsonNull()) {
            return dflt;
        }
        String s = e.isJsonPrimitive() ? e.getAsString() : "";
        if (!s.matches("\\d{1,4}") || Integer.parseInt(s) < 1) {
            throw new RpcError(-32602, k + " must be a positive integer");
        }
        return Math.min(100, Integer.parseInt(s));
    }

    /** Paths /account, /job and /jobs; data is hex or plain text. */
    private JsonObject query(JsonObject p) {
        String path = J.str(p, "path");
        if (path == null) {
            throw new RpcError(-32602, "path is required");
        }
        String data = J.str(p, "data");
        data = data == null ? "" : data.startsWith("0x") ? new String(java.util.Optional.ofNullable(Util.unhex(data.substring(2))).orElse(new byte[0])) : data;
        JsonElement value = null;
        if (path.equals("/job")) {
            Chain.Job j = chain.jobs.get(data);
            value = j == null ? null : NativeApi.view(j);
        } else if (path.equals("/jobs") && !F.on("rpc-jobs-path-missing")) {
            JsonArray a = new JsonArray();
            for (Chain.Job j : chain.jobs.values()) {
                a.add(J.o("request_id", j.id, "status", j.status, "expires_height", j.expires));
            }
            value = J.o("jobs", a);
        } else if (path.equals("/account")) {
            Chain.Acct a = chain.accounts.get(data);
            value = a == null ? null : J.o("available", a.available, "locked", a.locked, "next_nonce", F.on("rpc-account-nonce-differs") ? a.nonce + 1 : a.nonce);
        } else {
            return J.o("response", J.o("code", 1, "log", "unknown path", "height", String.valueOf(chain.height()), "value", null));
        }
        if (value == null) {
            return J.o("response", J.o("code", 2, "log", "not found", "height", String.valueOf(chain.height()), "value", null));
        }
        return J.o("response", J.o("code", 0, "log", "", "height", String.valueOf(chain.height()), "value", Base64.getEncoder().encodeToString(Util.utf8(J.GSON.toJson(value)))));
    }

    private JsonObject broadcast(JsonObject p) {
        String s = J.str(p, "tx");
        byte[] raw;
        try {
            raw = s == null ? null : Base64.getDecoder().decode(s);
        } catch (IllegalArgumentException e) {
            raw = null;
        }
        if (raw == null) {
            throw new RpcError(-32602, "tx must be base64");
        }
        if (raw.length > (F.on("tx-limit-1k") ? 1024 : MAX_TX)) {
            throw new RpcError(-32602, "transaction larger than " + MAX_TX + " bytes");
        }
        Tx t = Tx.parse(raw);
        if (t == null) {
            return J.o("code", 3, "log", "undecodable transaction", "hash", Util.sha256(raw));
        }
        String refused = chain.submit(t);
        String hash = F.on("broadcast-hash-differs") ? Util.sha256(t.signature()) : t.hash();
        if (refused != null) {
            int i = refused.indexOf(' ');
            Object code = Integer.parseInt(refused.substring(0, i));
            return J.o("code", code, "log", refused.substring(i + 1), "hash", hash);
        }
        String id = F.on("request-id-is-tx-hash") ? t.hash() : t.requestId();
        JsonObject o = J.o("code", 0, "log", "", "hash", hash, "request_id", id);
        return o;
    }

}
