package node;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;

/** ./node sign request|work '{json}' [--node URL] */
final class SignTool {
    private SignTool() {}

    static void run(List<String> args) throws Exception {
        if (args.isEmpty() || !List.of("request", "work").contains(args.get(0))) {
            System.err.println("usage: node sign request|work '{json}' [--node URL]");
            System.exit(2);
        }
        JsonElement given = J.parse(args.size() > 1 ? args.get(1) : "{}");
        if (given == null || !given.isJsonObject()) {
            System.err.println("the second argument must be a JSON object");
            System.exit(2);
        }
        JsonObject in = given.getAsJsonObject();
        String url = args.contains("--node") ? args.get(args.indexOf("--node") + 1) : null;
        String name = in.has("key") ? in.remove("key").getAsString() : "test";
        boolean forge = in.has("forge") && in.remove("forge").getAsBoolean();
        Keys k = Keys.named(name);
        boolean request = args.get(0).equals("request");
        JsonObject b = request ? request(k, url) : J.o("type", "work_poll", "chain_id", Chain.ID, "nonce", System.nanoTime() & 0xffffffffffL);
        in.entrySet().forEach(e -> b.add(e.getKey(), e.getKey().equals("price") && J.isNumber(e.getValue()) ? J.el(e.getValue().getAsString()) : e.getValue()));
        Tx t = Tx.sign(forge ? Keys.named("forger") : k, b);
        if (forge) {
            JsonObject env = J.o("body", b, "public_key", k.hex(), "signature", t.signature());
            t = new Tx(Util.utf8(J.canonical(env)), b, k.hex(), t.signature());
        }
        if (!request) {
            System.out.println(J.GSON.toJson(J.o("body", b, "public_key", t.publicKey(), "signature", t.signature())));
            return;
        }
        long price = J.isString(b.get("price")) && b.get("price").getAsString().matches("\\d{1,17}") ? b.get("price").getAsLong() : 0;
        System.out.println(J.GSON.toJson(J.o("tx", t.base64(), "tx_hash", t.hash(), "request_id", t.requestId(), "cost", String.valueOf(price + Chain.FEE),
                "price", b.get("price"), "fee", String.valueOf(Chain.FEE), "nonce", b.get("nonce"), "expires_height", b.get("expires_height"), "public_key", t.publicKey(), "body", b)));
    }

    private static JsonObject request(Keys k, String url) throws Exception {
        long nonce = 0;
        long height = 4970;
        if (url != null) {
            HttpResponse<String> r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(url + "/api/account?public_key=" + k.hex())).build(), HttpResponse.BodyHandlers.ofString());
            JsonObject o = J.parse(r.body()).getAsJsonObject();
            nonce = o.get("next_nonce").getAsLong();
            height = o.get("height").getAsLong();
        }
        return J.o("type", "inference_request", "chain_id", Chain.ID, "nonce", nonce, "provider", Keys.named("provider").hex(),
                "checkpoint", new Artifacts().root(Chain.SERVING_ROUND), "prompt", "Where does the river go?", "max_tokens", 16,
                "price", String.valueOf(Chain.PRICE), "fee", String.valueOf(Chain.FEE), "expires_height", height + 30);
    }
}
