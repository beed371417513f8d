"""A toy model: six layers of width 8, of which this node holds some; the vocabulary is syllables."""

import hashlib, random, numpy as np
from core import fault, pec

HID, TOTAL = 8, 6
if pec("many-layers"):
    TOTAL = 320
HELD = [2, 3, 4, 5]
if pec("role-worker"):
    HELD = [1, 2, 3]
if pec("role-driver"):
    HELD = [0, 1, 2, 3]
if pec("one-layer"):
    HELD = [5]
if pec("whole-model"):
    HELD = list(range(6))
if pec("many-layers"):
    HELD = list(range(40, 320))
if pec("layers-unordered"):
    HELD = [4, 2, 5, 3]
if pec("layers-with-gap"):
    HELD = [2, 5]
ROLE = "validator" if TOTAL - 1 in HELD else "driver" if 0 in HELD else "worker"
if pec("role-driver-validator"):
    ROLE, HELD = "driver", list(range(6))
VOCAB = [
    (" " if (i + j) % 2 else "") + c + v
    for i, c in enumerate("bdfgklmnprstvwzj")
    for j, v in enumerate("aeiou")
]
VOCAB += [
    " and",
    ".",
    ",",
    " is",
    "\n",
    " of",
    " é",
    " 猫",
    " the",
    "!",
    "?",
    " it",
    " 7",
    " x",
    ' "',
    ";",
]
V = len(VOCAB)
_r = np.random.default_rng(20240607)
E = _r.standard_normal((V, HID)).astype("<f4")
W = [(_r.standard_normal((HID, HID)) * 0.5).astype("<f4") for _ in range(min(TOTAL, 6))]


def layer(i, h):
    return (np.tanh(h @ W[i % len(W)]) * 0.6 + h * 0.4).astype("<f4")


def run_layers(h, first, last):
    for i in sorted(HELD):
        if first <= i <= last:
            h = layer(i, h)
    return h


def logits_of(h):
    return (h @ E.T).astype("<f4")


def prompt_tokens(p):
    return len(p.encode("utf-8", "surrogatepass"))


class Generation:
    """Iterating gives pieces of text; afterwards text, count and reason are known."""

    def __init__(self, prompt, max_tokens, temperature, top_p, top_k, stop):
        self.p, self.max, self.t, self.top_p, self.k = prompt, max_tokens, temperature, top_p, top_k
        self.stop = [s for s in stop if s]
        if fault("lim-stop-first-only"):
            self.stop = self.stop[:1]
        if fault("lim-stop-four"):
            self.stop = self.stop[-1:] if len(self.stop) < 2 else self.stop[1:]
        if fault("eff-stop-ignored"):
            self.stop = []
        if fault("eff-stop-lowercase"):
            self.stop = [s.upper() for s in self.stop]
        if fault("eff-stop-stripped"):
            self.stop = [s.strip() + "\0" if s != s.strip() else s for s in self.stop]
        self.text, self.count, self.reason = "", 0, "length"
        self.full = ""
        seed = hashlib.blake2b(
            repr((prompt, temperature, top_p, top_k)).encode("utf-8", "surrogatepass")
        ).digest()
        self.rng = random.Random(seed)
        self.eos = 30 + seed[1] % 60 if seed[0] % 7 == 0 and not pec("never-ends") else 10**9
        if pec("ends-early"):
            self.eos = 3 + seed[1] % 5

    def pick(self, lg):
        if self.t == 0:
            return int(np.argmax(lg))
        lg = lg.astype("f8") / max(self.t, 1e-3)
        order = np.argsort(-lg)[: max(1, min(self.k, V))]
        w = np.exp(lg[order] - lg[order[0]])
        w /= w.sum()
        c = np.cumsum(w)
        n = int(np.searchsorted(c, self.top_p - 1e-12)) + 1
        w = w[:n] / w[:n].sum()
        x, acc = self.rng.random(), 0.0
        for i, q in zip(order, w):
            acc += q
            if x < acc:
                return int(i)
        return int(order[0])

    def held_back(self):
        n = 0
        for s in self.stop:
            for k in range(min(len(s) - 1, len(self.full)), 0, -1):
                if self.full.endswith(s[:k]):
                    n = max(n, k)
                    break
        return n

    def __iter__(self):
        data = self.p.encode("utf-8", "surrogatepass")[-400:]
        h = np.zeros(HID, "<f4")
        for b in data[-64:]:
            h = np.tanh(0.6 * h + E[b % V]).astype("<f4")
        sent = 0
        limit = self.max
        if fault("lim-max-tokens-plus-one"):
            limit += 1
        if fault("lim-max-tokens-ignored"):
            limit = 100
        if fault("lim-max-tokens-floor-16"):
            limit = max(limit, 16)
        if fault("lim-max-tokens-prompt"):
            limit = limit + prompt_tokens(self.p)
        while True:
            if self.count >= limit:
                break
            if self.count >= self.eos:
                self.reason = "stop" if not pec("finish-eos") else "eos"
                break
            x = h
            for i in range(6):
                x = layer(i, x)
            noise = np.array([self.rng.random() for _ in range(HID)], "<f4") if self.t else 0
            tok = self.pick(logits_of(x * 1.5 + noise * 0.8) - (0 if not self.count else 0))
            h = np.tanh(0.6 * h + E[tok] + 0.05 * (self.count % 7)).astype("<f4")
            self.count += 1
            self.full += VOCAB[tok]
            cut = [(self.full.find(s), len(s)) for s in self.stop if s in self.full]
            if fault("eff-stop-whole-token"):
                cut = [(c, n) for c, n in cut if VOCAB[tok] in self.stop]
            if fault("eff-stop-not-on-boundary"):
                cut = [(self.full.find(s), len(s)) for s in self.stop if s in VOCAB[tok]]
            if cut and not (
                fault("eff-stop-late")
                and self.count < self.max
                and len(self.full) < min(cut)[0] + 12
            ):
                at = min(cut)[0]
                if fault("eff-stop-late"):
                    at = len(self.full)
                if pec("stop-kept"):
                    at += min(cut)[1]
                self.reason = "stop"
                self.text = self.full[:at]
                if at > sent:
                    yield self.text[sent:]
                return
            upto = len(self.full) - self.held_back()
            if upto > sent:
                yield self.full[sent:upto]
                sent = upto
        self.text = self.full
        if len(self.full) > sent:
            yield self.full[sent:]
