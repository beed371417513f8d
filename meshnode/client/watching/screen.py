"""The table that ``meshnode watch`` shows in a terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshnode.client.watching.state import SHORT, Watched, number, path_of, text

LEAST_WIDTH = 40


def render(watched: Watched, trouble: str, width: int, height: int) -> list[str]:
    """The lines of a screen of this size, the most important first. ``trouble`` is shown on top."""
    lines = [*_head(watched, trouble), "", *_peers(watched), "", *_streams(watched), ""]
    room = max(0, height - len(lines) - 1)
    lines += ["LATEST", *reversed(list(watched.news)[-room:])]
    width = max(LEAST_WIDTH, width)
    return [line if len(line) <= width else line[: width - 1] + "…" for line in lines[:height]]


def _head(watched: Watched, trouble: str) -> list[str]:
    node, figures, training = watched.node, watched.figures, watched.training
    state = trouble or ("healthy" if watched.health.get("healthy") else watched.checks() or "…")
    losses = training.get("losses")
    latest = losses[-1] if isinstance(losses, list) and losses else None
    loss = f", held-out loss {latest:.4f}" if isinstance(latest, (int, float)) else ""
    training_now = f"round {number(training, 'version'):.0f}{loss}"
    return [
        f"node {text(node, 'node_id')[:12]}  {text(node, 'version')}  {text(node, 'model')}  "
        f"{text(node, 'role')} {text(node, 'status')}  [{state}]",
        f"streams {number(figures, 'active'):.0f}  waiting {number(figures, 'queued'):.0f}  "
        f"{watched.tokens_per_second:.1f} tokens/s  {number(figures, 'tokens_generated'):.0f} in "
        f"all  failovers {number(figures, 'failovers'):.0f}",
        f"block {number(watched.block, 'height'):.0f}  "
        f"training {training_now if training.get('enabled') else 'off'}",
    ]


def _peers(watched: Watched) -> list[str]:
    if not watched.reads:
        return ["PEERS  a token shows them (MESHNODE_TOKEN, or --token-file FILE)"]
    peers = sorted(watched.peers.values(), key=_first_layer)
    return ["PEER      ROLE       LAYERS      MS   BUSY  ADDRESS", *map(_peer, peers[:20])]


def _first_layer(peer: Mapping[str, Any]) -> tuple[float, str]:
    layers = peer.get("layers")
    first = layers[0] if isinstance(layers, list) and layers else None
    return first if isinstance(first, int) else 1e9, text(peer, "id")


def _peer(peer: Mapping[str, Any]) -> str:
    layers = peer.get("layers")
    held = f"{layers[0]}-{layers[-1]}" if isinstance(layers, list) and layers else "none"
    return (
        f"{text(peer, 'id')[:SHORT]:9} {text(peer, 'role'):10} {held:9} "
        f"{number(peer, 'latency_ms'):5.1f} {number(peer, 'active_sessions'):6.0f}  "
        f"{text(peer, 'address')}"
    )


def _streams(watched: Watched) -> list[str]:
    if not watched.reads:
        return []
    lines = [
        f"{text(one, 'id').removeprefix('gen-')[:SHORT]:9} "
        f"{number(one, 'completion_tokens'):6.0f} of {number(one, 'max_tokens'):<6.0f} "
        f"{path_of(one)}"
        for one in list(watched.generations.values())[:10]
    ]
    return ["STREAM    TOKENS           PATH", *lines]
