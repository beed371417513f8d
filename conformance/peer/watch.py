"""What the tested node has asked of the peer: every call, in the order in which they came.

Terms: a *post* is one address at which the peer answers. The *peer* is the one that the tested
node is told; the *neighbour* and the *bystander* are only named in the peer's DHT answers. The
neighbour answers like a node, the bystander refuses everything.

Invariant: a call is recorded before it is answered.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format

from conformance import messages
from conformance.journal import Exchange, Journal
from conformance.peer.tap import Link

SHOWN_BYTES = 512
SHOWN = 1000
PEER, NEIGHBOUR, BYSTANDER = "peer", "neighbour", "bystander"
WORK = ("PipelineForward", "SwarmForward")
DHT = ("DHTPing", "DHTStore", "DHTFindNode", "DHTFindValue")


@dataclass
class Call:
    """One call of the tested node. `deadline_s` is what it had left; None if it had none."""

    post: str
    operation: str
    body: bytes
    at: float
    caller: str
    deadline_s: float | None
    metadata: tuple[tuple[str, str], ...]
    link: Link | None
    # The name of the status that it was answered with, and when.
    code: str = ""
    answered_at: float = 0.0
    exchange: Exchange | None = None
    # What the peer answered, which a scene may change.
    answer: bytes = b""
    # Whether the peer has made that larger than it was.
    filled: bool = False

    @property
    def message(self) -> Any | None:
        """The request, if the document shows its message and the bytes are one."""
        known = messages.OPERATIONS.get(self.operation)
        if known is None or not messages.MESSAGES[known[0]].DESCRIPTOR.fields:
            return None
        try:
            return messages.parse(known[0], self.body)
        except messages.BadMessage:
            return None

    @property
    def works(self) -> bool:
        """Whether the peer is to compute something; a pass without states may end a session."""
        if self.operation not in WORK:
            return False
        message = self.message
        return message is None or bool(message.hidden_states)

    @property
    def identity(self) -> tuple[str, str]:
        """What is alike in a request and in its repetition: its `request_id`, or its bytes."""
        ident = getattr(self.message, "request_id", "")
        return self.operation, ident or hashlib.sha256(self.body).hexdigest()


@dataclass
class Watch:
    """The record, which servers write and checks read. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    calls: list[Call] = field(default_factory=list)
    noticed: threading.Condition = field(default_factory=threading.Condition)
    # The name of the check that is running.
    check: str = ""
    journal: Journal | None = None

    def begin(self, call: Call) -> None:
        """Record a call that has come."""
        with self.noticed:
            self.calls.append(call)
            self.noticed.notify_all()

    def end(self, call: Call, code: str, details: str = "") -> None:
        """Record how a call is answered."""
        call.answered_at = self.clock()
        if self.journal is not None:
            call.exchange = self.journal.write(
                check=self.check,
                kind="call",
                began=time.monotonic(),
                request={
                    "target": f"the {call.post}",
                    "operation": call.operation,
                    "message": _as_json(call),
                    "deadline_s": call.deadline_s,
                    **_hex(call.body),
                },
                response={"code": code, "details": details, **_hex(call.answer)},
                fault=None,
                reproduce=_described(call),
            )
        with self.noticed:
            call.code = code
            self.noticed.notify_all()


def _described(call: Call) -> str:
    within = "no deadline" if call.deadline_s is None else f"{call.deadline_s:.1f} s"
    told = _as_json(call) or f"{len(call.body)} bytes"
    return f"# the node called {call.operation} of the {call.post}, with {within}: {told[:SHOWN]}"


def _hex(body: bytes) -> dict[str, Any]:
    return {"hex": body[:SHOWN_BYTES].hex(), "bytes": len(body), "cut": len(body) > SHOWN_BYTES}


def _as_json(call: Call) -> str | None:
    message = call.message
    if message is None or len(call.body) > 8 * SHOWN_BYTES:
        return None
    shown = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return json.dumps(shown, ensure_ascii=False)
