"""The toy model: six small layers, of which this node holds four, and a deterministic text."""
import hashlib
import io
import re

import lz4.frame
import numpy as np

from switches import on, pec

TOTAL_LAYERS = 6
MY_LAYERS = [2, 3, 4, 5]
HIDDEN = 32
VOCAB = 64
ROUND = 42
PHASE = "early"
LOSS = 2.3125


def _matrix(seed, rows, cols):
    return (np.random.RandomState(seed).standard_normal((rows, cols)) / np.sqrt(rows)).astype(np.float32)


W = {i: _matrix(100 + i, HIDDEN, HIDDEN) for i in range(TOTAL_LAYERS)}
W_OUT = _matrix(999, HIDDEN, VOCAB)
PARAMS = TOTAL_LAYERS * HIDDEN * HIDDEN + HIDDEN * VOCAB


def state_dict(layers, head=False):
    out = io.BytesIO()
    arrays = {"layers.%d.weight" % i: W[i] for i in layers}
    if head:
        arrays["head.weight"] = W_OUT
    np.savez(out, **arrays)
    return out.getvalue()


PLAIN_CHECKPOINT = state_dict(range(TOTAL_LAYERS), True)
CHECKPOINT = lz4.frame.compress(PLAIN_CHECKPOINT, compression_level=1)
MODEL_HASH = hashlib.sha256(b"".join(W[i].tobytes() for i in range(TOTAL_LAYERS)) + W_OUT.tobytes()).hexdigest()


def forward(x, first):
    """Through all layers of the node from `first` on; returns the hidden states and what a backward pass needs."""
    kept = []
    for i in MY_LAYERS:
        if i < first:
            continue
        t = np.tanh(x @ W[i])
        kept.append((i, t))
        x = x + np.float32(0.1) * t
    return x, kept


def backward(grad, kept):
    for i, t in reversed(kept):
        grad = grad + (np.float32(0.1) * grad * (1 - t * t)) @ W[i].T
    return grad.astype(np.float32)


def cross_entropy(logits, labels):
    flat = logits.reshape(-1, VOCAB).astype(np.float64)
    lab = labels.reshape(-1)
    use = lab >= 0
    if not use.any():
        return 0.0
    flat = flat - flat.max(axis=1, keepdims=True)
    logp = flat - np.log(np.exp(flat).sum(axis=1, keepdims=True))
    return float(-logp[use, lab[use]].mean())


WORDS = ("the a river stone light over under small great wind carries slowly toward every morning old garden keeps its "
         "quiet paths where children walk and birds return after winter with songs of distant hills that nobody has "
         "written down yet people remember them when evening comes near water bright as glass so they sing again").split()
MORE = ["café", "naïve", "Zürich", "日本", "über"]


def pieces(prompt, count):
    """`count` tokens that continue the prompt, always the same ones for the same prompt."""
    seed = int.from_bytes(hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    out = []
    since = 0
    for n in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        r = seed >> 33
        since += 1
        if since > 6 and r % 7 == 0:
            out.append("." if r % 2 else ",")
            since = 0
        elif pec("pec-text-unicode") and r % 11 == 0:
            out.append((" " if n else "") + MORE[r % len(MORE)])
        elif pec("pec-text-newlines") and r % 13 == 0:
            out.append("\n")
        else:
            out.append((" " if n else "") + WORDS[r % len(WORDS)])
    return out


def prompt_tokens(prompt):
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if pec("pec-prompt-bos"):
        size += 3
    return max(1, size)


def generate(prompt, max_tokens, stop):
    """(pieces of the text, number of generated tokens, reason)"""
    parts = pieces(prompt, max_tokens)
    text = "".join(parts)
    if on("eff-stop-ignored"):
        stop = []
    if on("eff-stop-first-only"):
        stop = stop[:1]
    if on("n-lim-stop-four"):
        stop = stop[:4]
    cut = None
    for s in stop:
        hay, needle = text, s
        if on("eff-stop-caseless"):
            hay, needle = text.lower(), s.lower()
        if on("eff-stop-trimmed"):
            needle = needle.strip() or needle
        if on("t-lim-stop-cut"):
            needle = needle[:8]
        at = hay.find(needle)
        if on("n-eff-stop-within-token") and not any(needle in p for p in parts):
            at = -1
        if on("n-eff-stop-regex"):
            try:
                m = re.search(needle, hay)
            except re.error:
                m = None
            at = m.start() if m else -1
        if on("t-lim-stop-one-letter") and len(needle) == 1:
            at = -1
        if on("t-eff-stop-list-order") and cut is not None:
            continue
        if on("t-eff-stop-in-prompt") and needle in prompt:
            cut = (0, 0)
        if at >= 0 and (cut is None or at < cut[0]):
            cut = (at, at + len(needle))
    if cut is None:
        return parts, len(parts), "length" if len(parts) >= max_tokens else "stop"
    begin, end = cut
    if on("eff-stop-goes-on"):
        begin = min(len(text), end + 20)
    kept, used, place = [], 0, 0
    for p in parts:
        if place >= end:
            break
        used += 1
        left = p[:max(0, begin - place)]
        if left:
            kept.append(left)
        place += len(p)
    if on("eff-stop-goes-on"):
        kept = [text[:begin]]
    if on("rel-stop-counts-all"):
        used = len(parts)
    return kept, used, "length" if on("rel-stop-reason") else "stop"
