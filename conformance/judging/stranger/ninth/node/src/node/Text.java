package node;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;

/** A toy language model over words. */
final class Text {
    private static final String[] WORDS = ("the a one small old quick river stone light cloud market garden winter letter "
            + "node layer tensor signal mountain harbour walks holds sends finds carries opens turns grows over under near "
            + "beyond with without slowly again together, quietly, home. away.").split(" ");

    record Result(List<String> tokens, int promptTokens, String finish) {}

    private Text() {}

    static Result generate(Inference.Req r) {
        int promptTokens = r.prompt().trim().split("\\s+").length;
        long seed = r.prompt().hashCode() * 2654435761L;
        boolean greedy = r.temperature() == 0 || r.topK() == 1;
        Random rnd = greedy ? new Random(seed) : new Random(ThreadLocalRandom.current().nextLong());
        List<String> out = new ArrayList<>();
        StringBuilder text = new StringBuilder();
        String finish = "length";
        int choices = r.topK() == 0 ? WORDS.length : Math.min(WORDS.length, Math.max(2, (int) (Math.min(r.topK(), WORDS.length) * r.topP())));
        int words = 0;
        while (words < r.maxTokens()) {
            String w = WORDS[rnd.nextInt(greedy ? WORDS.length : choices)];
            String tok = words == 0 ? w : " " + w;
            words++;
            int before = text.length();
            text.append(tok);
            int cut = -1;
            if (!(F.on("stop-ignored") || F.on("stop-ignored-stream") && r.stream())) {
                int k = 0;
                for (String s : r.stop()) {
                    if (F.on("stop-first-only") && k++ > 0) break;
                    if (F.on("s2-stop-four-only") && k++ >= 4) break;
                    if (F.on("s2-stop-trimmed") && !s.isBlank()) s = s.trim();
                    int at = F.on("stop-case-insensitive") ? text.toString().toLowerCase(java.util.Locale.ROOT).indexOf(s.toLowerCase(java.util.Locale.ROOT))
                            : F.on("stop-within-token-only") ? (tok.contains(s) ? before + tok.indexOf(s) : -1) : text.indexOf(s);
                    if (F.on("s2-stop-regex")) at = regex(s, text);
                    if (F.on("s2-stop-in-prompt") && r.prompt().contains(s)) at = 0;
                    if (F.on("s2-stop-one-token")) at = tok.contains(s) ? before + tok.indexOf(s) : -1;
                    if (at >= 0 && (cut < 0 || at < cut)) {
                        cut = F.on("stop-kept-in-text") ? at + s.length() : at;
                    }
                }
            }
            if (cut >= 0) {
                String full = text.substring(0, cut);
                if (F.on("s2-stop-stream-late") && r.stream()) {
                    out.add(tok);
                } else {
                    trim(out, full, tok);
                }
                finish = P.on("finish-reasons") ? "stop_sequence" : "stop";
                break;
            }
            out.add(tok);
            if (words > 12 && w.endsWith(".") && rnd.nextInt(3) == 0) {
                finish = P.on("finish-reasons") ? "eos" : "stop";
                break;
            }
        }
        return new Result(out, promptTokens, finish);
    }

    private static int regex(String s, CharSequence text) {
        try {
            java.util.regex.Matcher m = java.util.regex.Pattern.compile(s).matcher(text);
            return m.find() ? m.start() : -1;
        } catch (java.util.regex.PatternSyntaxException e) {
            return -1;
        }
    }

    /** Makes the tokens join to full, which ends before the current token does. */
    private static void trim(List<String> out, String full, String tok) {
        int len = 0;
        for (int i = 0; i < out.size(); i++) {
            int next = len + out.get(i).length();
            if (next > full.length()) {
                String part = full.substring(len);
                while (out.size() > i) {
                    out.remove(out.size() - 1);
                }
                if (!part.isEmpty()) out.add(part);
                return;
            }
            len = next;
        }
        if (len < full.length()) {
            out.add(full.substring(len));
        }
    }
}
