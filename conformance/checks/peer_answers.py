"""Interface 2.3 and 4.3: does the node believe what the peer answers, whatever it is?

The peer changes the tensor of its PipelineForward answers and looks at what the node then answers
its own client. Whether another node has answered instead is not seen, so a good answer is held
against the node only if the run was told that nobody else could have given it (`--sole`).
"""

import struct
from collections.abc import Callable
from math import prod
from typing import Any

from conformance import messages
from conformance.checks.peering import need_work, shown, stimulate, watched
from conformance.context import Context
from conformance.findings import Skipped
from conformance.peer import requests
from conformance.peer.answers import Answer, Reply
from conformance.peer.peer import Outcome
from conformance.peer.watch import Call
from conformance.registry import requirement

SHAPES, NUMBERS, PLAUSIBLE = "CL-LIE-001", "CL-LIE-002", "CL-LIE-003"
# No number as float32, float16 or bfloat16, all little-endian.
NAN = struct.pack("<I", 0x7FC07FC0)
Lie = Callable[[Any], bool]


def _tensors(answer: Any) -> list[tuple[str, str]]:
    pairs = (("hidden_states", "hidden_shape"), ("logits", "logits_shape"))
    return [pair for pair in pairs if getattr(answer, pair[0])]


def wrong_shape(answer: Any) -> bool:
    """Say that each tensor has one row more than it has."""
    for _, shape in _tensors(answer):
        sizes = getattr(answer, shape)
        if sizes:
            sizes[-1] += 1
    return bool(_tensors(answer))


def not_finite(answer: Any) -> bool:
    """Replace each tensor by as many bytes that are no number in any usual format."""
    for data, _ in _tensors(answer):
        size = len(getattr(answer, data))
        setattr(answer, data, (NAN * (size // 4 + 1))[:size])
    return bool(_tensors(answer))


def negated(answer: Any) -> bool:
    """Change the sign of every number, if the tensor's bytes are numbers and nothing else."""
    told = False
    for data, shape in _tensors(answer):
        values = bytearray(getattr(answer, data))
        count = prod(getattr(answer, shape))
        if count and len(values) in (2 * count, 4 * count):
            width = len(values) // count
            for at in range(width - 1, len(values), width):
                values[at] ^= 0x80
            setattr(answer, data, bytes(values))
            told = True
    return told


def _tell(context: Context, lie: Lie) -> tuple[list[Call], Outcome]:
    """Lie to one inference; return the calls that were lied to, and what the node answered."""
    need_work(context)
    peer = context.peer
    told: list[Call] = []

    def conduct(call: Call) -> Answer | None:
        if call.operation != "PipelineForward":
            return None
        usual = peer.usual(call)
        if not isinstance(usual, Reply):
            return usual
        answer: Any = messages.parse("PipelineForwardResponse", usual.body)
        if not answer.success or not lie(answer):
            return usual
        told.append(call)
        return Reply(answer.SerializeToString(), usual.metadata)

    with watched(context) as scene, peer.answering(conduct):
        outcome = stimulate(context)
        if not told or outcome is None:
            made = {call.operation for call in scene.work}
            raise Skipped(
                f"no tensor to lie about: the node made {', '.join(sorted(made)) or 'no call'}"
            )
    return told, outcome


def _judge_belief(context: Context, ident: str, lie: Lie, what: str) -> None:
    told, outcome = _tell(context, lie)
    exchanges = (*shown(told[:2]), *outcome.shown)
    if outcome.status == 0:
        context.unclear(ident, "the node gave no answer to the inference", *exchanges)
    elif outcome.status != 200:
        context.holds(ident, *exchanges)
    elif context.peer.setup.sole:
        context.fails(ident, f"the inference succeeded on {what}", *exchanges)
    else:
        why = f"status 200 after {what}; another node may have answered instead (see --sole)"
        context.observe(ident, why, *exchanges)


@requirement(SHAPES, *requests.PROVES)
def peer_lies_about_shapes(context: Context) -> None:
    """Answer with a tensor that does not have the shape that goes with it."""
    _judge_belief(context, SHAPES, wrong_shape, "a tensor of another shape")


@requirement(NUMBERS, *requests.PROVES)
def peer_lies_with_nan(context: Context) -> None:
    """Answer with a tensor of values that are not numbers."""
    _judge_belief(context, NUMBERS, not_finite, "values that are not finite")


@requirement(PLAUSIBLE, *requests.PROVES)
def peer_lies_plausibly(context: Context) -> None:
    """Answer with every number's sign changed, and report whether the node notices."""
    told, outcome = _tell(context, negated)
    seen = "not noticed: status 200" if outcome.status == 200 else f"noticed: {outcome.status}"
    context.observe(PLAUSIBLE, seen, *shown(told[:2]), *outcome.shown)
