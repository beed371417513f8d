package node;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import java.io.StringReader;
import java.math.BigDecimal;
import java.util.Collection;
import java.util.TreeMap;
import java.util.TreeSet;

/** JSON building and reading. */
final class J {
    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
    static final Gson ESCAPING = new GsonBuilder().serializeNulls().create();
    static final Gson PRETTY = new GsonBuilder().disableHtmlEscaping().serializeNulls().setPrettyPrinting().create();

    private J() {}

    static JsonObject o(Object... kv) {
        JsonObject o = new JsonObject();
        for (int i = 0; i < kv.length; i += 2) {
            o.add((String) kv[i], el(kv[i + 1]));
        }
        return o;
    }

    static JsonArray a(Object... items) {
        JsonArray a = new JsonArray();
        for (Object x : items) {
            a.add(el(x));
        }
        return a;
    }

    static JsonElement el(Object v) {
        if (v == null) {
            return JsonNull.INSTANCE;
        }
        if (v instanceof JsonElement e) {
            return e;
        }
        if (v instanceof String s) {
            return new JsonPrimitive(s);
        }
        if (v instanceof Boolean b) {
            return new JsonPrimitive(b);
        }
        if (v instanceof Number n) {
            return new JsonPrimitive(n);
        }
        if (v instanceof Collection<?> c) {
            JsonArray a = new JsonArray();
            c.forEach(x -> a.add(el(x)));
            return a;
        }
        return new JsonPrimitive(v.toString());
    }

    /** Strict parse of one JSON document; null when it is not one. */
    static JsonElement parse(String text) {
        try {
            JsonElement e = JsonParser.parseString(text);
            return strict(text) ? e : null;
        } catch (RuntimeException x) {
            return null;
        }
    }

    /** Gson's parser is lenient; this walk refuses what RFC 8259 refuses. */
    private static boolean strict(String text) {
        try (JsonReader r = new JsonReader(new StringReader(text))) {
            r.setLenient(false);
            int depth = 0;
            while (true) {
                JsonToken t = r.peek();
                switch (t) {
                    case BEGIN_ARRAY -> { r.beginArray(); if (++depth > 64) return false; }
                    case END_ARRAY -> { r.endArray(); depth--; }
                    case BEGIN_OBJECT -> { r.beginObject(); if (++depth > 64) return false; }
                    case END_OBJECT -> { r.endObject(); depth--; }
                    case NAME -> r.nextName();
                    case STRING, NUMBER -> r.nextString();
                    case BOOLEAN -> r.nextBoolean();
                    case NULL -> r.nextNull();
                    case END_DOCUMENT -> { return true; }
                }
            }
        } catch (Exception x) {
            return false;
        }
    }

    /** Sorted keys, no spaces: what is signed and hashed. */
    static String canonical(JsonElement e) {
        StringBuilder sb = new StringBuilder();
        canon(e, sb);
        return sb.toString();
    }

    private static void canon(JsonElement e, StringBuilder sb) {
        if (e.isJsonObject()) {
            sb.append('{');
            boolean first = true;
            for (String k : new TreeSet<>(e.getAsJsonObject().keySet())) {
                if (!first) sb.append(',');
                first = false;
                sb.append(GSON.toJson(k)).append(':');
                canon(e.getAsJsonObject().get(k), sb);
            }
            sb.append('}');
        } else if (e.isJsonArray()) {
            sb.append('[');
            for (int i = 0; i < e.getAsJsonArray().size(); i++) {
                if (i > 0) sb.append(',');
                canon(e.getAsJsonArray().get(i), sb);
            }
            sb.append(']');
        } else {
            sb.append(GSON.toJson(e));
        }
    }

    static boolean isString(JsonElement e) {
        return e != null && e.isJsonPrimitive() && e.getAsJsonPrimitive().isString();
    }

    static boolean isNumber(JsonElement e) {
        return e != null && e.isJsonPrimitive() && e.getAsJsonPrimitive().isNumber();
    }

    static boolean isBool(JsonElement e) {
        return e != null && e.isJsonPrimitive() && e.getAsJsonPrimitive().isBoolean();
    }

    static boolean isInt(JsonElement e) {
        if (!isNumber(e)) {
            return false;
        }
        BigDecimal d = dec(e);
        return d != null && d.precision() - d.scale() <= 18 && d.scale() < 40 && d.stripTrailingZeros().scale() <= 0;
    }

    static BigDecimal dec(JsonElement e) {
        try {
            BigDecimal d = new BigDecimal(e.getAsString());
            return Math.abs((long) d.scale()) > 400 ? null : d;
        } catch (RuntimeException x) {
            return null;
        }
    }

    static String str(JsonObject o, String k) {
        return isString(o.get(k)) ? o.get(k).getAsString() : null;
    }

    /** Recursively sorts object keys (another order of fields). */
    static JsonElement sorted(JsonElement e) {
        if (e.isJsonObject()) {
            JsonObject r = new JsonObject();
            TreeMap<String, JsonElement> m = new TreeMap<>(java.util.Comparator.reverseOrder());
            e.getAsJsonObject().entrySet().forEach(x -> m.put(x.getKey(), x.getValue()));
            m.forEach((k, v) -> r.add(k, sorted(v)));
            return r;
        }
        if (e.isJsonArray()) {
            JsonArray a = new JsonArray();
            e.getAsJsonArray().forEach(x -> a.add(sorted(x)));
            return a;
        }
        return e;
    }
}
