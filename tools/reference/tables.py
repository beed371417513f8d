"""Tables in Markdown, and text that is safe in one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are on one line each."""
    lines = [list(head), ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def code(text: object) -> str:
    """A literal; nothing for an empty one."""
    return f"`{text}`" if str(text) else ""


def prose(text: str) -> str:
    """A docstring as Markdown: literals in single quotes, one line."""
    text = re.sub(r":\w+:`[~.]*([^`]*)`", r"`\1`", text.strip())
    return re.sub(r"\s+", " ", text.replace("``", "`"))


def sentence(text: str) -> str:
    """A text that begins with a capital letter and ends with a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", ":")) else ".")
