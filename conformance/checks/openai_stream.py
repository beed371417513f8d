"""OpenAI's interface (interface 10): the chunks of a chat completion with stream true.

Terms: an *event* is the data of one server-sent event; a *chunk* is the object in it; `[DONE]`
alone in an event ends the stream.
"""

from dataclasses import dataclass

from conformance.catalogue import fields_of
from conformance.checks import openai
from conformance.checks.openai_texts import FINISHED, MAX_TOKENS, choices_of, strings
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import judge_shape, lookup
from conformance.sse import read
from conformance.strictjson import Json, brief, is_int

DONE = "[DONE]"
RULES = tuple(f"OA-STREAM-{number:03d}" for number in range(1, 17))
Chunks = list[dict[str, Json]]


@dataclass(frozen=True)
class Asked:
    """What a stream was asked for."""

    n: int = 1
    usage: bool = False
    limit: int = MAX_TOKENS
    # Stop sequences, which may leave nothing of a text.
    stop: str | tuple[str, ...] = ()
    # Whether the maximum has its newer name, and whether it is said that no usage is wanted.
    newer: bool = False
    declined: bool = False

    @property
    def is_long(self) -> bool:
        """Whether some text is left for certain if the maximum is reached."""
        return self.limit >= MAX_TOKENS and not self.stop

    def body(self) -> dict[str, Json]:
        """Return the members of the request."""
        maximum = "max_completion_tokens" if self.newer else "max_tokens"
        more: dict[str, Json] = {"stream": True, maximum: self.limit, "temperature": 0}
        if self.stop:
            more["stop"] = self.stop
        if self.n > 1:
            more["n"] = self.n
        if self.usage or self.declined:
            more["stream_options"] = {"include_usage": self.usage}
        return more


@requirement(*RULES, *fields_of("openai-chunk"))
def openai_stream(context: Context) -> None:
    """POST /v1/chat/completions with stream true: alone, with usage, and with two choices."""
    body = {"model": openai.model_of(context), **openai.CHAT}
    ids: list[Json] = []
    for asked in (Asked(), Asked(usage=True), Asked(n=2)):
        answer = openai.generate(context, openai.CHATS, {**body, **asked.body()})
        openai.judge_route(context, "OA-STREAM-001", answer)
        plain = answer.json_object() is not None
        why = "one JSON answer" if plain else f"Content-Type {answer.header('Content-Type')!r}"
        streamed = not plain and answer.media_type == "text/event-stream"
        if not context.judge("OA-STREAM-001", streamed, why, answer) and plain:
            raise Skipped("the stream is one JSON answer")
        chunks = chunks_of(context, answer)
        if not chunks:
            raise Skipped("the stream has no chunks")
        judge_chunks(context, chunks, asked, answer)
        ids.append(chunks[0].get("id"))
        if len(ids) > 1 and all(isinstance(ident, str) for ident in ids):
            context.judge("OA-STREAM-005", ids[-1] != ids[-2], f"ids {brief(ids)}", answer)


def chunks_of(context: Context, answer: Answer) -> Chunks:
    """Rule on the framing; return the chunks before the end."""
    stream = read(answer.body)
    data = [event.data.strip() for event in stream.events]
    ended = data[-1:] == [DONE] and data.count(DONE) == 1
    last = f"the last event is {brief(data[-1:])}, with {data.count(DONE)} of [DONE]"
    context.judge("OA-STREAM-003", ended, last, answer)
    events = [event for event in stream.events if event.data.strip() != DONE]
    wrong = [event.data[:60] for event in events if not isinstance(event.value, dict)]
    fault = stream.fault or ("" if events else "no event") or (wrong and f"data {wrong[0]!r}")
    context.judge("OA-STREAM-002", not fault, str(fault), answer)
    return [event.value for event in events if isinstance(event.value, dict)]


def judge_chunks(context: Context, chunks: Chunks, asked: Asked, answer: Answer) -> None:
    """Rule on the fields of all chunks, their choices and their usage."""
    for chunk in chunks:
        judge_shape(context, "openai-chunk", chunk, answer)
    kinds = {chunk.get("object") for chunk in chunks if isinstance(chunk.get("object"), str)}
    if kinds:
        why = f"object {brief(sorted(kinds))}"
        context.judge("OA-STREAM-004", kinds == {"chat.completion.chunk"}, why, answer)
    for ident, key in (("OA-STREAM-005", "id"), ("OA-STREAM-007", "model")):
        found = {chunk.get(key) for chunk in chunks if isinstance(chunk.get(key), str)}
        if found:
            held = len(found) == 1 and "" not in found
            context.judge(ident, held, f"{key} {brief(sorted(found))}", answer)
    times = {float(at) for chunk in chunks if is_int(at := chunk.get("created"))}
    if times:
        context.judge("OA-STREAM-006", len(times) == 1, f"created {brief(sorted(times))}", answer)
        openai.judge_created(context, "OA-STREAM-006", min(times), answer)
    _judge_choices(context, chunks, asked, answer)
    _judge_usage(context, chunks, asked, answer)


def _judge_choices(context: Context, chunks: Chunks, asked: Asked, answer: Answer) -> None:
    choices = [choice for chunk in chunks for choice in choices_of(chunk)]
    indices = {choice["index"] for choice in choices if is_int(choice.get("index"))}
    none = not choices and all(isinstance(chunk.get("choices"), list) for chunk in chunks)
    if not indices and not none:
        # The shapes are wrong, which other rules say.
        return
    why = f"indices {sorted(indices)} with n {asked.n}"
    context.judge("OA-STREAM-010", indices == set(range(asked.n)), why, answer)
    contents = [text for choice in choices for text in lookup(choice, "delta.content")]
    typed = all(text is None or isinstance(text, str) for text in contents)
    if contents:
        context.judge("OA-STREAM-008", typed, f"content {brief(contents)}", answer)
    for index in sorted(indices):
        own = [choice for choice in choices if choice.get("index") == index]
        reasons = [choice["finish_reason"] for choice in own if "finish_reason" in choice]
        ends = [reason for reason in reasons if reason is not None]
        if reasons and all(isinstance(reason, str) for reason in ends):
            held = len(ends) == 1 and ends[0] in FINISHED
            context.judge("OA-STREAM-009", held, f"finish_reason {brief(ends)}", answer)
        if isinstance(own[0].get("delta"), dict):
            role = own[0]["delta"].get("role")
            context.judge("OA-STREAM-015", role == "assistant", f"role {brief(role)}", answer)


def _judge_usage(context: Context, chunks: Chunks, asked: Asked, answer: Answer) -> None:
    if not asked.usage:
        told = [chunk["usage"] for chunk in chunks if chunk.get("usage") is not None]
        context.judge("OA-STREAM-011", not told, f"usage {brief(told[:1])}", answer)
        return
    *others, last = chunks
    usage = last.get("usage")
    held = not last.get("choices") and isinstance(usage, dict)
    why = f"the last chunk is {brief(last)}"
    if context.judge("OA-STREAM-012", held, why, answer):
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        given = [usage.get(name) for name in names] if isinstance(usage, dict) else []
        counts = [count for count in given if is_int(count) and count >= 0]
        fits = len(counts) == len(names) and counts[0] + counts[1] == counts[2]
        fits = fits and (asked.newer or counts[1] <= asked.n * asked.limit)
        context.judge("OA-STREAM-014", fits, f"usage {brief(usage)}", answer)
        choices = [choice for chunk in others for choice in choices_of(chunk)]
        shaped = any(isinstance(choice.get("delta"), dict) for choice in choices)
        if fits and shaped and counts[1] == asked.n * asked.limit and asked.is_long:
            said = any(strings(choices, "delta.content"))
            context.judge("OA-STREAM-016", said, f"{counts[1]} tokens and no text", answer)
        wrong = [chunk.get("usage", "missing") for chunk in others]
        wrong = [value for value in wrong if value is not None]
        why = f"usage {brief(wrong[:1])} in another chunk"
        context.judge("OA-STREAM-013", not wrong, why, answer)
