package node;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/** Wallet routes. */
final class Wallet {
    static final long UNIT = 1_000_000L;
    static final long FEE = P.on("fee-free") ? 0 : 10_000L;
    static final int COOLDOWN = 7;
    static final long MIN_STAKE = P.on("min-stake-10") ? 10 * UNIT : UNIT;
    private final Auth auth;
    private final AtomicLong seq = new AtomicLong(1000);
    private final Instant startTime = Instant.now();
    private long staleBalance = -1;
    private volatile Account current;
    private final java.util.Map<Account, Account> destinations = new java.util.HashMap<>();
    private static JsonElement lastAmount;
    private final java.util.Set<Account> stakers = new java.util.HashSet<>();
    private final java.util.Map<Account, Integer> totals = new java.util.HashMap<>();

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    Wallet(Auth auth, List<JsonObject> proofs) {
        this.auth = auth;
        for (Account a : auth.accounts.values()) {
            seed(a, proofs);
        }
    }

    void routes(Web w) {
        w.secured("GET", "/api/v1/wallet/balance", this::balance);
        w.secured("POST", "/api/v1/wallet/send", this::send);
        w.secured("GET", "/api/v1/wallet/transactions", this::transactions);
        w.secured("POST", "/api/v1/wallet/stake", this::stake);
        w.secured("POST", "/api/v1/wallet/unstake", this::unstake);
    }

    static double d(long micros) {
        return F.on("wallet-float32") ? (double) (float) (micros / 1e6) : micros / 1e6;
    }

    static double multiplier(int days) {
        return Math.round((1.0 + days / 365.0) * 100) / 100.0;
    }

    private void seed(Account a, List<JsonObject> proofs) {
        Instant t = Instant.now().minus(12, ChronoUnit.HOURS);
        int n = a.token.equals("tok-a") ? 24 : 9;
        for (int i = 0; i < n; i++) {
            t = t.plus(20, ChronoUnit.MINUTES);
            JsonObject e;
            if (i % 3 == 1) {
                e = entry(a, "send", -(2 + i) * UNIT / 4, t);
                e.addProperty("to", Auth.addr("c" + i % 4));
            } else {
                e = entry(a, "reward", (3 + i) * UNIT / 8, t);
                JsonObject p = proofs.get(i % proofs.size());
                e.add("details", J.o("proof_id", p.get("id"), "role", "worker"));
            }
            a.history.add(e);
        }
    }

    private JsonObject entry(Account a, String type, long amount, Instant t) {
        return J.o("id", "tx-" + a.token.charAt(4) + seq.incrementAndGet(), "type", type, "amount", d(amount), "timestamp", Util.time(t));
    }

    JsonObject record(Account a, String type, long amount, Instant t) {
        JsonObject e = entry(a, type, amount, t);
        a.history.add(e);
        return e;
    }

    void balance(Ctx c) throws IOException {
        Account a = c.account;
        if (F.on("s2-auth-account-shared")) {
            current = a;
            pause(25);
            a = current;
        }
        synchronized (auth) {
            long total = a.total();
            long avail = a.available;
            if (F.on("balance-cached")) {
                if (staleBalance < 0) staleBalance = avail;
                avail = staleBalance;
                total = avail + a.staked + a.pending;
            }
            JsonObject b = J.o("available", d(avail), "staked", d(a.staked), "pending", d(a.pending), "total", d(total));
            if (F.on("balance-pending-null") && a.pending == 0) b.add("pending", J.el(null));
            if (F.on("balance-total-b-off") && a.token.equals("tok-b")) b.addProperty("total", d(total - a.staked));
            Object start = Util.date(a.start);
            Object unlock = Util.date(a.unlock);
            if (F.on("staking-dates-array")) {
                start = J.a(a.start.getYear(), a.start.getMonthValue(), a.start.getDayOfMonth());
            }
            if (F.on("staking-unlock-off-by-one")) unlock = Util.date(a.unlock.minusDays(1));
            long shown = a.staked;
            JsonObject s = J.o("amount", d(shown), "duration_days", a.durationDays, "start_date", start, "unlock_date", unlock,
                    "multiplier", a.multiplier);
            if (F.on("s2-staking-unlock-timestamp")) s.addProperty("unlock_date", a.unlock + "T00:00:00Z");
            String address = a.address;
            c.json(J.o("address", address, "balances", b, "staking", s));
        }
    }

    /** A positive amount in micros. */
    private static long amount(JsonObject b) {
        JsonElement e = b.get("amount");
        if (F.on("s2-amount-missing-previous")) {
            if (e == null) e = lastAmount;
            lastAmount = e;
        }
        if (F.on("s2-amount-in-array") && e != null && e.isJsonArray() && e.getAsJsonArray().size() == 1) e = e.getAsJsonArray().get(0);
        if (F.on("s2-amount-whole-refused") && J.isNumber(e) && e.getAsString().matches("\\d+")) throw ApiError.bad("amount must be a float");
        if (!J.isNumber(e) || J.dec(e) == null) {
            throw ApiError.bad("amount must be a number");
        }
        BigDecimal m = J.dec(e).movePointRight(6);
        if (F.on("s2-amount-cents")) m = J.dec(e).setScale(2, java.math.RoundingMode.HALF_EVEN).movePointRight(6);
        if (m.signum() < 0 && F.on("amount-negative-accepted") || m.signum() == 0 && F.on("amount-zero-accepted")) {
            return m.longValue();
        }
        if (m.signum() <= 0) {
            throw ApiError.bad("amount must be positive");
        }
        if (m.stripTrailingZeros().scale() > 0) {
            throw ApiError.bad("amount has more than 6 decimals");
        }
        if (F.on("amount-int-overflow")) {
            return (m.longValue() / UNIT > Integer.MAX_VALUE ? (int) m.longValue() : m.longValue());
        }
        return m.precision() - m.scale() > 17 ? Long.MAX_VALUE / 4 : m.longValue();
    }

    private static ApiError insufficient(long required, long available) {
        return new ApiError(402, "INSUFFICIENT_BALANCE", "balance too low for the operation",
                J.o("required", d(required), "available", d(available)));
    }

    private Account cachedDestination(Account from, Account dest) {
        Account first = destinations.putIfAbsent(from, dest);
        return first == null ? dest : first;
    }

    void send(Ctx c) throws IOException {
        Account a = c.account;
        JsonObject b = c.body();
        String to = J.str(b, "to");
        if (F.on("send-to-optional") && to == null) to = Auth.addr("c1");
        if (to == null || !to.matches("[A-Za-z0-9_.:-]{3,128}")) {
            throw ApiError.bad("to must be an address");
        }
        if (P.on("strict-address") && !to.matches("nx1[0-9a-f]{40}")) {
            throw ApiError.bad("to must be nx1 and 40 hex digits");
        }
        long amount = amount(b);
        JsonElement m = b.get("memo");
        if (m != null && !m.isJsonNull() && !J.isString(m)) {
            throw ApiError.bad("memo must be a string");
        }
        String memo = m == null || m.isJsonNull() ? "" : m.getAsString();
        if (F.on("s2-memo-64-bytes") && Util.utf8(memo).length > 64) throw ApiError.bad("memo is longer than 64 bytes");
        if (memo.length() > 256) {
            throw ApiError.bad("memo is longer than 256 characters");
        }
        synchronized (auth) {
            long need = amount + FEE;
            if (F.on("send-fee-not-checked") ? amount > a.available : need > a.available) {
                if (F.on("s2-send-402-takes-fee")) a.available = Math.max(0, a.available - FEE);
                if (F.on("s2-send-402-in-history")) record(a, "send", -amount, Instant.now()).addProperty("to", to);
                if (!F.on("send-overdraft")) {
                    throw insufficient(need, a.available);
                }
            }
            if (F.on("send-exact-balance-refused") && need == a.available) throw insufficient(need, a.available);
            long balanceBefore = a.available;
            if (F.on("s2-send-fee-percent") && amount > 100 * UNIT) a.available -= Math.min(a.available - need, amount / 100 - FEE);
            if (F.on("send-race")) {
                long before = a.available;
                try {
                    auth.wait(60);
                } catch (InterruptedException x) {
                    Thread.currentThread().interrupt();
                }
                a.available = before - need;
            } else if (F.on("send-fee-twice")) {
                a.available -= need + FEE;
            } else if (F.on("send-fee-not-charged")) {
                a.available -= amount;
            } else if (!(F.on("send-not-debited-small") && amount < UNIT)) {
                a.available -= need;
            }
            Account dest = auth.byAddress(to);
            Instant now = Instant.now();
            if (F.on("s2-send-receiver-cached") && dest != null) dest = cachedDestination(a, dest);
            if (F.on("s2-send-second-not-credited") && !a.token.equals("tok-a") && dest != a) dest = null;
            if (dest == a && F.on("s2-send-self-adds")) a.available = balanceBefore;
            if (dest != null) {
                dest.available += F.on("send-credited-less-fee") ? amount - FEE : amount;
                if (dest != a) {
                    record(dest, "receive", F.on("s2-history-receive-negative") ? -amount : amount, now).addProperty("from", a.address);
                }
            }
            if (F.on("s2-send-time-of-start")) now = startTime;
            JsonObject e = entry(a, "send", F.on("s2-history-send-positive") ? amount : -amount, now);
            if (F.on("s2-history-time-space")) e.addProperty("timestamp", Util.time(now).replace('T', ' '));
            String id = e.get("id").getAsString();
            e.addProperty("to", to);
            if (F.on("history-to-missing-new")) e.remove("to");
            if (!(F.on("history-no-memo-send") && memo.isEmpty())) {
                a.history.add(e);
            }
            if (F.on("s2-send-id-other")) id = "0x" + Util.sha256(id).substring(0, 32);
            if (F.on("send-id-repeats")) id = "tx-" + Math.abs((to + amount).hashCode());
            if (F.on("memo-html-escaped")) memo = memo.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;");
            if (F.on("s2-memo-bmp-only")) memo = memo.replaceAll("[\\x{10000}-\\x{10ffff}]", "?");
            if (F.on("s2-memo-normalised")) memo = java.text.Normalizer.normalize(memo, java.text.Normalizer.Form.NFC);
            if (F.on("s2-memo-trimmed")) memo = memo.trim();
            if (F.on("memo-url-decoded")) memo = memo.replace('+', ' ');
            JsonObject r = J.o("transaction_id", id, "from", a.address, "to", to, "amount", d(amount), "fee", d(FEE), "memo", memo,
                    "status", F.on("send-status-capitals") ? "CONFIRMED" : P.on("transfer-submitted") ? "submitted" : "confirmed", "timestamp", Util.time(now));
            if (F.on("s2-send-fee-micros")) r.addProperty("fee", FEE);
            if (F.on("s2-send-to-lowercase")) r.addProperty("to", to.toLowerCase(java.util.Locale.ROOT));
            if (F.on("send-timestamp-month-name")) {
                r.addProperty("timestamp", java.time.format.DateTimeFormatter.ofPattern("MMM d, yyyy, h:mm:ss a", java.util.Locale.US)
                        .withZone(java.time.ZoneOffset.UTC).format(now));
            }
            c.json(200, r);
        }
    }

    void transactions(Ctx c) throws IOException {
        int max = P.on("page-max-10") ? 10 : 100;
        int dflt = P.on("page-max-10") ? 5 : 20;
        int limit = c.intParam("limit", dflt, 1, max);
        int offset = c.intParam("offset", 0, 0, Integer.MAX_VALUE - 1000);
        synchronized (auth) {
            List<JsonObject> all = c.account.history;
            int n = all.size();
            if (F.on("s2-history-keeps-30") && n > 30) {
                all = all.subList(n - 30, n);
            }
            int shown = n;
            n = all.size();
            if (F.on("s2-history-offset-needs-limit") && !c.query.containsKey("limit")) offset = 0;
            if (F.on("history-offset-pages")) offset *= limit;
            if (F.on("history-limit-one-more")) limit++;
            JsonArray page = new JsonArray();
            for (int i = offset; i < n && i - offset < limit; i++) {
                JsonObject e = all.get(n - 1 - i);
                page.add(e);
            }
            if (F.on("s2-history-page-reversed")) {
                JsonArray p2 = new JsonArray();
                for (int i = page.size() - 1; i >= 0; i--) p2.add(page.get(i));
                page = p2;
            }
            if (F.on("history-ids-per-page")) {
                JsonArray p2 = new JsonArray();
                for (int i = 0; i < page.size(); i++) {
                    JsonObject e = page.get(i).getAsJsonObject().deepCopy();
                    e.addProperty("id", "tx-" + (i + 1));
                    p2.add(e);
                }
                page = p2;
            }
            if (F.on("history-past-end-500") && offset > n) throw new IllegalStateException("fromIndex(" + offset + ") > toIndex(" + n + ")");
            int total = F.on("history-total-is-page") ? page.size() : shown;
            if (F.on("s2-history-total-cached")) total = totals.merge(c.account, shown, (x, y) -> x);
            int shownLimit = F.on("history-limit-one-more") ? limit - 1 : limit;
            JsonObject r = J.o("transactions", page, "total", total, "limit", (Object) shownLimit, "offset", offset);
            c.json(r);
        }
    }

    void stake(Ctx c) throws IOException {
        Account a = c.account;
        JsonObject b = c.body();
        long amount = amount(b);
        if (F.on("s2-duration-fraction") && J.isNumber(b.get("duration_days")) && J.dec(b.get("duration_days")) != null) {
            b.addProperty("duration_days", J.dec(b.get("duration_days")).intValue());
        }
        if (!J.isInt(b.get("duration_days"))) {
            throw ApiError.bad("duration_days must be an integer");
        }
        BigDecimal dd = J.dec(b.get("duration_days"));
        if (!(F.on("stake-negative-duration")) && (dd.compareTo(BigDecimal.valueOf(1)) < 0 || dd.compareTo(BigDecimal.valueOf(3650)) > 0)) {
            throw ApiError.bad("duration_days must be between 1 and 3650");
        }
        if (amount < MIN_STAKE) {
            throw ApiError.bad("the smallest stake is " + d(MIN_STAKE));
        }
        int days = dd.intValue();
        if (F.on("stake-duration-byte")) days = (byte) days;
        if (F.on("s2-stake-whole-months") && days > 30) days -= days % 30;
        synchronized (auth) {
            if (amount > a.available) {
                if (F.on("stake-against-total") && amount <= a.total()) {
                    a.pending = 0;
                } else {
                    throw insufficient(amount, a.available);
                }
            }
            LocalDate start = F.on("stake-local-date") ? LocalDate.now(java.time.ZoneId.of("Pacific/Kiritimati")).plusDays(1) : Util.today();
            LocalDate unlock = start.plusDays(days);
            if (F.on("stake-unlock-30-only") && days > 30) unlock = start.plusDays(30);
            a.available -= amount;
            if (F.on("s2-stake-pending-first")) {
                long fromPending = Math.min(amount, a.pending);
                a.pending -= fromPending;
                a.available += fromPending;
            }
            if (F.on("s2-stake-debited-again") && !stakers.add(a)) a.available -= Math.min(amount, a.available);
            if (F.on("s2-stake-for-first")) {
                auth.accounts.get("tok-a").staked += amount;
            } else if (!F.on("stake-not-in-staked")) {
                a.staked += amount;
            } else {
                a.pending += amount;
            }
            if (F.on("stake-replaces")) a.staked = amount;
            if (!F.on("stake-position-stale") && !(F.on("s2-stake-keeps-dates") && a.staked > amount)) {
                a.start = start;
                a.durationDays = Math.max(days, (int) ChronoUnit.DAYS.between(start, a.unlock));
                a.unlock = start.plusDays(a.durationDays);
                a.multiplier = multiplier(a.durationDays);
            }
            if (!F.on("stake-no-history")) {
                record(a, "stake", -amount, Instant.now());
            }
            JsonObject s = J.o("amount", d(amount), "duration_days", days, "start_date", Util.date(start), "unlock_date", Util.date(unlock),
                    "multiplier", multiplier(days));
            if (F.on("stake-dates-week-year")) s.addProperty("start_date", java.time.format.DateTimeFormatter.ofPattern("YYYY-MM-DD").format(start));
            JsonObject nb = J.o("available", d(a.available), "staked", d(a.staked));
            if (F.on("stake-new-balance-before")) nb = J.o("available", d(a.available + amount), "staked", d(a.staked - amount));
            c.json(200, J.o("success", (Object) true, "stake", s, "new_balance", nb));
        }
    }

    void unstake(Ctx c) throws IOException {
        Account a = c.account;
        JsonObject ub = c.body();
        if (F.on("s2-unstake-text-amount") && J.isString(ub.get("amount")) && ub.get("amount").getAsString().matches("\\d{1,6}(\\.\\d{1,6})?")) {
            ub.add("amount", J.parse(ub.get("amount").getAsString()));
        }
        long amount = amount(ub);
        synchronized (auth) {
            if (F.on("s2-unstake-all-refused") && amount == a.staked) throw insufficient(amount, a.staked);
            if (amount > a.staked && !(F.on("s2-unstake-against-total") && amount <= a.total())) {
                if (F.on("unstake-too-much-accepted")) {
                    amount = a.staked;
                } else if (F.on("unstake-too-much-success-false")) {
                    c.json(J.o("success", false, "unstake", null));
                    return;
                } else {
                    throw insufficient(amount, a.staked);
                }
            }
            if (F.on("unstake-not-moved")) {
                amount = amount + 0;
            } else if (F.on("unstake-all")) {
                a.pending += a.staked;
                a.staked = 0;
            } else {
                a.staked -= amount;
                if (F.on("s2-unstake-pending-set")) a.pending = 0;
                if (F.on("unstake-available-at-once")) {
                    a.available += amount;
                } else if (!F.on("unstake-vanishes")) {
                    a.pending += amount;
                }
            }
            record(a, "unstake", amount, Instant.now());
            LocalDate when = Util.today().plusDays(F.on("unstake-date-off") ? COOLDOWN + 1 : COOLDOWN);
            JsonObject u = J.o("amount", d(amount), "cooldown_days", COOLDOWN, "available_date", Util.date(when));
            c.json(200, J.o("success", true, "unstake", u));
        }
    }
}
