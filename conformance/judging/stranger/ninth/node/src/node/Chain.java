package node;

import com.google.gson.JsonObject;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The native chain: blocks, accounts, jobs and training updates. */
final class Chain {
    static final String ID = "ninth-main-1";
    static final long PRICE = 250_000;
    static final long FEE = 1_000;
    static final int SERVING_ROUND = 57;
    static final int RETAINED = F.on("jobs-retain-16") ? 16 : 128;

    static final class Acct {
        long available;
        long locked;
        int nonce;
    }

    static final class Job {
        Tx tx;
        String id;
        String status = "pending";
        int submitted;
        int expires;
        long due = Long.MAX_VALUE;
        JsonObject response;
        JsonObject refund;
    }

    record Update(int round, int height, String txHash, String owner, String before, String after, String root, Instant time) {}

    final List<Block> blocks = new ArrayList<>();
    final Map<String, Acct> accounts = new LinkedHashMap<>();
    final Map<String, Job> jobs = new LinkedHashMap<>();
    final Deque<String> finished = new ArrayDeque<>();
    final List<Update> updates = new ArrayList<>();
    final List<Keys> validators = new ArrayList<>();
    final List<Long> bonds = new ArrayList<>();
    final Artifacts artifacts;
    final String provider = Keys.named("provider").hex();
    private final java.util.Set<String> verified = new java.util.HashSet<>();
    private String firstSender;
    private final List<Tx> mempool = new ArrayList<>();
    private long lastBlock = System.currentTimeMillis();

    Chain(Artifacts artifacts) {
        this.artifacts = artifacts;
        for (int i = 1; i <= 7; i++) {
            validators.add(Keys.named("validator-" + i));
            bonds.add(1_000_000L * (40 - 3 * i));
            acct(validators.get(i - 1).hex()).available = 5_000_000L * i;
        }
        acct(Keys.named("treasury").hex()).available = 4_611_686_018_427_387_905L;
        acct(Keys.named("test").hex()).available = 5_000_000_000L;
        acct(Keys.named("user-1").hex()).available = 75_000_000L;
        acct(provider).available = 1_000_000L;
        Seed.fill(this, 100);
    }

    Acct acct(String pk) {
        return accounts.computeIfAbsent(pk, k -> new Acct());
    }

    int height() {
        return blocks.size();
    }

    Block head() {
        return blocks.get(blocks.size() - 1);
    }

    int round() {
        return updates.get(updates.size() - 1).round;
    }

    void start() {
        Thread t = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(100);
                    tick();
                } catch (InterruptedException e) {
                    return;
                } catch (RuntimeException e) {
                    e.printStackTrace();
                }
            }
        }, "chain");
        t.setDaemon(true);
        t.start();
    }

    private synchronized void tick() {
        long now = System.currentTimeMillis();
        for (Job j : new ArrayList<>(jobs.values())) {
            if (j.status.equals("pending") && now >= j.due) {
                complete(j);
            }
        }
        boolean idleStop = F.on("chain-stalls") && height() >= 106;
        long every = P.on("slow-blocks") ? 3000 : 1000;
        if (!idleStop && (!mempool.isEmpty() || now - lastBlock >= every)) {
            commit(Instant.ofEpochMilli(now));
        }
    }

    void commit(Instant time) {
        int h = height() + 1;
        String prev = h == 1 ? "0".repeat(64) : head().hash();
        StringBuilder state = new StringBuilder();
        accounts.forEach((k, a) -> state.append(k).append(a.available).append(a.locked).append(a.nonce));
        String proposer = validators.get(h % validators.size()).hex();
        List<Tx> txs = mempool;
        if (F.on("broadcast-never-in-block")) txs = txs.stream().filter(t -> !t.publicKey().equals(Keys.named("test").hex())).toList();
        blocks.add(Block.make(h, prev, time, proposer, Util.sha256(state.toString()), txs));
        mempool.clear();
        lastBlock = System.currentTimeMillis();
        for (Job j : new ArrayList<>(jobs.values())) {
            if (j.status.equals("pending") && h >= j.expires + (F.on("expiry-ten-late") ? 10 : F.on("s2-expiry-early") ? -15 : 0) && !F.on("expiry-never")) {
                expire(j, h);
            }
        }
    }

    void add(Tx t) {
        mempool.add(t);
    }

    /** Preliminary acceptance. Returns null or the reason for the refusal. */
    synchronized String submit(Tx t) {
        JsonObject b = t.body();
        boolean known = F.on("s2-signature-cache") && verified.contains(t.signature());
        if (!F.on("tx-signature-unchecked") && !known && !t.valid()) {
            return "4 signature does not verify";
        }
        verified.add(t.signature());
        if (!t.type().equals("inference_request")) {
            return "5 unsupported transaction type";
        }
        if (!F.on("tx-chain-id-unchecked") && !(F.on("tx-chain-id-prefix") ? String.valueOf(J.str(b, "chain_id")).startsWith("ninth-") : ID.equals(J.str(b, "chain_id")))) {
            return "6 wrong chain id";
        }
        for (String k : List.of("nonce", "max_tokens", "expires_height")) {
            if (!J.isInt(b.get(k)) || b.get(k).getAsLong() < 0) {
                return "7 " + k + " must be an integer";
            }
        }
        String price = J.str(b, "price");
        String prompt = J.str(b, "prompt");
        String prov = J.str(b, "provider");
        String ckpt = J.str(b, "checkpoint");
        if (price == null || !price.matches("[1-9]\\d{0,17}") || prompt == null || prompt.isEmpty() || prov == null || !prov.matches("[0-9a-f]{64}")) {
            return "7 malformed body";
        }
        if (!artifacts.root(SERVING_ROUND).equals(ckpt)) {
            return "8 checkpoint is not the serving checkpoint";
        }
        if (b.get("max_tokens").getAsLong() < 1 || b.get("max_tokens").getAsLong() > 512) {
            return "7 max_tokens must be between 1 and 512";
        }
        long p = Long.parseLong(price);
        if (p < PRICE) {
            return "9 price below the fixed price";
        }
        if (b.get("expires_height").getAsLong() <= height() && !F.on("tx-expiry-unchecked")) {
            return "10 expiry height has passed";
        }
        Acct a = acct(t.publicKey());
        long nonce = b.get("nonce").getAsLong();
        boolean nonceOk = F.on("tx-nonce-reuse") ? nonce <= a.nonce : F.on("tx-nonce-gap-accepted") ? nonce >= a.nonce : nonce == a.nonce;
        if (!nonceOk) {
            if (F.on("s2-rebroadcast-takes-fee")) a.available -= Math.min(a.available, FEE);
            return "11 nonce is " + nonce + ", expected " + a.nonce;
        }
        if (a.available < p + FEE) {
            return "12 insufficient balance";
        }
        boolean charge = !F.on("native-not-charged");
        Acct own = a;
        if (F.on("s2-native-first-sender-pays")) {
            if (firstSender == null) firstSender = t.publicKey();
            a = acct(firstSender);
        }
        if (charge) {
            a.available -= p + FEE;
            if (F.on("native-charged-twice")) a.available -= p;
            a.locked += p;
            acct(validators.get(0).hex()).available += FEE;
        }
        a = own;
        if (!F.on("nonce-not-advanced")) {
            a.nonce += 1;
        }
        mempool.add(t);
        Job j = new Job();
        j.tx = t;
        j.id = F.on("request-id-is-tx-hash") ? t.hash() : t.requestId();
        j.submitted = height() + 1;
        j.expires = (int) Math.min(Integer.MAX_VALUE / 2, b.get("expires_height").getAsLong());
        if (prov.equals(provider)) {
            j.due = System.currentTimeMillis() + (P.on("slow-provider") ? 2500 : 700);
        }
        jobs.put(j.id, j);
        return null;
    }

    void complete(Job j) {
        String prompt = J.str(j.tx.body(), "prompt");
        int max = j.tx.body().get("max_tokens").getAsInt();
        Text.Result r = Text.generate(new Inference.Req(prompt, max, 0, 1, 50, false, List.of()));
        String text = String.join("", r.tokens());
        Tx t = Tx.sign(Keys.named("provider"), J.o("type", "inference_result", "chain_id", ID, "nonce", acct(provider).nonce++, "request_id", j.id,
                "output_sha256", Util.sha256(text), "fee", "0"));
        mempool.add(t);
        long price = Long.parseLong(J.str(j.tx.body(), "price"));
        Acct a = acct(payer(j));
        if (!F.on("native-lock-kept")) {
            a.locked -= price;
        }
        acct(provider).available += price;
        j.status = "completed";
        j.response = J.o("text", text, "tokens_generated", r.tokens().size(), "finish_reason", r.finish(), "provider", provider,
                "height", height() + 1, "tx_hash", t.hash(), "output_sha256", Util.sha256(text));
        retain(j);
    }

    private String payer(Job j) {
        return F.on("s2-native-first-sender-pays") && firstSender != null ? firstSender : j.tx.publicKey();
    }

    private void expire(Job j, int h) {
        long price = Long.parseLong(J.str(j.tx.body(), "price"));
        Acct a = acct(payer(j));
        a.locked -= price;
        if (!F.on("refund-not-paid")) {
            a.available += F.on("refund-half") ? price / 2 : F.on("refund-twice") ? 2 * price : price;
        }
        j.status = "expired";
        if (F.on("s2-refund-record-missing")) {
            retain(j);
            return;
        }
        j.refund = J.o("amount", String.valueOf(price), "to", j.tx.publicKey(), "height", h);
        retain(j);
    }

    private void retain(Job j) {
        finished.addLast(j.id);
        while (finished.size() > RETAINED) {
            jobs.remove(finished.removeFirst());
        }
    }

    synchronized Update train(Tx t, String after) {
        Update last = updates.get(updates.size() - 1);
        int round = last.round + 1;
        String root = artifacts.root(round);
        if (F.on("s2-update-loss-carried")) after = last.after;
        Update u = new Update(round, height() + 1, t.hash(), t.publicKey(), last.after, after, root, Instant.now());
        updates.add(u);
        mempool.add(t);
        return u;
    }

    synchronized int pending() {
        int n = 0;
        for (Job j : jobs.values()) {
            n += j.status.equals("pending") ? 1 : 0;
        }
        return n;
    }
}
