"""Interface 2.1: what stays for long, in all answers of a run.

A version or a role may change, and a peer may connect again, so one change says nothing. What is
another thing in each of several readings is made up anew with each answer, or runs with a clock.
"""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC

from conformance.editions import SIXTH
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.shapes import lookup
from conformance.strictjson import Json, brief
from conformance.times import parse_timestamp

STEADY = "NA-SAME-008"
IDS = frozenset({STEADY})
# So many readings in a row that all say something else, and how far apart they are at least.
READINGS, APART_S = 4, 0.8
# A time that is counted back from the moment of an answer may be as much as this off, in seconds.
OFF_S = 2.0
PATHS: dict[str, tuple[str, ...]] = {
    "status": ("version", "role", "layers"),
    "network": ("architecture.layers", "architecture.hidden_dim", "architecture.parameters"),
    "layers": ("total_layers", "my_layer_count"),
}
# Of each peer, which is known by its address, or else by its id.
OF_PEERS = ("id", "role", "layers", "connected_since")
Said = tuple[str, Answer]


@dataclass
class Steady:
    """What a target has said last of each thing, with the answers that say it."""

    said: dict[str, deque[Said]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, findings: Findings, resource: str, answer: Answer) -> None:
        """Rule on an answer, given those before it."""
        document = answer.json_object() if answer.ok and findings.edition >= SIXTH else None
        if document is None:
            return
        with self.lock:
            for name, value in _values(resource, document):
                latest = self.said.setdefault(name, deque(maxlen=READINGS))
                if latest and answer.exchange.at_s < latest[-1][1].exchange.at_s + APART_S:
                    continue
                latest.append((brief(value, 200), answer))
                told = [text for text, _ in latest]
                why = f"{name} is {', '.join(told)}, one after another"
                held = len(set(told)) < READINGS or _is_one_time(told)
                findings.judge(STEADY, held, why, *(one for _, one in latest))


def _is_one_time(told: list[str]) -> bool:
    """Whether these are times that are as good as one."""
    times = [parse_timestamp(text.strip('"')) for text in told]
    seconds = [time.replace(tzinfo=time.tzinfo or UTC).timestamp() for time in times if time]
    return len(seconds) == len(told) and max(seconds) - min(seconds) <= OFF_S


def _values(resource: str, document: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """Yield what stays, by its name."""
    for path in PATHS.get(resource, ()):
        for value in lookup(document, path):
            yield f"{path} of the {resource}", value
    peers = document.get("peers") if resource == "peers" else None
    for peer in peers if isinstance(peers, list) else ():
        address = peer.get("address") if isinstance(peer, dict) else None
        for name in OF_PEERS if isinstance(address, str) else ():
            yield f"{name} of the peer at {address}", peer.get(name)
