"""Interface 2.3, 4.3 and 7.3: checkpoints by each combination of `model_hash` and `min_version`.

A node may replace its checkpoint at any time. So each combination is compared with what stands
still: what GetCheckpointInfo says before and after it, and the refusal of one of its parts alone.
"""

from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from conformance import messages
from conformance.checks.money import TRIES, Comparison
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief
from conformance.unpacking import BadFrame, TooLarge, unpacked

BOTH, TOLD, SAME = "GR-CKPT-016", "GR-CKPT-017", "GR-CKPT-018"
HASHED, PARAMS, DESCRIBED = "GR-CKPT-002", "GR-CKPT-031", "GR-CKPT-032"
TIMEOUT_S = 60
# Larger checkpoints are downloaded with few of the combinations.
LARGE_BYTES = 4 << 20
HIGHEST = 2**31 - 1
# Shorter data may be in a description by chance.
LEAST_BYTES = 64
STEPS = 1000
REFUSED = ("NOT_FOUND", "INVALID_ARGUMENT")
HEXADECIMAL = "0123456789abcdef"


@dataclass(frozen=True)
class Wish:
    """What a request names: a hash and a minimum version, of which either may be missing."""

    model_hash: str = ""
    min_version: int = 0

    @property
    def parts(self) -> tuple["Wish", ...]:
        """Return what it names, each by itself; nothing if it does not name both."""
        if not self.model_hash or not self.min_version:
            return ()
        return Wish(model_hash=self.model_hash), Wish(min_version=self.min_version)

    def fulfilled_by(self, known: Any) -> bool:
        """Whether a checkpoint is what it asks for."""
        named = self.model_hash in ("", known.model_hash)
        return named and bool(self.min_version <= known.version)

    def __str__(self) -> str:
        """The request in words."""
        named = [f"model_hash {brief(self.model_hash)}"] if self.model_hash else []
        named += [f"min_version {self.min_version}"] if self.min_version else []
        return " and ".join(named) or "no condition"


@dataclass(frozen=True)
class Given:
    """An answer to a wish. `checkpoint` is None where there is none that can be read."""

    reply: Reply
    checkpoint: Any | None

    @property
    def served(self) -> bool:
        """Whether there is a checkpoint."""
        return self.checkpoint is not None and bool(self.checkpoint.success)

    @property
    def refused(self) -> bool:
        """Whether the node says that it has no such checkpoint, and not that it has no time."""
        return self.reply.code in REFUSED or (self.checkpoint is not None and not self.served)


def _ask(context: Context, wish: Wish) -> Given:
    named: dict[str, Any] = {"model_hash": wish.model_hash, "min_version": wish.min_version}
    request = messages.make("GetCheckpointRequest", **named)
    reply = context.grpc.call("GetCheckpoint", request, timeout_s=TIMEOUT_S)
    return Given(reply, reply.message)


def _info(context: Context) -> tuple[Reply, Any | None]:
    request = messages.make("GetCheckpointInfoRequest")
    reply = context.grpc.call("GetCheckpointInfo", request)
    return reply, reply.message


class Try:
    """What one try of all combinations shows: a requirement is broken if one of them breaks it."""

    def __init__(self, context: Context) -> None:
        """Begin with what the node returns to a request without any condition."""
        self.context = context
        self.bare = _ask(context, Wish())
        self.versions: dict[str, int] = {}
        """The version that each hash had first."""
        self._wrong: dict[str, tuple[str, tuple[Reply, ...]]] = {}
        self._held: dict[str, tuple[Reply, ...]] = {}

    def note(self, ident: str, held: bool, why: str, *shown: Reply) -> None:
        """Note what one combination shows."""
        if held:
            self._held.setdefault(ident, shown)
        else:
            self._wrong.setdefault(ident, (why, shown))

    def conclude(self, compared: Comparison) -> None:
        """Hand over what the whole try shows."""
        for ident, (why, shown) in self._wrong.items():
            compared.note(ident, False, why, *shown)
        for ident in set(self._held) - set(self._wrong):
            compared.note(ident, True, "", *self._held[ident])


@requirement(BOTH, TOLD, SAME, HASHED, PARAMS, DESCRIBED)
def checkpoint_combinations(context: Context) -> None:
    """Call GetCheckpoint with each combination of hashes and versions, in a drawn order."""
    compared = Comparison(context)
    for _ in range(TRIES):
        now = Try(context)
        if now.bare.checkpoint is None or not now.bare.served:
            raise Skipped(f"there is no checkpoint: {now.bare.reply.code}")
        draw = Random(context.target.seed)  # noqa: S311 - an order, no secret
        for wish in _wishes(draw, now.bare.checkpoint, context.edition):
            _judge_wish(now, wish)
        now.conclude(compared)
        if compared.clean:
            break
    compared.conclude()
    if context.edition >= SEVENTH:
        _judge_described(context, now.bare)


def _judge_described(context: Context, given: Given) -> None:
    """Rule on a description that has the data of its checkpoint in it, packed or not."""
    data = given.checkpoint.checkpoint_data if given.checkpoint is not None else b""
    forms = [data]
    with suppress(BadFrame, TooLarge):
        forms.append(unpacked(data))
    reply, known = _info(context)
    if known is not None and all(len(form) >= LEAST_BYTES for form in forms):
        why = f"the description has {len(reply.body)} bytes, the data of the checkpoint among them"
        held = not any(form in reply.body for form in forms)
        context.judge(DESCRIBED, held, why, given.reply, reply)


def _wishes(draw: Random, known: Any, edition: int) -> list[Wish]:
    """Return the combinations of the node's own hash and version with none and with others."""
    own = str(known.model_hash)
    later = min(known.version + draw.randrange(1, STEPS), HIGHEST)
    hashes = ["", own, _changed(draw, own)] if own else [""]
    found = [Wish(*pair) for pair in product(hashes, dict.fromkeys((0, known.version, later)))]
    if known.version > 1 and edition >= FIFTH:
        lower = (draw.randrange(1, known.version), known.version - 1)
        found += [Wish(min_version=one) for one in dict.fromkeys(lower)]
    if len(known.checkpoint_data) > LARGE_BYTES:
        # Those that it has to refuse, and one that it need not.
        refused = [wish for wish in found if wish.model_hash not in ("", own)]
        refused += [wish for wish in found if wish.min_version == later and wish not in refused]
        found = [*refused, Wish(own, known.version)]
    if own and edition >= SIXTH:
        found += [Wish(model_hash=other) for other in (own[: draw.randrange(8, 16)], own + "0")]
    draw.shuffle(found)
    return found


def _changed(draw: Random, own: str) -> str:
    """Return a hash that differs from the node's own in one digit."""
    at = draw.randrange(len(own))
    digit = draw.choice([one for one in HEXADECIMAL if one != own[at].lower()])
    return own[:at] + digit + own[at + 1 :]


def _judge_wish(now: Try, wish: Wish) -> None:
    context = now.context
    doubtful = [part for part in wish.parts if not part.fulfilled_by(now.bare.checkpoint)]
    alone = [(part, _ask(context, part)) for part in doubtful]
    told_reply, told = _info(context)
    given = _ask(context, wish)
    found = given.checkpoint
    if found is None or not given.served:
        if wish.parts and given.refused:
            now.note(BOTH, True, "", given.reply)
        return
    if wish.model_hash and not wish.parts and context.edition >= SIXTH:
        why = f"{wish} brings the checkpoint {brief(found.model_hash)}"
        now.note(HASHED, found.model_hash.lower() == wish.model_hash.lower(), why, given.reply)
    if wish.parts:
        held = found.version >= wish.min_version
        held = held and found.model_hash.lower() == wish.model_hash.lower()
        why = f"{wish} bring a checkpoint of version {found.version}, {brief(found.model_hash)}"
        now.note(BOTH, held, why, given.reply)
    for part, before in alone:
        # A new checkpoint may fulfil it meanwhile, but then it still does.
        if before.refused and _ask(context, part).refused:
            why = f"{part} alone is refused, {wish} are served"
            now.note(BOTH, False, why, before.reply, given.reply)
    again_reply, again = _info(context)
    still = told_reply.body == again_reply.body
    if context.edition >= SIXTH and told is not None and again is not None and told.model_hash:
        held = told.model_hash != again.model_hash or told.params == again.params
        why = f"{brief(told.model_hash)} has {told.params} params, and then {again.params}"
        now.note(PARAMS, held, why, told_reply, again_reply)
    if told is not None and again is not None and still and found.version == told.version:
        said, has = (told.model_hash, told.phase), (found.model_hash, found.phase)
        why = f"GetCheckpointInfo has {brief(said)} for version {told.version}, and the"
        why += f" checkpoint with {wish} has {brief(has)}"
        now.note(TOLD, said == has, why, told_reply, given.reply)
    elif context.edition >= FIFTH and told is not None and still and told.model_hash:
        # It is the same one, so another version is not its own.
        why = f"GetCheckpointInfo has version {told.version} for {brief(told.model_hash)}, and the"
        why += f" checkpoint with {wish} has version {found.version}"
        now.note(TOLD, found.model_hash != told.model_hash, why, told_reply, given.reply)
    if context.edition >= FIFTH and found.model_hash and still:
        first = now.versions.setdefault(found.model_hash, found.version)
        why = f"{brief(found.model_hash)} has version {first}, and with {wish} {found.version}"
        now.note(TOLD, first == found.version, why, now.bare.reply, given.reply)
    _judge_data(now, given, wish)


def _judge_data(now: Try, given: Given, wish: Wish) -> None:
    """Rule on the data of one checkpoint, which is asked for in two ways."""
    one, other = now.bare.checkpoint, given.checkpoint
    if one is None or other is None or wish == Wish():
        return
    if (one.version, one.model_hash) == (other.version, other.model_hash):
        same = one.checkpoint_data == other.checkpoint_data and one.total_size == other.total_size
        why = f"{len(one.checkpoint_data)} bytes of {one.total_size} without a condition,"
        why += f" {len(other.checkpoint_data)} of {other.total_size} with {wish}"
        now.note(SAME, same, why, now.bare.reply, given.reply)
