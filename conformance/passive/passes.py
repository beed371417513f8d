"""Interface 2.3: what the answer to a pass says, whichever check has sent it, and for whatever.

A pass may be of a session, of several sequences, with a cache or with labels, and many may be under
way at once. What the document says of an answer it says of each of them.

Terms: a pass is *bare* if it has no metadata, which may ask for another answer, and *plain* if it
has no labels either.
"""

import json
import math
import threading
from dataclasses import dataclass, field
from typing import Any

from conformance.findings import Findings
from conformance.frames import is_framed
from conformance.grpcwire import Reply
from conformance.journal import Exchange
from conformance.strictjson import brief

OPERATION = "PipelineForward"
SAME_ID, LOGITS_LAST, LAST, SIZE, SHAPE = (
    "PL-FWD-003", "PL-FWD-002", "PL-FWD-005", "PL-FWD-007", "PL-FWD-009",
)  # fmt: skip
ANSWERS = "PL-FWD-004"
IDS = frozenset({SAME_ID, LOGITS_LAST, LAST, SIZE, SHAPE, ANSWERS})
# Bytes of one value.
WIDTHS = (2, 4, 8)


@dataclass
class Passes:
    """What the answers to passes have shown so far."""

    final: dict[tuple[object, bool], tuple[bool, Exchange]] = field(default_factory=dict)
    """Whether a part of the model is the last one, and whether the pass was bare."""
    widths: dict[tuple[str, bool], int] = field(default_factory=dict)
    """How many bytes a value has, of logits and of hidden states."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, findings: Findings, answer: Any, reply: Reply) -> None:
        """Rule on the answer to a pass, given the request and all answers before it."""
        shown = reply.exchange.request.get("message")
        if not isinstance(shown, str):
            # It was sent as bytes, and need not be a message.
            return
        sent = json.loads(shown)
        asked = sent.get("request_id", "")
        why = f"for {brief(asked, 120)} it is {brief(answer.request_id, 120)}"
        findings.judge(SAME_ID, answer.request_id == asked, why, reply)
        if not answer.is_final and answer.logits:
            findings.fails(LOGITS_LAST, "logits without is_final", reply)
        # The end of a session is no pass.
        if answer.success and sent.get("hidden_states"):
            bare = not reply.exchange.request.get("metadata")
            plain = bare and not sent.get("training_labels")
            self._judge_last(findings, (sent.get("target_shard", 0), bare), answer, reply)
            self._judge_sizes(findings, plain, answer, reply)
            shape = [int(size) for size in sent.get("hidden_shape", ())]
            if not answer.is_final and answer.hidden_shape:
                why = f"hidden_states of {brief(shape)} became {brief(list(answer.hidden_shape))}"
                findings.judge(SHAPE, list(answer.hidden_shape) == shape, why, reply)
            if plain and not answer.logits and not answer.hidden_states:
                findings.fails(ANSWERS, "success with neither hidden_states nor logits", reply)

    def _judge_last(
        self, findings: Findings, part: tuple[object, bool], answer: Any, reply: Reply
    ) -> None:
        """Rule on is_final: it is about the part of the model, and not about the pass."""
        with self.lock:
            found = bool(answer.is_final), reply.exchange
            known, first = self.final.setdefault(part, found)
        if known != answer.is_final:
            why = f"of target_shard {part[0]} is_final was {known}, and is {answer.is_final}"
            findings.fails(LAST, why, first, reply)

    def _judge_sizes(self, findings: Findings, plain: bool, answer: Any, reply: Reply) -> None:
        """Rule on tensors: each has a shape, and the values are as wide as those before."""
        for named, data, sizes in (
            ("logits", answer.logits, answer.logits_shape),
            ("hidden_states", answer.hidden_states, answer.hidden_shape),
        ):
            if data and not sizes:
                findings.fails(SIZE, f"{named} without a shape", reply)
            count = math.prod(sizes)
            if not data or count <= 0:
                continue
            wide = len(data) // count if len(data) % count == 0 else 0
            with self.lock:
                if wide in WIDTHS:
                    self.widths.setdefault((named, plain), wide)
                known = self.widths.get((named, plain))
            if known is not None and wide != known and not is_framed(bytes(data)):
                why = f"{named} has {len(data)} bytes for {brief(list(sizes))}, {known} for a value"
                findings.fails(SIZE, f"{why} before", reply)
