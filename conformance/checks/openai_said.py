"""OpenAI's interface (interface 10): one request asked in one piece or in several, for its checks.

Terms: what is *said* is an answer's texts by the index of their choices, and its usage, whether
the answer is a result or a stream; what was *asked* is everything that can be drawn by chance.
Every answer is judged by itself on the way; `openai_mixed.py` compares answers with each other.
"""

from dataclasses import dataclass, replace

from conformance.catalogue import fields_of
from conformance.checks import openai
from conformance.checks.openai_stream import DONE, RULES, Asked, Chunks, chunks_of, judge_chunks
from conformance.checks.openai_texts import CHAT, TEXT, Asking, Kind, choices_of, rules
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.httpwire import Answer
from conformance.shapes import lookup
from conformance.sse import read
from conformance.strictjson import Json, brief, is_int

STREAMED, FORMED, ENDED, QUIET = (f"OA-MIX-{number:03d}" for number in range(1, 5))
# On what the answers of a `Speaker` are judged.
SAID = (
    *rules(CHAT), "OA-CHAT-113", *rules(TEXT), *RULES, *fields_of("openai-chunk"),
    STREAMED, FORMED, ENDED, QUIET,
)  # fmt: skip
FORM = (("id", str), ("object", str), ("model", str), ("choices", list))


@dataclass(frozen=True)
class Said:
    """What one answer says. `texts` and `reasons` have an entry for each choice."""

    answer: Answer
    texts: tuple[str, ...]
    reasons: tuple[Json, ...]
    id: Json
    prompt_tokens: Json
    completion_tokens: Json
    # Whether each text has its form; other rules say so where one has not.
    formed: bool


def stops_of(asked: Asked) -> tuple[str, ...]:
    """Return the stop sequences of a request, however they are written."""
    return (asked.stop,) if isinstance(asked.stop, str) else asked.stop


class Speaker:
    """Asks one route about one prompt, and judges each answer by itself."""

    def __init__(self, context: Context, kind: Kind, prompt: dict[str, Json]) -> None:
        """Find out which model to ask."""
        self.context = context
        self.kind = replace(kind, asked=prompt)
        self._asking = Asking(context, self.kind)
        self._body = {"model": openai.model_of(context), **prompt}
        # What was asked, with what was answered.
        self.heard: list[tuple[Asked, bool, Said]] = []

    def result(self, asked: Asked, **more: Json) -> Said | None:
        """Ask for one answer; None if the server refuses the request."""
        if asked.stop:
            more["stop"] = asked.stop
        made = self._asking.tried(asked.n, asked.limit, **more)
        if made is None:
            return None
        texts, reasons, formed = dict[int, str](), dict[int, Json](), True
        for at, choice in enumerate(choices_of(made.document)):
            found = lookup(choice, self.kind.text)
            texts[at] = found[0] if found and isinstance(found[0], str) else ""
            # An empty text of a chat may be null.
            null = found == [None] and self.kind.of == "CHAT"
            formed = formed and (null or found == [texts[at]])
            reasons[at] = choice.get("finish_reason")
        return self._said(asked, False, made.answer, texts, reasons, made.document, formed=formed)

    def stream(self, asked: Asked) -> Said | None:
        """Ask for a stream; None if the server refuses the request, or answers in one piece."""
        answer = openai.generate(self.context, self.kind.path, {**self._body, **asked.body()})
        if answer.status >= 500:
            openai.judge_route(self.context, self.kind.route, answer, optional=self.kind.optional)
        # Whoever fails in the middle of a stream says so.
        if not answer.ok or any("error" in value for value in _objects(answer)):
            return None
        if self.kind.of == "CHAT":
            chunks = _chunks_of(self.context, asked, answer)
        else:
            chunks = _completions_of(self.context, asked, answer)
        if not chunks:
            return None
        return self._put_together(asked, chunks, answer)

    def _put_together(self, asked: Asked, chunks: Chunks, answer: Answer) -> Said:
        texts, reasons, formed = dict[int, str](), dict[int, Json](), True
        late, ends = list[str](), list[float]()
        path = "delta.content" if self.kind.of == "CHAT" else "text"
        for choice in (choice for chunk in chunks for choice in choices_of(chunk)):
            found, index = lookup(choice, path), choice.get("index")
            if not is_int(index):
                continue
            text = found[0] if found and isinstance(found[0], str) else ""
            formed = formed and isinstance(choice.get("delta", choice.get("text")), dict | str)
            formed = formed and found in ([], [None], [text])
            ends += [index] if isinstance(choice.get("finish_reason"), str) else []
            if text and isinstance(reasons.get(int(index)), str):
                late.append(text)
            texts[int(index)] = texts.get(int(index), "") + text
            reasons[int(index)] = choice.get("finish_reason") or reasons.get(int(index))
        # One that ends more than once violates another sentence.
        if ends and len({*ends}) == len(ends):
            why = f"{brief(late[:2])} follows the finish_reason of its choice"
            self.context.judge(QUIET, not late, why, answer)
        return self._said(asked, True, answer, texts, reasons, chunks[-1], formed=formed)

    def _said(
        self, asked: Asked, streamed: bool, answer: Answer, texts: dict[int, str],
        reasons: dict[int, Json], document: dict[str, Json], *, formed: bool,
    ) -> Said:  # fmt: skip
        counts = [lookup(document, f"usage.{name}_tokens") for name in ("prompt", "completion")]
        if streamed and not asked.usage:
            counts = [[], []]
        told = [found[0] if found and is_int(found[0]) else None for found in counts]
        newer = asked.newer or self.context.edition < SEVENTH
        if streamed and told[1] is not None and not newer:
            why = f"a stream of {told[1]} tokens, with a maximum of {asked.limit} and n {asked.n}"
            held = told[1] <= asked.n * asked.limit
            self.context.judge(self.kind.ident(108), held, why, answer)
        said = Said(
            answer=answer,
            texts=tuple(text for _, text in sorted(texts.items())),
            reasons=tuple(reason for _, reason in sorted(reasons.items())),
            id=document.get("id"),
            prompt_tokens=told[0],
            completion_tokens=told[1],
            formed=formed and sorted(texts) == [*range(asked.n)],
        )
        self._judge_stops(asked, said)
        self.heard.append((asked, streamed, said))
        return said

    def _judge_stops(self, asked: Asked, said: Said) -> None:
        """Rule on whether one of the choices contains a stop sequence."""
        for index, text in enumerate(said.texts if asked.stop else ()):
            there = [stop for stop in stops_of(asked) if stop in text]
            why = f"the text of choice {index} of {asked.n}, {brief(text)}, contains {brief(there)}"
            self.context.judge(self.kind.ident(110), not there, why, said.answer)


def _objects(answer: Answer) -> Chunks:
    """Return the events of a stream that are objects."""
    return [event.value for event in read(answer.body).events if isinstance(event.value, dict)]


def _chunks_of(context: Context, asked: Asked, answer: Answer) -> Chunks:
    """Rule on the events of a stream of a chat; return those that are objects."""
    streamed = answer.media_type == "text/event-stream" and answer.json_object() is None
    begins = answer.body[:60].decode(errors="replace")
    why = f"Content-Type {answer.header('Content-Type')!r}, the body begins with {begins!r}"
    if not context.judge("OA-STREAM-001", streamed, why, answer):
        return []
    chunks = chunks_of(context, answer)
    if chunks:
        judge_chunks(context, chunks, asked, answer)
    return chunks


def _completions_of(context: Context, asked: Asked, answer: Answer) -> Chunks:
    """Rule on the events of a stream of completions; return those that are objects."""
    events = [event for event in read(answer.body).events if event.data.strip()]
    last = [event.data.strip() == DONE for event in events]
    streamed = answer.media_type == "text/event-stream"
    why = f"Content-Type {answer.header('Content-Type')!r}, {last.count(True)} of [DONE]"
    why += f", and the last event is {brief([event.data for event in events[-1:]])}"
    ended = last[-1:] == [True] and last.count(True) == 1
    if not context.judge(STREAMED, streamed and ended, why, answer) and not streamed:
        return []
    values = [event.value for event in events if event.data.strip() != DONE]
    wrong = [value for value in values if not _is_formed(value)]
    context.judge(FORMED, not wrong and bool(values), f"an event is {brief(wrong[:1])}", answer)
    chunks = [value for value in values if isinstance(value, dict)]
    _judge_ends(context, chunks, asked, answer)
    return chunks


def _judge_ends(context: Context, chunks: Chunks, asked: Asked, answer: Answer) -> None:
    ends: dict[int, list[Json]] = {index: [] for index in range(asked.n)}
    for choice in (choice for chunk in chunks for choice in choices_of(chunk)):
        if is_int(choice.get("index")):
            own = ends.setdefault(int(choice["index"]), [])
            own += [choice["finish_reason"]] if choice.get("finish_reason") is not None else []
    known = all(own and set(map(str, own)) <= TEXT.finished for own in ends.values())
    why = f"with n {asked.n} the choices end with {brief(ends)}"
    context.judge(ENDED, known and len(ends) == asked.n, why, answer)


def _is_formed(value: Json) -> bool:
    """Return whether an event of a stream of completions has the form of a completion."""
    if not isinstance(value, dict) or value.get("object") != TEXT.object:
        return False
    headed = all(isinstance(value.get(key), kind) for key, kind in FORM)
    return (
        headed
        and is_int(value.get("created"))
        and all(
            is_int(choice.get("index")) and isinstance(choice.get("text"), str)
            for choice in choices_of(value)
        )
    )
