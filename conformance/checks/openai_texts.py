"""OpenAI's interface (interface 10): chat completions and completions that are not streams.

Both routes share what a *kind* has: how text is asked for, and where it is in a choice.
"""

from dataclasses import dataclass
from typing import Any

from conformance.catalogue import fields_of
from conformance.checks import openai
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import judge_shape, lookup
from conformance.strictjson import Json, brief, is_int, is_number

# A prompt is longer than these, so that one count is not taken for the other.
MAX_TOKENS, MAX_OF_TWO, DEFAULT_TOKENS = 8, 4, 16
FINISHED = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
FINISHED_TEXT = frozenset({"stop", "length", "content_filter"})


@dataclass(frozen=True)
class Kind:
    """One of the two routes. `text` is the path of a choice's text."""

    route: str
    path: str
    resource: str
    of: str
    object: str
    asked: dict[str, Json]
    text: str
    finished: frozenset[str]
    optional: bool = False

    def ident(self, number: int) -> str:
        """Return the id of one of the rules that both kinds have."""
        return f"OA-{self.of}-{number}"


CHAT = Kind(
    "OA-ROUTE-003", openai.CHATS, "openai-chat", "CHAT", "chat.completion", openai.CHAT,
    "message.content", FINISHED,
)  # fmt: skip
TEXT = Kind(
    "OA-ROUTE-004", openai.TEXTS, "openai-text", "TEXT", "text_completion",
    {"prompt": "Once upon a time there was a little girl. She lived in a house with a garden, and"},
    "text", FINISHED_TEXT, optional=True,
)  # fmt: skip


def rules(kind: Kind) -> tuple[str, ...]:
    """Return the ids on which the check of a kind may rule."""
    return (kind.route, *fields_of(kind.resource), *(kind.ident(n) for n in range(101, 113)))


@dataclass(frozen=True)
class Made:
    """An answer with texts, judged by itself."""

    answer: Answer
    document: dict[str, Json]
    texts: list[str]
    reasons: list[str]

    def of(self, path: str) -> Json:
        """Return a value of the answer, or None."""
        found = lookup(self.document, path)
        return found[0] if found else None


class Asking:
    """Asks one route for texts, and judges what every answer has."""

    def __init__(self, context: Context, kind: Kind) -> None:
        """Find out which model to ask."""
        self.context, self.kind = context, kind
        self._body = {"model": openai.model_of(context), **kind.asked, "temperature": 0}

    def good(self, n: int = 1, limit: int | None = MAX_TOKENS, **more: Json) -> Made:
        """Send a request that every server accepts; end the check if it is not served."""
        answer = self._sent(n, limit, more)
        openai.judge_route(self.context, self.kind.route, answer, optional=self.kind.optional)
        return self._judged(answer, n, limit)

    def optional(self, limit: int | None, **more: Json) -> Made | None:
        """Send a request that a server may refuse by the name of its parameter."""
        answer = self._sent(1, limit, more)
        return self._judged(answer, 1, limit) if answer.ok else None

    def tried(self, n: int, limit: int, **more: Json) -> Made | None:
        """Send a request that a server may refuse, but at which it may not fail."""
        answer = self._sent(n, limit, more)
        if answer.status >= 500:
            openai.judge_route(self.context, self.kind.route, answer, optional=self.kind.optional)
        return self._judged(answer, n, limit) if answer.ok else None

    def _sent(self, n: int, limit: int | None, more: dict[str, Json]) -> Answer:
        body = {**self._body, **more}
        if limit is not None:
            body["max_tokens"] = limit
        if n > 1:
            body["n"] = n
        return openai.generate(self.context, self.kind.path, body)

    def _judged(self, answer: Answer, n: int, limit: int | None) -> Made:
        document = openai.json_of(self.context, self.kind.route, answer)
        judge_shape(self.context, self.kind.resource, document, answer)
        choices = choices_of(document)
        made = Made(
            answer,
            document,
            strings(choices, self.kind.text),
            strings(choices, "finish_reason"),
        )
        self._judge_heading(made)
        if isinstance(document.get("choices"), list):
            self._judge_choices(made, choices, n)
        self._judge_usage(made, n, limit)
        return made

    def _judge_heading(self, made: Made) -> None:
        kind, shown = self.kind, made.answer
        if isinstance(made.of("object"), str):
            why = f"object is {brief(made.of('object'))}"
            self.context.judge(kind.ident(101), made.of("object") == kind.object, why, shown)
        openai.judge_created(self.context, kind.ident(103), made.of("created"), shown)
        if isinstance(made.of("model"), str):
            self.context.judge(kind.ident(104), bool(made.of("model")), "model is empty", shown)

    def _judge_choices(self, made: Made, choices: list[dict[str, Json]], n: int) -> None:
        kind, context, shown = self.kind, self.context, made.answer
        why = f"{len(choices)} choices, {n} were asked for"
        context.judge(kind.ident(105), len(choices) == n, why, shown)
        indices = [choice.get("index") for choice in choices]
        if all(is_int(index) for index in indices):
            held = indices == list(range(len(choices)))
            context.judge(kind.ident(106), held, f"indices {brief(indices)}", shown)
        if made.reasons:
            held = set(made.reasons) <= kind.finished
            context.judge(kind.ident(107), held, f"finish_reason {brief(made.reasons)}", shown)
        roles = strings(choices, "message.role")
        if roles:
            held = set(roles) == {"assistant"}
            context.judge("OA-CHAT-113", held, f"roles {brief(roles)}", shown)

    def _judge_usage(self, made: Made, n: int, limit: int | None) -> None:
        kind, context, shown = self.kind, self.context, made.answer
        counts = [
            made.of(f"usage.{name}")
            for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        ]
        if not all(is_int(count) for count in counts):
            return
        prompt, completion, total = counts
        why = f"usage is {brief(made.of('usage'))}"
        fits = total == prompt + completion and prompt > 0 and completion >= 0
        context.judge(kind.ident(112), fits, why, shown)
        if limit is None:
            return
        why += f" with a maximum of {limit} and n {n}"
        context.judge(kind.ident(108), completion <= n * limit, why, shown)
        # A longer text may also end where the model has no room for more.
        if limit <= DEFAULT_TOKENS and n == 1 and made.reasons == ["length"]:
            context.judge(kind.ident(109), completion >= limit, why, shown)


def choices_of(document: dict[str, Json]) -> list[dict[str, Json]]:
    """Return the choices of an answer or a chunk that are objects."""
    listed = document.get("choices")
    return [c for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []


def strings(choices: list[dict[str, Json]], path: str) -> list[str]:
    """Return the strings at a path of each choice; other rules judge what is no string."""
    found = [value for choice in choices for value in lookup(choice, path)]
    return [value for value in found if isinstance(value, str)]


def judge_common(asking: Asking) -> None:
    """Judge what both kinds of texts have."""
    context, kind = asking.context, asking.kind
    first = asking.good()
    second = asking.good(2, MAX_OF_TWO)
    ids = [made.of("id") for made in (first, second)]
    if all(isinstance(ident, str) for ident in ids):
        held = all(ids) and ids[0] != ids[1]
        context.judge(kind.ident(102), held, f"ids {brief(ids)}", first.answer, second.answer)
    _judge_stop(asking, first)


def _judge_stop(asking: Asking, first: Made) -> None:
    """Ask again with a piece of the first text as a stop sequence."""
    context, kind = asking.context, asking.kind
    text = first.texts[0] if first.texts else ""
    # The middle of the text, without white space around it, that does not begin the text.
    stop = text[len(text) // 3 :][:4].strip()
    if not stop or text.startswith(stop):
        return
    for given in ([stop], stop):
        again = asking.good(stop=given)
        for found in again.texts:
            why = f"{brief(found)} contains {brief(stop)}"
            context.judge(kind.ident(110), stop not in found, why, again.answer)
        # Only a server that repeats itself shows that the sequence has ended the text.
        if again.reasons and again.texts[:1] == [text.partition(stop)[0]]:
            why = f"finish_reason {brief(again.reasons)} after {brief(again.texts[0])}"
            context.judge(kind.ident(111), set(again.reasons) == {"stop"}, why, again.answer)


@requirement(*rules(CHAT), "OA-CHAT-113", "OA-CHAT-114", "OA-CHAT-115")
def openai_chat(context: Context) -> None:
    """POST /v1/chat/completions: its fields, and what the parameters of a request do."""
    asking = Asking(context, CHAT)
    judge_common(asking)
    bounded = asking.optional(None, max_completion_tokens=MAX_OF_TWO)
    if bounded is not None and is_int(bounded.of("usage.completion_tokens")):
        count = bounded.of("usage.completion_tokens")
        why = f"{count} tokens with max_completion_tokens {MAX_OF_TWO}"
        context.judge("OA-CHAT-114", count <= MAX_OF_TWO, why, bounded.answer)
    shown = asking.optional(MAX_OF_TWO, logprobs=True)
    if shown is not None:
        made = lookup(shown.document, "choices[].logprobs")
        said = strings(choices_of(shown.document), CHAT.text)
        # A text without tokens has no probabilities.
        if any(said) and made and (made[0] is None or isinstance(made[0], dict)):
            fault = _logprobs_fault((made[0] or {}).get("content"))
            context.judge("OA-CHAT-115", fault is None, fault or "", shown.answer)
            if fault is None and context.edition >= SEVENTH:
                _judge_each_token(context, shown, made[0])


def _judge_each_token(context: Context, shown: Made, logprobs: Any) -> None:
    """Rule on how many tokens have a log probability, where no token says that it is the end."""
    count, told = shown.of("usage.completion_tokens"), len(logprobs["content"])
    if is_int(count) and lookup(shown.document, "choices[].finish_reason") == ["length"]:
        why = f"of {count} tokens {told} have a log probability"
        context.judge("OA-CHAT-115", told >= count, why, shown.answer)


def _logprobs_fault(tokens: Any) -> str | None:
    if not isinstance(tokens, list) or not tokens:
        return f"logprobs.content is {brief(tokens)}"
    for token in tokens:
        named = isinstance(token, dict) and isinstance(token.get("token"), str)
        if not named or not is_number(token.get("logprob")) or token["logprob"] > 0:
            return f"a token is {brief(token)}"
        if not {"bytes", "top_logprobs"} <= set(token):
            return f"bytes or top_logprobs is missing in {brief(token)}"
    return None


@requirement(*rules(TEXT), "OA-TEXT-113")
def openai_completions(context: Context) -> None:
    """POST /v1/completions: its fields, and what the parameters of a request do."""
    asking = Asking(context, TEXT)
    judge_common(asking)
    made = asking.good(limit=None)
    count = made.of("usage.completion_tokens")
    if is_int(count):
        context.judge("OA-TEXT-113", count <= DEFAULT_TOKENS, f"{count} tokens", made.answer)
