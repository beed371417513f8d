"""The toy model: words that follow from a digest of the prompt."""

import hashlib
import re

from core import fault, peculiar

WORDS = (
    "river stone amber quiet lantern north copper meadow signal harvest pillar winter thread ember "
    "anchor violet market garden shadow engine silver bridge morning carbon harbor pocket timber "
    "mirror saddle puzzle falcon ribbon"
).split()
END = 320


def count(prompt):
    """Tokens of a prompt: one for each character, and one that opens it."""
    if fault("rel-count-capped-64"):
        return min(len(prompt) + 1, 64)
    return len(prompt) + 1


def words(prompt, most):
    state = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest()
    for index in range(most):
        state = hashlib.sha256(state + b"%d" % index).digest()
        yield ("" if index == 0 else " ") + WORDS[state[0] % len(WORDS)]


def generate(prompt, most, stops):
    """Tokens, their text and the reason of the end."""
    limit = min(most, 24 if peculiar("short-texts") else END)
    tokens, text = [], ""
    stops = [stop for stop in stops if stop]
    if fault("eff-only-first-stop"):
        stops = stops[:1]
    if fault("eff-stop-within-token-only"):
        stops = [stop for stop in stops if " " not in stop.strip()]
    if fault("eff2-stop-in-prompt") and any(stop in prompt for stop in stops):
        return [], "", "stop"
    for word in words(prompt, limit):
        tokens.append(word)
        text += word
        found = [text.find(stop) for stop in stops if stop in text]
        if fault("eff2-stop-regex"):
            found = [match.start() for match in (re.search(stop, text) for stop in stops) if match]
        if fault("eff2-stop-any-case"):
            found = [text.find(stop.lower()) for stop in stops if stop.lower() in text]
        if found:
            cut = min(found)
            if fault("eff-stop-one-token-late"):
                return tokens, text + " " + WORDS[0], "stop"
            if peculiar("stop-text-included"):
                cut += len(next(s for s in stops if text.find(s) == cut))
            keep, left = [], cut
            for token in tokens:
                if left <= 0:
                    break
                keep.append(token[:left])
                left -= len(keep[-1])
            return keep, text[:cut], "stop"
    reason = "length" if len(tokens) >= most else "stop"
    return tokens, text, reason
