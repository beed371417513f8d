package node;

import java.time.Instant;
import java.util.Locale;

/** The part of the chain that exists when the node starts. */
final class Seed {
    private Seed() {}

    static void fill(Chain c, int heights) {
        Instant t = Instant.now().minusSeconds(heights * 6L + 3);
        Keys user = Keys.named("user-1");
        double loss = 4.25;
        int rounds = 0;
        for (int h = 1; h <= heights; h++) {
            t = t.plusSeconds(6);
            if (h > 5 && rounds < 60 && (h % 3 != 0 || heights < 90)) {
                rounds++;
                Keys w = Keys.named("worker-" + (1 + rounds % 3));
                double next = loss - 0.03 - 0.01 * (rounds % 4) / (rounds + 1);
                Tx x = Tx.sign(w, J.o("type", "training_update", "chain_id", Chain.ID, "nonce", c.acct(w.hex()).nonce++, "round", rounds,
                        "root", c.artifacts.root(rounds), "loss", s(next), "fee", "0"));
                c.add(x);
                c.updates.add(new Chain.Update(rounds, h, x.hash(), w.hex(), s(loss), s(next), c.artifacts.root(rounds), t));
                loss = next;
            }
            if (h % 20 == 0) {
                Chain.Job j = new Chain.Job();
                Chain.Acct a = c.acct(user.hex());
                j.tx = Tx.sign(user, J.o("type", "inference_request", "chain_id", Chain.ID, "nonce", a.nonce++, "provider", c.provider,
                        "checkpoint", c.artifacts.root(Chain.SERVING_ROUND), "prompt", "What does block " + h + " hold?", "max_tokens", 12,
                        "price", String.valueOf(Chain.PRICE), "fee", String.valueOf(Chain.FEE), "expires_height", h + 30));
                j.id = j.tx.requestId();
                j.submitted = h;
                j.expires = h + 30;
                a.available -= Chain.PRICE + Chain.FEE;
                a.locked += Chain.PRICE;
                c.acct(c.validators.get(0).hex()).available += Chain.FEE;
                c.add(j.tx);
                c.jobs.put(j.id, j);
                c.commit(t);
                c.complete(j);
                continue;
            }
            c.commit(t);
        }
    }

    static String s(double d) {
        return String.format(Locale.ROOT, "%.9f", d);
    }
}
