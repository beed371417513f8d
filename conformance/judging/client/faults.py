"""The faults of the toy client: each sentence for clients broken once, and each field of its calls.

A fault names the requirement that has to notice it. Those of the fields are derived from the
catalogue: every documented field of every request, at a number that the document does not have,
and of another type on the wire.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from conformance import messages
from conformance.catalogue import MessageRule, load
from conformance.judging.client.manners import Manners
from conformance.messages import FIXED64, VARINT, WireField, encode_field
from conformance.peer.requests import EXPECTED, RULES, WHOLE

# Far from every documented number.
ELSEWHERE = 77
AT_ANOTHER, OF_ANOTHER = "at another number", "of another type"
# The empty request and those that the toy does not make.
OPERATION_OF = {asked: name for name, (asked, _) in messages.OPERATIONS.items() if asked in WHOLE}
# A check that the catalogue does not name brings about what the requirement is about.
SHOWN_BY = {"CL-MSG-003": "peer-gossip"}
ALL = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL")
# What a fault is about, by the beginning of the requirement that it violates.
KINDS = {
    "CL-PORT": "address or id", "CL-DHT": "address or id", "CL-NAMES": "address or id",
    "CL-SHAPE": "shape", "CL-CALL": "deadline or attempts", "CL-CODE": "action after a status",
    "CL-LIE": "believing a wrong answer", "LIM": "limit or keepalive",
    "CL-GOSSIP": "passing on", "CL-URL": "passing on", "PL-BWD": "passing on",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One fault, the requirement that it violates, and the check that shows it."""

    requirement: str
    name: str
    manners: Manners
    # Empty for the kind that its requirement has.
    how: str = ""

    @property
    def kind(self) -> str:
        """What the fault is about."""
        known = (kind for start, kind in KINDS.items() if self.requirement.startswith(start))
        return self.how or next(known)

    @property
    def check(self) -> str:
        """The check that makes the toy do what is wrong."""
        return SHOWN_BY.get(self.requirement, load()[self.requirement].check or "")


def rules() -> Iterator[Fault]:
    """Return a fault for each sentence that is not about a field."""
    sound = Manners()
    repeating = (*ALL, "NOT_FOUND", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED")
    for requirement, name, manners in (
        ("CL-PORT-001", "calls the HTTP port", replace(sound, port_offset=0)),
        ("CL-PORT-001", "calls the HTTP port plus 1001", replace(sound, port_offset=1001)),
        ("CL-DHT-001", "an ID of 16 bytes", replace(sound, id_bytes=16)),
        ("CL-DHT-002", "another ID at each beat", replace(sound, same_id=False)),
        ("CL-DHT-003", "a target of 8 bytes", replace(sound, target_bytes=8)),
        ("CL-DHT-004", "a port at which nobody answers", replace(sound, reachable=False)),
        ("CL-NAMES-001", "asks who is named", replace(sound, asks_who_is_named=True)),
        ("CL-SHAPE-001", "two dimensions", replace(sound, shape=(2, 8))),
        ("CL-SHAPE-001", "four dimensions", replace(sound, shape=(1, 1, 2, 8))),
        ("CL-CALL-001", "no deadline", replace(sound, deadline_s=None)),
        ("CL-CALL-002", "ten attempts", replace(sound, attempts=10)),
        ("CL-CODE-001", "no pause", replace(sound, attempts=20, pauses_for=ALL[1:])),
        ("CL-CODE-001", "no pause, and a new request each time",
         replace(sound, attempts=20, pauses_for=ALL[1:], new_request_id=True)),
        ("CL-CODE-001", "a pause of a hundredth", replace(sound, attempts=30, pause_s=0.001)),
        ("CL-CODE-003", "no pause", replace(sound, attempts=20, pauses_for=ALL[:1])),
        ("CL-CODE-004", "the same again", replace(sound, repeats=(*ALL, "NOT_FOUND"))),
        ("CL-CODE-004", "the same layer in a new request",
         replace(sound, repeats=(*ALL, "NOT_FOUND"), new_request_id=True)),
        ("CL-CODE-005", "the same again", replace(sound, repeats=(*ALL, "INVALID_ARGUMENT"))),
        ("CL-CODE-002", "the same deadline",
         replace(sound, repeats=repeating, raises_deadline=False)),
        ("CL-LIE-001", "believes another shape", replace(sound, checks_shapes=False)),
        ("CL-LIE-002", "believes what is no number", replace(sound, checks_numbers=False)),
        ("LIM-001", "receives 4 MiB", replace(sound, max_receive=4 * 1024 * 1024)),
        ("LIM-002", "no pings", replace(sound, ping_every_s=None)),
        ("LIM-002", "a ping every minute", replace(sound, ping_every_s=60)),
        ("LIM-002", "a ping every 5 s", replace(sound, ping_every_s=5)),
        ("LIM-003", "waits for a ping for ever", replace(sound, ping_timeout_s=None)),
        ("LIM-003", "waits 60 s for a ping", replace(sound, ping_timeout_s=60)),
        ("LIM-003", "waits 2 s for a ping", replace(sound, ping_timeout_s=2)),
        ("CL-GOSSIP-001", "the same ttl", replace(sound, ttl_step=0)),
        ("CL-GOSSIP-001", "a higher ttl", replace(sound, ttl_step=-1)),
        ("CL-GOSSIP-001", "a ttl below 0", replace(sound, ttl_step=3)),
        ("CL-GOSSIP-003", "another batch size", replace(sound, changes_gossip=True)),
        ("CL-GOSSIP-002", "passes it back", replace(sound, passes_back=True)),
        ("CL-GOSSIP-001", "passes on what has ended", replace(sound, passes_from_ttl=-9)),
        ("CL-GOSSIP-010", "keeps what may go on once", replace(sound, passes_from_ttl=2)),
        ("CL-GOSSIP-011", "a ttl that is lower by two", replace(sound, ttl_step=2, ttl_least=0)),
        ("CL-GOSSIP-012", "passes on what it refuses", replace(sound, passes_refused=True)),
        ("CL-PORT-002", "passes on to the HTTP port", replace(sound, passes_to_http=True)),
        ("CL-GOSSIP-013", "passes on again what comes again", replace(sound, passes_again=True)),
        ("CL-CALL-010", "a gradient once more", replace(sound, gossip_attempts=2)),
        ("CL-CALL-011", "a gradient five times", replace(sound, gossip_attempts=5)),
        ("CL-DHT-010", "a port that is none", replace(sound, names_port=False)),
        ("CL-URL-001", "nobody at sender_url", replace(sound, sender_url="127.0.0.1:1")),
        ("CL-URL-001", "sender_url is no address", replace(sound, sender_url="me")),
        ("PL-BWD-002", "keeps the gradients", replace(sound, passes_gradients=False)),
        ("PL-BWD-004", "sends gradients back twice", replace(sound, passes_twice=True)),
        ("PL-BWD-009", "to the sender of the latest pass", replace(sound, passes_to_latest=True)),
        ("PL-BWD-009", "to the latest sender of this request_id",
         replace(sound, forgets_sessions=True)),
        ("PL-BWD-005", "the shape of another gradient", replace(sound, back_shape=(1, 2, 9))),
        ("PL-BWD-014", "the gradients that came", replace(sound, back_unchanged=True)),
        ("PL-BWD-016", "gradients to the HTTP port", replace(sound, back_to_http=True)),
        ("CL-CALL-003", "pauses of four seconds",
         replace(sound, pause_s=4.0, longest_pause_s=9.0)),
        ("CL-CALL-004", "a deadline of a minute for gradients",
         replace(sound, back_deadline_s=6.0)),
        ("CL-CALL-004", "a deadline of half a second for gradients",
         replace(sound, back_deadline_s=0.05)),
        ("CL-CODE-007", "the same again", replace(sound, repeats=(*ALL, "NOT_FOUND"))),
        ("CL-CODE-008", "no pause", replace(sound, pauses_for=ALL[1:])),
        ("CL-CALL-005", "pauses of a fortieth", replace(sound, pause_s=0.025)),
    ):  # fmt: skip
        yield Fault(requirement, name, manners)


def fields() -> Iterator[Fault]:
    """Return a fault for each field that the toy sends and for each way to get it wrong."""
    for asked, operation in OPERATION_OF.items():
        for _, rule in RULES[asked]:
            if asked in EXPECTED and rule.field in EXPECTED[asked]:
                yield _field(asked, operation, rule, AT_ANOTHER, _moved)
            change = _retyped_numbers if rule.repeated and rule.type == "int64" else _retyped
            yield _field(asked, operation, rule, OF_ANOTHER, change)


def _field(
    asked: str,
    operation: str,
    rule: MessageRule,
    how: str,
    change: Callable[[WireField], WireField],
) -> Fault:
    def rewrite(called: str, body: bytes) -> bytes:
        if called != operation:
            return body
        return b"".join(
            encode_field(change(field) if field.number == rule.number else field)
            for field in messages.wire_fields(body)
        )

    name = f"{asked}.{rule.field} {how}"
    return Fault(WHOLE[asked], name, Manners(rewrite=rewrite), f"field of a request {how}")


def _moved(field: WireField) -> WireField:
    return WireField(ELSEWHERE, field.wire_type, field.value)


def _retyped(field: WireField) -> WireField:
    if field.wire_type == VARINT:
        return WireField(field.number, FIXED64, bytes(8))
    return WireField(field.number, VARINT, 1)


def _retyped_numbers(field: WireField) -> WireField:
    # A varint would be one of them, not packed.
    return WireField(field.number, FIXED64, bytes(8))
