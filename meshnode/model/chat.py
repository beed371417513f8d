"""A model's chat template: its source, and what it makes of a conversation (decision 0160).

Templates are programs in Jinja's language that come with a model, perhaps from a stranger. They run
in Jinja's sandbox, and that in a process of its own (``model.chat_process``), which bounds their
time and memory. This module imports neither torch nor trio, so that the process starts quickly.

Terms: a *plain* chat is one with a model that has no template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from meshnode.model.files import ChatFormat

MAX_TEMPLATE_CHARS = 256 * 1024
"""The longest known ones have some 20,000."""
MAX_RENDERED_CHARS = 1024 * 1024
"""The longest prompt that a request may have."""
TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")

Message = Mapping[str, Any]


class TemplateRefused(ValueError):
    """The template, or what it makes of a conversation, is out of bounds or malformed."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template's source, and the special tokens that it may name."""

    source: str = field(repr=False)
    tool_source: str = field(default="", repr=False)
    """The template for conversations with tools, of models that have two; else empty."""
    tokens: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, form: ChatFormat) -> ChatTemplate | None:
        """The template of a model; None if it has none, or one that is far too long."""
        source, tools = form.template or "", form.tool_template or ""
        if not source.strip() or len(source) + len(tools) > MAX_TEMPLATE_CHARS:
            return None
        return cls(source, tools, form.special_tokens)

    @property
    def end_token(self) -> str:
        """The content of the token that ends a turn; empty if it is not known."""
        return self.tokens.get("eos_token", "")

    @property
    def knows_tools(self) -> bool:
        """Whether the template reads the tools of a request."""
        if self.tool_source:
            return True
        try:
            return "tools" in find_undeclared_variables(_environment().parse(self.source))
        except TemplateError:
            return False

    def encode(self) -> bytes:
        """The template as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def decode_template(line: bytes) -> ChatTemplate:
    """The template of :meth:`ChatTemplate.encode`."""
    return ChatTemplate(**json.loads(line))


class Renderer:
    """Renders one template. Neither its time nor its memory is bounded here."""

    def __init__(self, template: ChatTemplate) -> None:
        """Compile. Raises TemplateRefused."""
        self._tokens = {name: template.tokens.get(name, "") for name in TOKEN_NAMES}
        environment = _environment()
        try:
            self._plain = environment.from_string(template.source)
            self._tools = environment.from_string(template.tool_source or template.source)
        except (TemplateError, RecursionError, SyntaxError, ValueError) as error:
            raise TemplateRefused(f"the model's chat template is malformed: {error}") from None

    def render(self, messages: Sequence[Message], tools: Sequence[Message] | None = None) -> str:
        """The prompt for the next turn of the assistant. Raises TemplateRefused."""
        template = self._tools if tools else self._plain
        pieces: list[str] = []
        length = 0
        try:
            for piece in template.generate(
                messages=messages, tools=tools, add_generation_prompt=True, **self._tokens
            ):
                pieces.append(piece)
                length += len(piece)
                if length > MAX_RENDERED_CHARS:
                    raise TemplateRefused("the chat template makes too long a prompt of them")
        except (TemplateRefused, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a template is a stranger's program
            reason = str(error) if isinstance(error, TemplateError) else type(error).__name__
            raise TemplateRefused(f"the chat template does not take them: {reason}") from None
        return "".join(pieces)


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's words for training, and means nothing here."""

    tags = {"generation"}  # noqa: RUF012 - as the base class has it

    def parse(self, parser: Any) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _environment() -> ImmutableSandboxedEnvironment:
    """What templates of Hugging Face models expect of their surroundings."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _Generation],
        # A template is text for a model, and no page.
        autoescape=False,
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> None:
    raise TemplateError(str(message)[:200])


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(str(form)[:100])


def plain_prompt(messages: Sequence[Message]) -> str:
    """The prompt of a plain chat: the words that were said, for a model that continues texts."""
    return "\n".join(str(message["content"]) for message in messages if message.get("content"))
