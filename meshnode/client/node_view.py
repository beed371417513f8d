"""What a node says of itself and of its peers, as aligned text (interface 2.1).

Everything here comes from another program, so whatever is not printable is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshnode.client.errors import GatewayMisbehaves, GatewayRefuses
from meshnode.client.transport import NODE_API, exchange

SECONDS: Final = 10.0
MAX_CELL: Final = 64
MAX_TEXT: Final = 400
COLUMNS: Final = ("ID", "ADDRESS", "ROLE", "LAYERS", "LATENCY", "SINCE")


def ask_node(base: str, path: str, token: str = "", api: str = NODE_API) -> dict[str, Any]:
    """The JSON object at a path of the node API. Raises ClientError."""
    answer = exchange(base + api + path, None, SECONDS, token)
    # An unhealthy node answers its health with 503.
    if answer.status not in (200, 503):
        hint = ": a token is needed, see --token-file" if answer.status == 401 else ""
        raise GatewayRefuses(f"{path} is answered with {answer.status}{hint}", answer.status)
    try:
        value = json.loads(answer.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise GatewayMisbehaves(f"{path} is not answered with a JSON object")
    return value


def node_table(
    status: Mapping[str, Any], health: Mapping[str, Any], metrics: Mapping[str, Any]
) -> str:
    """A node's state, a line for each figure."""
    checks = _mapping(health.get("checks"))
    failing = [f"{name}: {state}" for name, state in checks.items() if state not in WELL]
    inference = _mapping(metrics.get("inference"))
    resources, training = _mapping(status.get("resources")), _mapping(status.get("training"))
    rows = [
        ("node", status.get("node_id")),
        ("version", status.get("version")),
        ("state", status.get("status")),
        ("health", ", ".join(failing) or ("ok" if health.get("healthy") else "not healthy")),
        ("up", _duration(status.get("uptime_seconds"))),
        ("role", status.get("role")),
        ("layers", _ranges(status.get("layers"))),
        ("peers", status.get("peer_count")),
        ("memory", f"{_number(resources.get('ram_used')) / 2**20:.0f} MiB"),
        ("processor", f"{_number(resources.get('cpu_percent')):.0f} %"),
        ("requests", inference.get("requests_total")),
        ("tokens", inference.get("tokens_generated")),
        ("latency", f"{_number(inference.get('avg_latency_ms')):.0f} ms on average"),
    ]
    if training.get("enabled"):
        rows.append(("training", f"round {training.get('epoch')}, loss {training.get('loss')}"))
    return aligned([(name, cell(value)) for name, value in rows])


def peers_table(peers: Mapping[str, Any]) -> str:
    """A line for each peer."""
    found = peers.get("peers")
    rows: list[Sequence[str]] = [COLUMNS]
    for peer in found if isinstance(found, list) else []:
        one = _mapping(peer)
        rows.append(
            (
                cell(one.get("id"))[:12],
                cell(one.get("address")),
                cell(one.get("role")),
                _ranges(one.get("layers")),
                f"{_number(one.get('latency_ms')):.1f} ms",
                cell(one.get("connected_since")),
            )
        )
    return aligned(rows) if len(rows) > 1 else "no peers"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells with the same number of columns, the columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def cell(value: object) -> str:
    """A value as printable text of bounded length."""
    return printable(value)[:MAX_CELL]


def printable(value: object) -> str:
    """A value as printable text of at most a few lines."""
    text = "-" if value is None else str(value)
    return "".join(one for one in text if one.isprintable())[:MAX_TEXT]


WELL: Final = frozenset({"ok", "absent"})


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _duration(value: object) -> str:
    minutes = int(_number(value)) // 60
    hours = minutes // 60
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours} h {minutes % 60:02} min"


def _ranges(value: object) -> str:
    """Layers such as ``0-3`` or ``0-1,4``."""
    layers = sorted(
        {one for one in value if isinstance(one, int)} if isinstance(value, list) else ()
    )
    found: list[list[int]] = []
    for layer in layers:
        if found and layer == found[-1][1] + 1:
            found[-1][1] = layer
        else:
            found.append([layer, layer])
    text = ",".join(f"{a}-{b}" if a != b else str(a) for a, b in found)
    return text[:MAX_CELL] or "-"
