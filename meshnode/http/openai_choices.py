"""One choice of an answer in OpenAI's form: what its events add to it (decision 0160).

Invariant: the deltas of a stream, put together, are the choice that an answer without a stream has.
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol, cast

from meshnode.domain.generation import Finished, TokenEvent, TokenLogprobs, TokenProbability
from meshnode.domain.tool_calls import CallDelta, ContentDelta, Delta, ToolCallParser
from meshnode.http.openai_bodies import (
    ChatChoiceBody,
    FinishReason,
    OpenaiToolCall,
    TextChoiceBody,
)

CHAT, CHAT_CHUNK, TEXT = "chat.completion", "chat.completion.chunk", "text_completion"


class Choice(Protocol):
    """One choice. Its methods for streams return the entries of ``choices`` of chunks."""

    def begin(self) -> list[dict[str, Any]]:
        """What is sent before the first token."""

    def take(self, event: TokenEvent | Finished) -> list[dict[str, Any]]:
        """What an event adds."""

    def body(self) -> Any:
        """The whole choice, at its end."""


class ChatChoice:
    """A choice of a chat."""

    def __init__(self, index: int, parser: ToolCallParser, *, strip: bool, forced: bool) -> None:
        """``strip`` removes white space from the beginning, which follows a plain prompt.

        ``forced`` says that the request named the tool to call.
        """
        self._index = index
        self._parser = parser
        self._strip = strip
        self._forced = forced
        self._content = ""
        self._calls: list[OpenaiToolCall] = []
        self._logprobs: list[dict[str, Any]] = []
        self._unsent: list[dict[str, Any]] = []
        self._reason: FinishReason = "stop"

    def begin(self) -> list[dict[str, Any]]:
        """The role."""
        return [self._entry({"role": "assistant", "content": ""})]

    def take(self, event: TokenEvent | Finished) -> list[dict[str, Any]]:
        """Content, calls, or the reason for the end."""
        if isinstance(event, TokenEvent):
            if event.logprobs is not None:
                self._logprobs.append(_described(event.logprobs))
                self._unsent.append(self._logprobs[-1])
            return self._show(self._parser.push(self._stripped(event.text)))
        entries = self._show(self._parser.finish())
        stopped = str(event.finish_reason) == "stop"
        called = stopped and self._parser.calls > 0 and not self._forced
        self._reason = "tool_calls" if called else cast("FinishReason", str(event.finish_reason))
        return [*entries, self._entry({}, self._reason)]

    def body(self) -> ChatChoiceBody:
        """The message."""
        content = None if self._calls and not self._content else self._content
        choice: ChatChoiceBody = {
            "index": self._index,
            "message": {"role": "assistant", "content": content, "refusal": None},
            "logprobs": {"content": self._logprobs} if self._logprobs else None,
            "finish_reason": self._reason,
        }
        if self._calls:
            choice["message"]["tool_calls"] = self._calls
        return choice

    def _stripped(self, text: str) -> str:
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        return text

    def _show(self, deltas: list[Delta]) -> list[dict[str, Any]]:
        return [self._entry(self._shown(delta)) for delta in deltas]

    def _shown(self, delta: Delta) -> dict[str, Any]:
        if isinstance(delta, ContentDelta):
            self._content += delta.text
            return {"content": delta.text}
        return {"tool_calls": [self._shown_call(delta)]}

    def _shown_call(self, delta: CallDelta) -> dict[str, Any]:
        if not delta.name:
            self._calls[delta.index]["function"]["arguments"] += delta.arguments
            return {"index": delta.index, "function": {"arguments": delta.arguments}}
        call: OpenaiToolCall = {
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": delta.name, "arguments": delta.arguments},
        }
        self._calls.append(call)
        return {"index": delta.index, **call, "function": {**call["function"]}}

    def _entry(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        unsent, self._unsent = self._unsent, []
        logprobs = {"content": unsent} if unsent else None
        return {
            "index": self._index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reason,
        }


class TextChoice:
    """A choice of a completion."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._text = ""
        self._reason: FinishReason = "stop"
        self._logprobs: list[tuple[TokenLogprobs, int]] = []
        self._sent = 0

    def begin(self) -> list[dict[str, Any]]:
        """Nothing."""
        return []

    def take(self, event: TokenEvent | Finished) -> list[dict[str, Any]]:
        """Text, or the reason for the end."""
        if isinstance(event, TokenEvent):
            if event.logprobs is not None:
                self._logprobs.append((event.logprobs, len(self._text)))
            self._text += event.text
            return [self._entry(event.text, None)] if event.text else []
        self._reason = cast("FinishReason", str(event.finish_reason))
        return [self._entry("", self._reason)]

    def body(self) -> TextChoiceBody:
        """The text."""
        self._sent = 0
        return cast("TextChoiceBody", self._entry(self._text, self._reason))

    def _entry(self, text: str, reason: str | None) -> dict[str, Any]:
        unsent, self._sent = self._logprobs[self._sent :], len(self._logprobs)
        logprobs = None
        if unsent:
            logprobs = {
                "tokens": [_text(one.chosen) for one, _ in unsent],
                "token_logprobs": [one.chosen.logprob for one, _ in unsent],
                "top_logprobs": [
                    {_text(top): top.logprob for top in one.top} or None for one, _ in unsent
                ],
                "text_offset": [offset for _, offset in unsent],
            }
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _described(logprobs: TokenLogprobs) -> dict[str, Any]:
    top = [_probability(one) for one in logprobs.top]
    return {**_probability(logprobs.chosen), "top_logprobs": top}


def _probability(one: TokenProbability) -> dict[str, Any]:
    return {"token": _text(one), "logprob": one.logprob, "bytes": list(one.piece)}


def _text(one: TokenProbability) -> str:
    return one.piece.decode("utf-8", "replace")
