package node;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;

/** One HTTP exchange. */
final class Ctx {
    final HttpServletRequest req;
    final HttpServletResponse res;
    final Map<String, String> vars;
    final Map<String, String> query;
    Account account;

    Ctx(HttpServletRequest req, HttpServletResponse res, Map<String, String> vars) {
        this.req = req;
        this.res = res;
        this.vars = vars;
        this.query = parseQuery(req.getQueryString());
    }

    private static Map<String, String> parseQuery(String q) {
        Map<String, String> m = new LinkedHashMap<>();
        if (q == null) {
            return m;
        }
        for (String part : q.split("&")) {
            if (part.isEmpty()) {
                continue;
            }
            int i = part.indexOf('=');
            String k = i < 0 ? part : part.substring(0, i);
            String v = i < 0 ? "" : part.substring(i + 1);
            try {
                if (F.on("s2-query-undecoded")) {
                    m.putIfAbsent(k, v);
                    continue;
                }
                m.putIfAbsent(URLDecoder.decode(k, StandardCharsets.UTF_8), URLDecoder.decode(v, StandardCharsets.UTF_8));
            } catch (IllegalArgumentException e) {
                throw ApiError.bad("malformed query string");
            }
        }
        return m;
    }

    byte[] raw(int max) throws IOException {
        if (req.getContentLengthLong() > max) {
            throw new ApiError(413, "PAYLOAD_TOO_LARGE", "body larger than " + max + " bytes");
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        InputStream in = req.getInputStream();
        byte[] buf = new byte[8192];
        int n;
        while ((n = in.read(buf)) >= 0) {
            out.write(buf, 0, n);
            if (out.size() > max) {
                throw new ApiError(413, "PAYLOAD_TOO_LARGE", "body larger than " + max + " bytes");
            }
        }
        return out.toByteArray();
    }

    String text(int max) throws IOException {
        byte[] b = raw(max);
        if (F.on("body-latin1")) {
            return new String(b, StandardCharsets.ISO_8859_1);
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                    .decode(ByteBuffer.wrap(b)).toString();
        } catch (CharacterCodingException e) {
            throw ApiError.bad("body is not valid UTF-8");
        }
    }

    private JsonObject readBody;

    JsonObject body() throws IOException {
        if (readBody != null) return readBody;
        if (F.on("s2-chunked-body-refused") && req.getContentLengthLong() < 0) {
            throw new ApiError(411, "LENGTH_REQUIRED", "Content-Length is required");
        }
        if (F.on("body-limit-8k") && req.getContentLengthLong() > 8192) {
            throw new ApiError(413, "PAYLOAD_TOO_LARGE", "body too large");
        }
        if (F.on("content-type-exact") && !"application/json".equals(req.getContentType())) {
            throw new ApiError(415, "UNSUPPORTED_MEDIA_TYPE", "expected application/json");
        }
        String t = text(1 << 20);
        if (F.on("malformed-json-500") && J.parse(t) == null) {
            throw new IllegalStateException("com.google.gson.JsonSyntaxException: malformed JSON");
        }
        JsonElement e = J.parse(t);
        if (e == null || !e.isJsonObject()) {
            if (e != null && F.on("array-body-500")) {
                throw new IllegalStateException("Not a JSON Object: " + t);
            }
            throw ApiError.bad("body is not a JSON object");
        }
        readBody = e.getAsJsonObject();
        return readBody;
    }

    /** A query integer within min..max; larger values are clamped to max. */
    int intParam(String name, int dflt, int min, int max) {
        String v = query.get(name);
        if (v == null) {
            return dflt;
        }
        if (F.on("s2-limit-text-500") && !v.matches("-?\\d{1,18}")) throw new IllegalStateException("For input string: " + v);
        if (!v.matches("-?\\d{1,18}")) {
            throw ApiError.bad(name + " must be an integer");
        }
        long n = Long.parseLong(v);
        if (n < min) {
            throw ApiError.bad(name + " must be at least " + min);
        }
        if (n > max && P.on("limit-refused")) {
            throw ApiError.bad(name + " must be at most " + max);
        }
        return (int) Math.min(n, max);
    }

    void json(JsonElement e) throws IOException {
        json(200, e);
    }

    void json(int status, JsonElement e) throws IOException {
        if (P.on("keys-sorted")) {
            e = J.sorted(e);
        }
        if (P.on("extra-fields") && e.isJsonObject()) {
            e.getAsJsonObject().addProperty("x_server_trace", Long.toHexString(System.nanoTime()));
        }
        String s = P.on("pretty-json") ? J.PRETTY.toJson(e) : J.GSON.toJson(e);
        if (P.on("ascii-json")) {
            s = ascii(s);
        }
        if (P.on("exponent-numbers")) {
            s = s.replaceAll("([:\\[,])(\\d+)\\.(\\d+)(?=[,}\\]])", "$1$2.$3E0");
        }
        String path = req.getRequestURI();
        if (F.on("json-as-text-plain") && path.startsWith("/api/v1/network")) {
            send(status, "text/plain;charset=utf-8", Util.utf8(s));
            return;
        }
        if (F.on("response-latin1")) {
            send(status, "application/json", s.getBytes(StandardCharsets.ISO_8859_1));
            return;
        }
        String type = "application/json";
        send(status, type, Util.utf8(s));
    }

    static String ascii(String s) {
        StringBuilder sb = new StringBuilder();
        for (char c : s.toCharArray()) {
            sb.append(c < 128 ? String.valueOf(c) : String.format("\\u%04x", (int) c));
        }
        return sb.toString();
    }

    void send(int status, String type, byte[] b) throws IOException {
        if (P.on("slow-answers")) {
            try {
                Thread.sleep(700);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
        res.setStatus(status);
        res.setHeader("Content-Type", type);
        if (P.on("chunked")) {
            for (int i = 0; i < b.length; i += 50) {
                res.getOutputStream().write(b, i, Math.min(50, b.length - i));
                res.getOutputStream().flush();
            }
            return;
        }
        res.setContentLength(b.length);
        res.getOutputStream().write(b);
    }
}
