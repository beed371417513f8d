"""What a watcher knows of a node, from its events (decision 0166). Pure.

Invariant: everything comes from a node that may be anybody's, so each value is read as what it
should be or left out, lists are bounded, and no text can control the terminal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

MAX_PEERS = 256
MAX_GENERATIONS = 64
NEWS = 100
SHORT = 8
MAX_TEXT = 200
SPEED_S = 5.0
"""The span over which tokens per second are measured."""


def number(data: Mapping[str, Any], name: str) -> float:
    """A number of an event; 0 if it is none."""
    value = data.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def text(data: Mapping[str, Any], name: str) -> str:
    """A text of an event on one line, without control characters; empty if it is none."""
    value = data.get(name)
    return visible(value) if isinstance(value, str) else ""


def visible(value: str) -> str:
    """The beginning of a text with escapes for what is not printable."""
    short = value[:MAX_TEXT]
    return short if short.isprintable() else short.encode("unicode_escape").decode("ascii")


def objects(data: Mapping[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    """The objects of a list; none if it is not one."""
    value = data.get(name)
    found = value[:most] if isinstance(value, list) else []
    return [each for each in found if isinstance(each, dict)]


def path_of(data: Mapping[str, Any]) -> str:
    """The path of a generation: its nodes in order."""
    return " > ".join(text(hop, "node_id")[:SHORT] for hop in objects(data, "path", 16))


class Watched:
    """The state of a node, as its events tell it."""

    def __init__(self) -> None:
        self.node: Mapping[str, Any] = {}
        self.health: Mapping[str, Any] = {}
        self.figures: Mapping[str, Any] = {}
        self.training: Mapping[str, Any] = {}
        self.block: Mapping[str, Any] = {}
        self.peers: dict[str, Mapping[str, Any]] = {}
        self.generations: dict[str, dict[str, Any]] = {}
        self.reads = False
        """Whether the token shows peers and generations."""
        self.news: deque[str] = deque(maxlen=NEWS)
        self._speeds: deque[tuple[float, float]] = deque(maxlen=64)

    @property
    def tokens_per_second(self) -> float:
        """Over the latest few seconds."""
        if len(self._speeds) < 2:
            return 0.0
        (since, before), (now, after) = self._speeds[0], self._speeds[-1]
        return max(0.0, (after - before) / (now - since)) if now > since else 0.0

    def apply(self, kind: str, data: Mapping[str, Any], now: float) -> str:
        """Take an event at ``now`` seconds. Returns it in words, or "" if it is no news."""
        words = self._apply(kind, data, now)
        if words:
            self.news.append(words)
        return words

    def _apply(self, kind: str, data: Mapping[str, Any], now: float) -> str:
        topic, _, change = kind.partition(".")
        if topic == "snapshot":
            return self._snapshot(data, now)
        if topic == "peer":
            return self._peer(change, data)
        if topic == "generation":
            return self._generation(change, data)
        if topic == "figures":
            self.figures = data
            self.measure(now)
        elif topic == "node":
            self.node = data
            return f"the node is {text(data, 'status')}"
        elif topic == "health":
            self.health = data
            return "healthy" if data.get("healthy") is True else f"not healthy: {self.checks()}"
        elif topic == "training":
            return self._training(data)
        elif topic == "block":
            self.block = data
            return f"block {number(data, 'height'):.0f}, {number(data, 'count'):.0f} transactions"
        elif topic == "charge":
            return f"charged {text(data, 'atoms')} atoms for {text(data, 'generation')[:12]}"
        return ""

    def measure(self, now: float) -> None:
        """Note the number of tokens at ``now``."""
        self._speeds.append((now, number(self.figures, "tokens_generated")))
        while len(self._speeds) > 2 and now - self._speeds[0][0] > SPEED_S:
            self._speeds.popleft()

    def checks(self) -> str:
        """What is not well, in the words of the health checks."""
        checks = self.health.get("checks")
        found = checks.items() if isinstance(checks, dict) else ()
        ill = [f"{name} {word}" for name, word in found if word not in ("ok", "absent")]
        return visible(", ".join(ill))

    def _snapshot(self, data: Mapping[str, Any], now: float) -> str:
        for name in ("node", "health", "figures", "training"):
            value = data.get(name)
            setattr(self, name, value if isinstance(value, dict) else {})
        blocks = objects(data, "blocks", 64)
        self.block = blocks[-1] if blocks else {}
        self.reads = "peers" in data
        self.peers = {text(one, "id"): one for one in objects(data, "peers", MAX_PEERS)}
        open_ones = objects(data, "generations", MAX_GENERATIONS)
        self.generations = {text(one, "id"): one for one in open_ones}
        self._speeds.clear()
        self.measure(now)
        node = text(self.node, "node_id")[:SHORT]
        return f"connected to {node}: {len(self.peers)} peers shown" if node else "connected"

    def _peer(self, change: str, data: Mapping[str, Any]) -> str:
        identifier = text(data, "id")
        if change == "left":
            self.peers.pop(identifier, None)
            return f"peer {identifier[:SHORT]} left"
        known = identifier in self.peers
        if known or len(self.peers) < MAX_PEERS:
            self.peers[identifier] = data
        return "" if known else f"peer {identifier[:SHORT]} joined from {text(data, 'address')}"

    def _generation(self, change: str, data: Mapping[str, Any]) -> str:
        identifier = text(data, "id")
        name = identifier.removeprefix("gen-")[:SHORT]
        if change == "progress":
            counts = data.get("completion_tokens")
            for one, tokens in counts.items() if isinstance(counts, dict) else ():
                if one in self.generations:
                    self.generations[one]["completion_tokens"] = tokens
            return ""
        if change == "ended":
            self.generations.pop(identifier, None)
            tokens, took = number(data, "completion_tokens"), number(data, "inference_ms")
            return f"stream {name} {text(data, 'state')}: {tokens:.0f} tokens in {took:.0f} ms"
        if change == "began":
            if len(self.generations) < MAX_GENERATIONS:
                self.generations[identifier] = dict(data)
            return f"stream {name} began"
        if change == "routed":
            if identifier in self.generations:
                self.generations[identifier]["path"] = data.get("path")
            return f"stream {name} over {path_of(data)}"
        return f"stream {name} leaves its path: {text(data, 'reason')}"

    def _training(self, data: Mapping[str, Any]) -> str:
        before, self.training = number(self.training, "version"), data
        losses = data.get("losses")
        if number(data, "version") <= before or not isinstance(losses, list) or not losses:
            return ""
        latest = losses[-1]
        loss = f"{latest:.4f}" if isinstance(latest, (int, float)) else "unknown"
        return f"round {number(data, 'version'):.0f} ended, held-out loss {loss}"
