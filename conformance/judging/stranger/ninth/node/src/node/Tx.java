package node;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.Base64;

/** A signed native transaction: body, public_key, signature. */
record Tx(byte[] raw, JsonObject body, String publicKey, String signature) {
    static final String DOMAIN = "ninth/native/v1\n";

    static Tx sign(Keys k, JsonObject body) {
        String sig = k.sign(DOMAIN + J.canonical(body));
        JsonObject env = J.o("body", body, "public_key", k.hex(), "signature", sig);
        return new Tx(Util.utf8(J.canonical(env)), body, k.hex(), sig);
    }

    /** Null when the bytes are no transaction. */
    static Tx parse(byte[] raw) {
        JsonElement e = J.parse(new String(raw, java.nio.charset.StandardCharsets.UTF_8));
        return e == null || !e.isJsonObject() ? null : of(raw, e.getAsJsonObject());
    }

    static Tx of(byte[] raw, JsonObject o) {
        String pk = J.str(o, "public_key");
        String sig = J.str(o, "signature");
        if (pk == null || sig == null || o.get("body") == null || !o.get("body").isJsonObject()) {
            return null;
        }
        return new Tx(raw, o.getAsJsonObject("body"), pk, sig);
    }

    boolean valid() {
        return Keys.verify(publicKey, DOMAIN + J.canonical(body), signature);
    }

    String hash() {
        return Util.sha256(raw);
    }

    String requestId() {
        return "req-" + Util.sha256("request\n" + publicKey + "\n" + J.canonical(body)).substring(0, 40);
    }

    String base64() {
        return Base64.getEncoder().encodeToString(raw);
    }

    String type() {
        String t = J.str(body, "type");
        return t == null ? "" : t;
    }
}
