"""Interface 4.1 and 6: texts that are asked for with several parameters at once.

Which parameters go together is drawn, with the seed of the run. Every text is held against the one
that the same prompt has by itself, and only where the node has repeated that text each time.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from conformance.checks.effects import PROMPT, letters
from conformance.checks.money import TRIES
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.passive.events import is_final, stream_ids, tokens_of
from conformance.registry import requirement
from conformance.sse import read
from conformance.strictjson import Json, brief

BEGINS = "NA-INF-058"
# Tokens of the text that is taken apart, and of those that are asked for.
WHOLE = 32
LIMITS = (6, 17, WHOLE, WHOLE, WHOLE)
DRAWS = 11
# The lengths of the pieces of the text that are stop sequences; and of one that is long.
LEAST, PIECE, LONG = 2, 7, 36
# More tokens than a byte counts, and how fast those of the whole text have to be for it.
ENDLESS, FAST_MS = 300, 400.0
# More than most interfaces take, and what these take.
MANY, USUAL = 7, 4
REFUSED = (400, 413, 422)
# The parameters that are drawn.
ASKED = ("max_tokens", "stop", "stream")
# No model says this.
NEVER = ("\u241fnever\u241f", "\u241fneither")


@dataclass(frozen=True)
class Drawn:
    """A request for the text, and who makes it."""

    limit: int | None
    stops: tuple[str, ...]
    stream: bool
    account: Credential

    @property
    def body(self) -> dict[str, Json]:
        """Its body, without what it leaves to the defaults."""
        body: dict[str, Json] = {"prompt": PROMPT, "temperature": 0}
        if self.limit is not None:
            body["max_tokens"] = self.limit
        if self.stops:
            body["stop"] = list(self.stops)
        if self.stream:
            body["stream"] = True
        return body


class _Refused(Exception):
    """So many stop sequences, or such long ones, are not taken, which nothing forbids."""


def _text(context: Context, drawn: Drawn) -> tuple[Answer, str]:
    """Return the letters of an answer; raise `Skipped` if it has none."""
    answer = context.infer(drawn.body, credential=drawn.account)
    if answer.status in REFUSED and (
        len(drawn.stops) > USUAL or max(map(len, drawn.stops)) >= LONG
    ):
        raise _Refused
    found = (answer.json_object() or {}).get("text")
    if drawn.stream and answer.json_object() is None:
        _require_form(answer)
        found = "".join(map(str, tokens_of(answer)))
        if not drawn.stops and not letters(found):
            raise Skipped("a stream says nothing, which is allowed")
    if not answer.ok or not isinstance(found, str):
        raise Skipped(f"POST /inference was answered with status {answer.status}")
    return answer, letters(found.removeprefix(PROMPT))


def _require_form(answer: Answer) -> None:
    """Raise `Skipped` for a stream without the documented form, which others judge."""
    stream = read(answer.body)
    values = [event.value for event in stream.events]
    *tokens, last = values if values else [None]
    formed = all(isinstance(one, dict) and isinstance(one.get("token"), str) for one in tokens)
    if not formed or not isinstance(last, dict) or not is_final(last) or any(map(is_final, tokens)):
        raise Skipped("a stream has not the documented form")


def _draws(context: Context, text: str) -> Iterator[Drawn]:
    """Draw requests, with pieces of the text as stop sequences."""
    source = random.Random(context.target.seed)  # noqa: S311
    accounts = [context.target.valid]
    if context.target.second_token is not None:
        accounts.append(context.target.second)
    for at in range(DRAWS):
        stops = list[str]()
        for _ in range(source.choice((0, 1, 1, 2, 3))):
            # Not in the beginning, so that something is left of the text.
            start = source.randrange(len(text) // 4, len(text) - LEAST)
            piece = text[start : start + source.randint(LEAST, PIECE)]
            if piece.strip():
                stops.append(piece)
        if at == 1:
            # The last of many.
            stops = [f"{number}{NEVER[0]}" for number in range(MANY)] + stops
        elif at == 2:
            # A long one, of which a shorter piece would be somewhere else.
            start = source.randrange(LEAST, max(len(text) - LONG, LEAST + 1))
            stops = [text[start : start + LONG]]
        elif at == 3:
            # Some that begin as the text does, and then are others.
            starts = enumerate(range(4, len(text), 9))
            pieces = [text[start : start + (PIECE, LONG // 2)[at % 2]] for at, start in starts]
            stops = [f"{piece}{NEVER[1]}" for piece in pieces[:MANY]]
        elif at == 4:
            # One that leaves nothing.
            stops = [text[: LEAST + 1]]
        elif at == 5:
            # One that lies across tokens, in a stream.
            start = source.randrange(len(text) // 4, len(text) // 2)
            stops = [text[start : start + PIECE]]
        elif source.random() < 0.4:
            stops.insert(source.randint(0, len(stops)), source.choice(NEVER))
        # Few are as long as the default, which costs.
        limit = None if at in (6, 10) else source.choice(LIMITS) if at > 5 else WHOLE
        # Many are streams, and the first of them is of the whole text.
        stream, account = at in (0, 3, 5, 7, 8), source.choice(accounts)
        unlike = tuple(dict.fromkeys(stops)) if at else ()
        yield Drawn(limit if at else WHOLE, unlike, stream, account)


def endings(text: str, stops: tuple[str, ...]) -> set[str]:
    """Return the letters of the texts that may be left where these sequences end the text.

    Whether the sequence itself is left is not said. Of sequences that lie across one another
    the first that begins may end the text, or the first that is complete.
    """
    found = [(text.find(stop), text.find(stop) + len(stop)) for stop in stops if stop in text]
    if not found:
        return {letters(text)}
    first = min(end for _, end in found)
    cuts = {cut for start, end in found if start < first for cut in (start, end)}
    return {letters(text[:cut]) for cut in cuts}


def fault_of(drawn: Drawn, whole: str, found: str) -> str | None:
    """Return what is wrong with the letters of an answer, given the whole text.

    A text of fewer tokens ends somewhere; one of more goes on as the whole one, if nothing ends it.
    """
    wanted = endings(whole, drawn.stops)
    longest = max(wanted, key=len)
    if drawn.limit is None and longest == letters(whole):
        held = found.startswith(longest)
    elif drawn.limit is not None and drawn.limit < WHOLE:
        held = longest.startswith(found)
    else:
        held = found in wanted
    if held:
        return None
    if longest.startswith(found):
        return "ends too early"
    if found.startswith(longest):
        return "goes on after a stop sequence"
    # Another text altogether may be meant, but not the same letters in another order, or fewer.
    if any(sorted(found) == sorted(one[: len(found)]) for one in (longest, letters(whole))):
        return "has its letters in another order"
    every = iter(longest)
    lacks = len(found) < len(longest) and all(letter in every for letter in found)
    return "lacks letters within it" if lacks else None


@requirement("NA-INF-045", BEGINS, *sorted(stream_ids()))
def mixed_texts(context: Context) -> None:
    """POST /inference with drawn parameters beside one another, and compare with the whole text."""
    plain = Drawn(WHOLE, (), stream=False, account=context.target.valid)
    first = context.infer(plain.body)
    text = (first.json_object() or {}).get("text")
    if not first.ok or not isinstance(text, str) or len(text) < 4 * PIECE:
        raise Skipped("no text to take apart")
    whole = text.removeprefix(PROMPT)
    before = plain
    if context.edition >= SIXTH:
        _judge_beginnings(context, plain)
    for drawn in _draws(context, whole):
        with suppress(_Refused):
            _judge(context, whole, (plain, before, drawn), first)
        before = drawn
    if first.exchange.took_ms < FAST_MS:
        # What its events have is judged in every stream; a slow model would take long for it.
        context.infer({**plain.body, "max_tokens": ENDLESS, "stream": True})


def _judge_beginnings(context: Context, plain: Drawn) -> None:
    """Rule on texts of fewer tokens, which are compared with the whole one on both sides."""
    for limit in LIMITS[:2]:
        wrong = list[str]()
        for _ in range(TRIES):
            before, whole = _text(context, plain)
            answer, found = _text(context, replace(plain, limit=limit))
            after, again = _text(context, plain)
            # Its last letters may be half of what they become.
            if whole != again or whole.startswith(found[:-LEAST]):
                break
            wrong.append(found)
        why = f"the text of {limit} tokens is {brief(found)}, that of {WHOLE} {brief(whole)}"
        held = len(wrong) < TRIES or len(set(wrong)) > 1
        context.judge(BEGINS, held, why, before, answer, after)


def _judge(context: Context, whole: str, asked: tuple[Drawn, Drawn, Drawn], first: Answer) -> None:
    """Rule on a drawn request; the plain one and the one before it are sent between its tries."""
    plain, before, drawn = asked
    wrong = list[tuple[str, str, Answer, Answer]]()
    for at in range(TRIES):
        if at:
            # What a node keeps of a request shows in the one that follows it.
            context.infer(before.body, credential=before.account)
        answer, found = _text(context, drawn)
        fault = fault_of(drawn, whole, found)
        if fault is None:
            context.holds("NA-INF-045", first, answer)
            return
        again, now = _text(context, plain)
        if now != letters(whole):
            # It may keep something of this one, too.
            again, now = _text(context, plain)
        if now != letters(whole):
            raise Skipped("texts with temperature 0 are not always the same")
        wrong.append((fault, found, answer, again))
    if len({found for _, found, _, _ in wrong}) == 1:
        fault, found, answer, again = wrong[-1]
        shown, former = (_parameters(one) for one in (drawn, before))
        why = f"with {shown}, after {former}, the text {fault}: {brief(found)}"
        context.fails("NA-INF-045", f"{why} of {brief(whole)}", again, answer)


def _parameters(drawn: Drawn) -> str:
    return brief({key: value for key, value in drawn.body.items() if key in ASKED})
