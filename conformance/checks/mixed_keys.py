"""Interface 4.2: accounts and requests that are read in turn, known ones and such that nobody has.

What is read under a key or an id is what belongs to it, whatever was read before. Unused keys are
drawn so that they are points of the curves on which keys of their length are usual. An account may
change at any time, so that a difference counts only if each of three tries shows it.
"""

import random
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from conformance.checks.native import members_of, native_get
from conformance.checks.native_documents import under
from conformance.checks.native_named import texts_in
from conformance.checks.signed_requests import Account, account_of, state_of
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import Pauses, requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

TRIES, KNOWN, BLOCKS = 3, 6, 12
# No longer is an account that is read seldom kept.
FORGOTTEN_S = 2.0
# So many blocks are read to find requests, for so long at most.
SEARCHED, SEARCH_S = 160, 1.0
_KEY = re.compile(r"(?<![0-9a-zA-Z])0[23][0-9a-fA-F]{64}(?![0-9a-zA-Z])", re.ASCII)
# A key of 32 bytes looks like a hash, so that its name has to say what it is.
_BARE, _OWNER = re.compile(r"[0-9a-f]{64}\Z", re.ASCII), re.compile(r"key|owner|sender|provider")
# The modulus and the factor d of Ed25519, -x * x + y * y = 1 + d * x * x * y * y.
EDWARDS = 2**255 - 19
TWIST = -121665 * pow(121666, -1, EDWARDS)
# The moduli of secp256k1 and P-256, and the factors a and b of y * y = x * x * x + a * x + b.
CURVES = (
    (2**256 - 2**32 - 977, 0, 7),
    (2**256 - 2**224 + 2**192 + 2**96 - 1, -3,
     0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B),
)  # fmt: skip
# What is refused for its form; a key that nobody has may also be missing.
REFUSED, MISSING = (400, 403, 409, 422), 404


def draw_point(drawn: random.Random) -> str:
    """Draw 64 hexadecimal digits that are a key on either curve, behind 02 and behind 03."""
    while True:
        x = drawn.getrandbits(250)
        squares = ((x**3 + a * x + b, prime) for prime, a, b in CURVES)
        if all(pow(square, (prime - 1) // 2, prime) == 1 for square, prime in squares):
            return f"{x:064x}"


def draw_edwards(drawn: random.Random) -> str:
    """Draw 64 hexadecimal digits that are a key of Ed25519."""
    while True:
        y = drawn.getrandbits(254)
        square = (y * y - 1) * pow(TWIST * y * y + 1, -1, EDWARDS)
        if pow(square, (EDWARDS - 1) // 2, EDWARDS) == 1:
            return y.to_bytes(32, "little").hex()


@requirement("NT-RULE-059", "NT-RULE-060", "NT-RULE-094")
def native_accounts_mixed(context: Context) -> Pauses:
    """GET accounts of keys that nobody has before and after those of keys that resources name."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    _judge_twins(context, [draw_point(drawn) for _ in range(TRIES)])
    unused = [f"0{drawn.choice('23')}{draw_point(drawn)}" for _ in range(TRIES)]
    if context.edition >= FIFTH:
        # Of both kinds.
        unused = [f"0{'23'[at % 2]}{key[2:]}" for at, key in enumerate(unused)]
    if _are_bare(context):
        unused = [draw_edwards(drawn) for _ in range(TRIES)]
    alone = [account_of(context, key) for key in unused]
    if context.edition >= FIFTH:
        _judge_empty(context, alone)
    known = list(_with_money(context, _named_keys(context)))
    if not known and context.edition >= FIFTH:
        yield FORGOTTEN_S
        known = list(_with_money(context, _named_keys(context)))
    if not known:
        raise Skipped("no resource names a key whose account has money")
    if context.edition >= FIFTH:
        yield FORGOTTEN_S
    _judge_in_turn(context, known, dict(zip(unused, alone, strict=True)))


def _judge_empty(context: Context, unused: list[Account]) -> None:
    """Rule on accounts that nobody has: nothing makes one of them unlike the others."""
    shown = [one for one in unused if one.money or one.nonces]
    if len(shown) > 1:
        why = f"keys that nobody has show {brief([one.money for one in shown], 160)}"
        same = all(_is(one, shown[0]) for one in shown)
        context.judge("NT-RULE-094", same, why, *(one.answer for one in shown))


def _are_bare(context: Context) -> bool:
    return context.edition >= FIFTH and _BARE.match(context.target.public_key or "") is not None


def _judge_twins(context: Context, points: list[str]) -> None:
    """Rule on keys that differ in their first byte: if one is a key, so is the other."""
    answers: dict[str, list[Answer]] = {}
    for first in ("02", "03"):
        keys = [first + point for point in points]
        answers[first] = [native_get(context, "/api/account", {"public_key": key}) for key in keys]
    for first, other in (("02", "03"), ("03", "02")):
        there = all(one.ok or one.status == MISSING for one in answers[first])
        refused = [one.status for one in answers[other] if one.status in REFUSED]
        why = f"keys that begin with {other} are refused with status {brief(refused)},"
        why = f"{why} the same keys with {first} are not"
        if there and len(refused) == len(points):
            context.fails("NT-RULE-060", why, answers[first][-1], answers[other][-1])
            return
    if all(one.ok for one in (*answers["02"], *answers["03"])):
        context.holds("NT-RULE-060", answers["02"][-1], answers["03"][-1])


def _named_keys(context: Context) -> Iterable[str]:
    """Return the declared key, and those that native resources name."""
    found = dict.fromkeys([context.target.public_key] if context.target.public_key else [])
    paths = ("/api/validators", "/api/inference", "/api/network")
    read = [_document(native_get(context, path)) for path in paths]
    for answer, document in (*read, *drawn_blocks(context, BLOCKS)):
        found |= dict.fromkeys(_KEY.findall(_text(answer)))
        if _are_bare(context):
            found |= dict.fromkeys(
                value for name, value in members_of(document)
                if _OWNER.search(name) and isinstance(value, str) and _BARE.match(value)
            )  # fmt: skip
    return list(found)[: 2 * KNOWN]


def _text(answer: Answer) -> str:
    return answer.body.decode("utf-8", "replace") if answer.ok else ""


def drawn_blocks(context: Context, most: int) -> Iterator[tuple[Answer, Json]]:
    """Yield blocks, drawn from all up to the height of the network."""
    _, network = _document(native_get(context, "/api/network"))
    paths = context.target.field_map.get("/api/network height", ())
    heights = [value for path in paths for value in lookup(network, path)]
    heights = [value for value in heights or under(network, "height") if is_int(value)]
    if not heights or heights[0] < 1:
        return
    drawn, below = random.Random(context.target.seed), range(1, int(heights[0]) + 1)  # noqa: S311
    ends = time.monotonic() + SEARCH_S
    for height in drawn.sample(below, min(most, len(below))):
        yield _document(native_get(context, f"/api/block/{height}"))
        if time.monotonic() > ends:
            return


def _document(answer: Answer) -> tuple[Answer, Json]:
    return answer, answer.json_object() if answer.ok else None


def _with_money(context: Context, keys: Iterable[str]) -> Iterator[str]:
    """Yield a few keys whose accounts have money, no two as much."""
    seen: list[list[Json]] = []
    for key in keys:
        # The first reading may show what was read before.
        money = [account_of(context, key).money for _ in range(2)][-1]
        if any(value not in (0, "0") for value in money) and money not in seen:
            seen.append(money)
            yield key
        if len(seen) == KNOWN // 2:
            return


def _judge_in_turn(context: Context, keys: list[str], unused: dict[str, Account]) -> None:
    """Read each account that nobody has behind known ones, and these behind it.

    ``unused`` has what was read of them before.
    """
    wrong = [_found_in_turn(context, keys, key, alone) for key, alone in unused.items()]
    if all(why for why, _ in wrong):
        context.fails("NT-RULE-059", wrong[-1][0], *wrong[-1][1])
    elif not any(why for why, _ in wrong):
        context.holds("NT-RULE-059", *wrong[-1][1])


def _found_in_turn(
    context: Context, keys: list[str], unused: str, alone: Account
) -> tuple[str, list[Answer]]:
    """Say whether an account follows what was read before it, or nothing, with what shows it."""
    shown, after = [alone.answer], list[tuple[Account, Account]]()
    for key in keys:
        known, other, again = (account_of(context, one) for one in (key, unused, key))
        shown += [known.answer, other.answer, again.answer]
        after.append((known, other))
        if _is(again, other) and not _is(known, other):
            turns = f"{brief(known.money)}, and after one that nobody has {brief(again.money)}"
            return f"the account of {key} has {turns}", shown
    follows = all(_is(known, other) for known, other in after)
    if follows and not all(_is(alone, other) for _, other in after):
        turns = " and ".join(brief(known.money) for known, _ in after)
        why = f"a key that nobody has shows {brief(alone.money)}, and after accounts with {turns}"
        return f"{why} the same as these", shown
    return "", shown


def _is(one: Account, other: Account) -> bool:
    """Return whether two accounts have the same figures."""
    return (one.money, one.nonces) == (other.money, other.nonces)


# -- requests --------------------------------------------------------------------------------------

# A prompt of so many letters is not there by chance.
LONG, REQUESTS = 12, 48
# So many hexadecimal digits at the end of an id are drawn anew.
DIGITS = 16
EXPIRED, REFUND_NAMED = "expired", "NT-RULE-062"
# What the name or the text of a refund may have in it.
_REFUND = re.compile(r"refund|return|repa|reimburs|restore|release|credit|back", re.IGNORECASE)


@dataclass(frozen=True)
class Record:
    """What is read under the id of a request."""

    ident: str
    answer: Answer
    document: Json

    def values(self) -> list[Json]:
        """The ids and the prompt that it names, as they are called."""
        names = ("request_id", "id", "prompt")
        return [value for name in names for value in under(self.document, name)]

    @property
    def prompt(self) -> str:
        """The prompt, if it is a text of some length, or an empty one."""
        found = list(under(self.document, "prompt"))
        prompt = found[0] if len(found) == 1 else ""
        return prompt if isinstance(prompt, str) and len(prompt) >= LONG else ""


def record_of(context: Context, ident: str) -> Record:
    """Read what is under an id."""
    answer = native_get(context, "/api/inference/request", {"id": ident})
    return Record(ident, *_document(answer))


def drawn_records(context: Context) -> list[Record]:
    """Read the requests that drawn blocks name. Raises `Skipped` if there are none."""
    idents: dict[str, None] = {}
    for _, block in drawn_blocks(context, SEARCHED):
        named = (ident for ident in under(block, "request_id") if isinstance(ident, str))
        idents |= dict.fromkeys(named)
        if len(idents) >= REQUESTS:
            break
    records = [record_of(context, ident) for ident in list(idents)[:REQUESTS]]
    records = [record for record in records if record.document is not None]
    if not records:
        raise Skipped("the blocks that were read name no request, under request_id")
    return records


@requirement("NT-RULE-061", REFUND_NAMED)
def native_requests_mixed(context: Context) -> None:
    """GET requests that blocks name in turn, and ids that nobody has in between."""
    records = drawn_records(context)
    for record in records:
        if state_of(record.document) == EXPIRED:
            judge_refund(context, record.ident, record.document, record.answer)
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    for record in drawn.sample(records, min(KNOWN, len(records))):
        if record.prompt and _unused(drawn, record.ident):
            _judge_record(context, drawn, record)


def _judge_record(context: Context, drawn: random.Random, record: Record) -> None:
    """Read a request, then an id that nobody has, then the request again."""
    wrong: list[str] = []
    for _ in range(TRIES):
        known = record_of(context, record.ident)
        unused = record_of(context, _unused(drawn, record.ident))
        again = record_of(context, record.ident)
        if record.prompt in texts_in(unused.document):
            wrong.append(f"an id that nobody has shows the prompt {brief(record.prompt)} of"
                         f" {brief(record.ident)}, which was read before")  # fmt: skip
        elif again.document is not None and again.values() != known.values():
            wrong.append(f"{brief(record.ident)} names {brief(known.values())}, and after an id"
                         f" that nobody has {brief(again.values())}")  # fmt: skip
        else:
            context.holds("NT-RULE-061", known.answer, unused.answer, again.answer)
            return
    context.fails("NT-RULE-061", wrong[-1], known.answer, unused.answer, again.answer)


def _unused(drawn: random.Random, ident: str) -> str:
    """Return an id of the same form that nobody has, or an empty one where chance could hit one."""
    tail = ident[-DIGITS:]
    if len(tail) < DIGITS or set(tail) - set("0123456789abcdef"):
        return ""
    return f"{ident[:-DIGITS]}{drawn.getrandbits(4 * DIGITS):0{DIGITS}x}"


def judge_refund(context: Context, ident: str, document: Json, answer: Answer) -> None:
    """Rule on the record of an expired request: a name or a text in it is about a refund."""
    words = [name for name, value in members_of(document) if value is not None]
    found = [word for word in (*words, *texts_in(document)) if _REFUND.search(word)]
    why = f"{brief(ident)} is expired, and its record has only {brief(sorted(words))}"
    context.judge(REFUND_NAMED, bool(found), f"{why}, nothing of a refund", answer)
