package node;

import java.util.LinkedHashMap;
import java.util.Map;

/** Bearer tokens. */
final class Auth {
    static final String CURRENCY = P.on("other-currency") ? "ZED-9" : "NXC";
    final Map<String, Account> accounts = new LinkedHashMap<>();
    private Account lastSeen;

    Auth() {
        long u = 1_000_000L;
        boolean none = P.on("nothing-staked");
        accounts.put("tok-a", new Account("tok-a", addr("a"), 5000 * u, none ? 0 : 500 * u, none ? 0 : 90, Util.today().minusDays(20)));
        accounts.put("tok-b", new Account("tok-b", addr("b"), 250 * u, none ? 0 : 100 * u, none ? 0 : 30, Util.today().minusDays(10)));
        accounts.get("tok-a").pending = 12 * u + u / 2;
    }

    static String addr(String name) {
        return "nx1" + Util.sha256("wallet " + name).substring(0, 40);
    }

    Account byAddress(String address) {
        for (Account a : accounts.values()) {
            if (a.address.equals(address)) {
                return a;
            }
        }
        return null;
    }

    private int refusedInARow;

    Account check(Ctx c, String path) {
        if (!F.on("s2-auth-lockout")) return look(c, path);
        synchronized (this) {
            Account a;
            try {
                a = look(c, path);
            } catch (ApiError e) {
                refusedInARow++;
                throw e;
            }
            boolean out = refusedInARow >= 3;
            refusedInARow = 0;
            if (out) throw denied("invalid token");
            return a;
        }
    }

    private Account look(Ctx c, String path) {
        String h = c.req.getHeader("Authorization");
        if (F.on("s2-auth-query-token") && h == null && c.query.containsKey("access_token")) h = "Bearer " + c.query.get("access_token");
        if (F.on("auth-patch-config-open") && c.req.getMethod().equals("PATCH")) return first();
        if (F.on("auth-missing-400") && h == null) throw ApiError.bad("Authorization header is missing");
        if (F.on("auth-last-session") && lastSeen != null && (h == null || !h.startsWith("Bearer tok-"))) return lastSeen;
        if (h == null) {
            throw denied("missing bearer token");
        }
        if (F.on("auth-case-sensitive-scheme") ? !h.startsWith("bearer ") && !h.startsWith("Bearer ") : !h.regionMatches(true, 0, "Bearer ", 0, 7)) {
            if (F.on("auth-any-scheme")) {
                h = "Bearer " + h.substring(h.indexOf(' ') + 1);
            } else {
                throw denied("expected a bearer token");
            }
        }
        String t = h.substring(7).trim();
        if (F.on("auth-token-prefix")) {
            for (Account a : accounts.values()) {
                if (t.startsWith(a.token)) return a;
            }
        }
        if (F.on("auth-token-ignore-case")) t = t.toLowerCase(java.util.Locale.ROOT);
        if (F.on("auth-inference-any-token") && path.endsWith("/inference")) return accounts.getOrDefault(t, first());
        if (t.equals("tok-x")) {
            if (F.on("auth-expired-send") && path.endsWith("/wallet/send")) return first();
            throw denied("token expired");
        }
        Account a = accounts.get(t);
        if (F.on("auth-unknown-500") && a == null) throw new IllegalStateException("Cannot read field \"address\" because \"account\" is null");
        if (a == null) {
            throw denied("invalid token");
        }
        if (F.on("auth-second-account-as-first") && path.endsWith("/wallet/transactions")) return first();
        lastSeen = a;
        return a;
    }

    private Account first() {
        return accounts.get("tok-a");
    }

    private static ApiError denied(String message) {
        return new ApiError(401, "UNAUTHORIZED", message,
                null);
    }
}
