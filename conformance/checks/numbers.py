"""Interface 2.3: the numbers of fields, judged from the bytes of an answer.

A field whose absence is a violation may be there under another number. The bytes then have a field
that the document does not name, or a named one with another type, whose content is what is missing.
Additional fields alone are allowed, so only an answer that lacks something is looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass

from conformance import messages
from conformance.catalogue import MessageRule, fields_of_message, load
from conformance.context import Context
from conformance.grpcwire import Reply

IDENT = "GR-NUM-001"
LOOKS_LIKE: dict[str, Callable[[messages.WireField], bool]] = {
    "DHTNodeInfo": lambda found: _is_message(found),
}


@dataclass(frozen=True)
class Looks:
    """A field that is missing, and the number under which its content seems to be."""

    name: str
    number: int
    found: int

    def __str__(self) -> str:
        """The finding in words."""
        return f"looks like field {self.number} ({self.name}) at number {self.found}"


def _is_message(found: messages.WireField) -> bool:
    if not isinstance(found.value, bytes) or not found.value:
        return False
    try:
        return bool(messages.wire_fields(found.value))
    except messages.BadMessage:
        return False


def _rules(message: str) -> list[MessageRule]:
    catalogue = load()
    found = (catalogue[ident].message for ident in fields_of_message(message))
    return [rule for rule in found if rule is not None]


def moved(message: str, field: str, data: bytes) -> Looks | None:
    """Return where a missing field of a message seems to be, or None."""
    rules = _rules(message)
    wanted = next(rule for rule in rules if rule.field == field)
    known = {rule.number: rule for rule in rules}
    try:
        fields = messages.wire_fields(data)
    except messages.BadMessage:
        return None
    for found in fields:
        if found.number == wanted.number or messages.field_fault(wanted, found):
            continue
        if wanted.type in LOOKS_LIKE and not LOOKS_LIKE[wanted.type](found):
            continue
        other = known.get(found.number)
        # A named field with its own type is that field.
        if other is None or messages.field_fault(other, found):
            return Looks(field, wanted.number, found.number)
    return None


def judge_necessary(
    context: Context, message: str, necessary: dict[str, bool], data: bytes, reply: Reply
) -> None:
    """Rule on the numbers of fields that this answer has to have, by whether it has them."""
    absent = [field for field, present in necessary.items() if not present]
    guesses = [str(looks) for field in absent if (looks := moved(message, field, data))]
    if guesses or not absent:
        context.judge(IDENT, not guesses, f"{message} {'; '.join(guesses)}", reply)
