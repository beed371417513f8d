"""The training of a node and its peers as a table and a curve (decision 0228).

Everything here comes from another program: only numbers and printable characters are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshnode.client.node_view import aligned, cell, printable

COLUMNS: Final = (
    *("NODE", "STATE", "ROUND", "VERSION", "LOSS", "HELD-OUT", "STEPS", "TOKENS"),
    *("SYNCS", "FAILED"),
)
MAX_NODES: Final = 64
HEIGHT: Final = 8
"""Lines of the curve, each of four dots."""
BLANK: Final = 0x2800
"""The braille character without dots."""
LEFT: Final = 10
"""Characters of the scale beside the curve."""
DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character's dots, by row and column."""


def training_table(state: Mapping[str, Any]) -> str:
    """What the node and its peers report, and which weights are served."""
    served, losses = _mapping(state.get("served")), finite(state.get("losses"))
    done, steps = _number(state, "steps_done"), _number(state, "steps_in_round")
    lines = [
        "training   "
        + ("on" if state.get("enabled") is True else "off")
        + (f", step {done:.0f} of {steps:.0f}" if state.get("enabled") is True else ""),
    ]
    if state.get("problem"):
        lines.append(f"problem    {printable(state.get('problem'))}")
    if losses:
        lines.append(f"held out   {losses[0]:.4f} at first, {losses[-1]:.4f} now")
    dropped = _number(state, "dropped_rounds")
    if dropped:
        lines.append(f"dropped    {dropped:.0f} rounds in a row made the loss worse")
    loss = served.get("held_out_loss")
    known = f", held-out loss {loss:.4f}" if isinstance(loss, float) else ""
    model = cell(served.get("model_hash"))[:16]
    lines.append(
        f"served     version {_number(served, 'version'):.0f} of model {model}{known} "
        f"({cell(served.get('setting'))})"
    )
    if served.get("waiting"):
        lines.append(f"waiting    {printable(served.get('waiting'))}")
    sent, received = _number(state, "bytes_sent"), _number(state, "bytes_received")
    lines.append(f"bytes      {sent / 2**20:.1f} MiB sent, {received / 2**20:.1f} MiB received")
    listed = state.get("nodes")
    nodes = listed if isinstance(listed, list) else []
    nodes = [node for node in nodes if isinstance(node, Mapping)][:MAX_NODES]
    if nodes:
        lines += ["", aligned([COLUMNS, *(_row(node) for node in nodes)])]
    return "\n".join(lines)


def curve(losses: Sequence[float], width: int) -> list[str]:
    """The losses as lines of braille dots, at most ``width`` characters wide."""
    columns = 2 * max(1, width - LEFT)
    shown = list(losses)[-columns:]
    if len(shown) < 2 or width <= LEFT:
        return []
    low, high = min(shown), max(shown)
    spread = high - low or 1.0
    rows = [round((high - loss) / spread * (4 * HEIGHT - 1)) for loss in shown]
    # Few losses are drawn apart, so that the curve fills the width.
    apart = max(1, (columns - 1) // (len(shown) - 1))
    cells = [[0] * (width - LEFT) for _ in range(HEIGHT)]
    for place, (row, following) in enumerate(zip(rows, [*rows[1:], rows[-1]], strict=True)):
        for step in range(apart if place < len(rows) - 1 else 1):
            at = place * apart + step
            dot = round(row + (following - row) * step / apart)
            cells[dot // 4][at // 2] |= DOTS[dot % 4][at % 2]
    scale = {0: f"{high:.4f}"[:8], HEIGHT - 1: f"{low:.4f}"[:8]}
    return [
        f"{scale.get(line, ''):>8}  {''.join(chr(BLANK + dots) for dots in cells[line])}".rstrip(
            chr(BLANK)
        )
        for line in range(HEIGHT)
    ]


def finite(value: object) -> list[float]:
    """The finite numbers of a list."""
    if not isinstance(value, list):
        return []
    numbers = [float(one) for one in value if isinstance(one, int | float)]
    return [one for one in numbers if math.isfinite(one)]


def _row(node: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        cell(node.get("node_id"))[:8],
        cell(node.get("state")),
        f"{_number(node, 'round'):.0f}",
        f"{_number(node, 'version'):.0f} {cell(node.get('weights_hash'))[:8]}",
        f"{_number(node, 'loss'):.4f}",
        f"{_number(node, 'held_out_loss'):.4f}",
        f"{_number(node, 'steps'):.0f}",
        f"{_number(node, 'tokens'):.0f}",
        f"{_number(node, 'syncs'):.0f}",
        f"{_number(node, 'failed_syncs'):.0f}",
    )


def _number(value: Mapping[str, Any], name: str) -> float:
    found = value.get(name)
    number = float(found) if isinstance(found, int | float) else 0.0
    return number if math.isfinite(number) else 0.0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
