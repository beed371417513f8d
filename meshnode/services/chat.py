"""Conversations as prompts: the model's own chat template, in a process of its own.

The process starts with the first conversation, and again after it was killed. It gets none of this
node's settings and secrets. Conversations are rendered one after another, which takes about a
millisecond each.

Invariants: a rendering has a deadline; a template that goes beyond its bounds costs its own request
and a restart of the process, and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import InvalidRequest, Unsupported
from meshnode.model.chat import ChatTemplate, Message, plain_prompt
from meshnode.model.chat_process import RENDER_S

if TYPE_CHECKING:
    from meshnode.model.loading import ModelFacts

log = logging.getLogger(__name__)

MESSAGES = "messages"
ANSWER_S = RENDER_S + 25.0
"""For the process to start on a busy machine, and to answer; it kills itself after ``RENDER_S``."""
AT_ONCE_S = 1.0
"""A process that is gone after less than this may have been gone before it was asked."""
MAX_ANSWER_BYTES = 8 << 20
"""A prompt of the longest, with each character escaped."""
RECEIVE_BYTES = 64 * 1024
INHERITED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""The variables that the process gets."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation as a prompt."""

    text: str = field(repr=False)
    special_tokens: bool
    """Whether the tokenizer puts its tokens around the prompt; a template has written its own."""
    end_tokens: frozenset[int]
    """The tokens that end a turn."""


async def serve_chat(
    chat: ChatPrompts, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve ``chat`` until cancelled; then its process ends."""
    try:
        task_status.started()
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await chat.stop()


class ChatPrompts:
    """Makes prompts of conversations with one model."""

    def __init__(self, template: ChatTemplate | None, end_tokens: frozenset[int]) -> None:
        """Without a template, a prompt is the words of the conversation."""
        self._template = template
        self._end_tokens = end_tokens
        self._process: trio.Process | None = None
        self._lock = trio.Lock()
        self.knows_tools = template is not None and template.knows_tools

    @classmethod
    def of(cls, model: ModelFacts) -> ChatPrompts:
        """The prompts of a loaded model."""
        template = ChatTemplate.of(model.chat_format)
        end = model.tokenizer.token_id(template.end_token) if template else None
        return cls(template, frozenset() if end is None else frozenset({end}))

    @property
    def plain(self) -> bool:
        """Whether there is no template."""
        return self._template is None

    async def prompt(
        self, messages: Sequence[Message], tools: Sequence[Message] | None = None
    ) -> ChatPrompt:
        """The prompt for the next turn. Raises InvalidRequest if the template does not take it."""
        if self._template is None:
            if tools:
                raise Unsupported("tools", "is not known to this model: it has no chat template")
            return ChatPrompt(plain_prompt(messages), True, frozenset())
        if tools and not self.knows_tools:
            raise Unsupported("tools", "is not known to the chat template of this model")
        text = await self._render(self._template, messages, tools)
        if not text:
            raise InvalidRequest(MESSAGES, "make an empty prompt")
        return ChatPrompt(text, False, self._end_tokens)

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await trio.aclose_forcefully(pipe)

    async def _render(
        self, template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Message] | None
    ) -> str:
        conversation = json.dumps({"messages": messages, "tools": tools or None})
        async with self._lock:
            # An exchange with the process that breaks off in the middle would cost the next one.
            with trio.CancelScope(shield=True):
                line, begun, warm = (
                    conversation.encode() + b"\n",
                    trio.current_time(),
                    self._process,
                )
                answer = await self._ask(template, line)
                if answer is None and warm and trio.current_time() - begun < AT_ONCE_S:
                    # It had died before, of something else than this conversation.
                    answer = await self._ask(template, line)
        if answer is None:
            log.warning("the chat template of this model went beyond its bounds")
            reason = "take the model's chat template too long, or too much memory"
            raise InvalidRequest(MESSAGES, reason)
        if "refused" in answer:
            raise InvalidRequest(MESSAGES, str(answer["refused"]))
        return str(answer["text"])

    async def _ask(self, template: ChatTemplate, line: bytes) -> dict[str, object] | None:
        """The process's answer; None if it gave none, and it has been ended."""
        with trio.move_on_after(ANSWER_S):
            try:
                if self._process is not None and self._process.poll() is not None:
                    await self.stop()
                process = self._process or await self._start(template)
                assert process.stdin is not None  # noqa: S101 - it was started with pipes
                assert process.stdout is not None  # noqa: S101
                await process.stdin.send_all(line)
                answer = await _line(process.stdout)
            except (trio.BrokenResourceError, OSError):
                answer = b""
            if answer.endswith(b"\n"):
                read: dict[str, object] = json.loads(answer)
                return read
        await self.stop()
        return None

    async def _start(self, template: ChatTemplate) -> trio.Process:
        start = partial(
            trio.lowlevel.open_process,
            [sys.executable, "-m", "meshnode.model.chat_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in INHERITED if name in os.environ},
        )
        self._process = process = await start()
        assert process.stdin is not None  # noqa: S101
        await process.stdin.send_all(template.encode())
        return process


async def _line(stream: trio.abc.ReceiveStream) -> bytes:
    """Read until a line ends; what there is if the stream ends first or the line is too long."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) <= MAX_ANSWER_BYTES:
        received = await stream.receive_some(RECEIVE_BYTES)
        if not received:
            break
        line += received
    return bytes(line)
