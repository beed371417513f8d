"""The log on standard error: a record is a line, whatever it says."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.logs import set_up_logging

FORGED = "2026-01-01T00:00:00.000Z warning  meshnode: forged"
BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.handlers, root.level
    yield root
    root.handlers, root.level = before


def lines_of(log_format: str, root: logging.Logger, message: str, **options: object) -> list[str]:
    set_up_logging(log_format)
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    stream = handler.stream = io.StringIO()
    logging.getLogger("meshnode.test").warning("said: %s", message, **options)  # type: ignore[arg-type]
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("line_break", BREAKS)
def test_what_a_peer_says_begins_no_line(root: logging.Logger, line_break: str) -> None:
    (line,) = lines_of("text", root, f"no{line_break}{FORGED}")
    assert " warning  meshnode.test: said: no\\" in line
    assert line.endswith(FORGED)


def test_what_a_peer_says_commands_no_terminal(root: logging.Logger) -> None:
    (line,) = lines_of("text", root, "\x1b[2K\x08\x9b1A\u202e")
    assert line.endswith("said: \\x1b[2K\\x08\\x9b1A\\u202e")
    assert line.isprintable()


def test_other_text_is_left_as_it_is(root: logging.Logger) -> None:
    (line,) = lines_of("text", root, "Grüße aus 東京, 5 %\\n")
    assert line.endswith("said: Grüße aus 東京, 5 %\\n")


@given(st.text(), st.text())
def test_a_record_is_one_line_of_text(message: str, field: str) -> None:
    root = logging.getLogger()
    before = root.handlers, root.level
    try:
        lines = lines_of("text", root, message, extra={"fields": {"peer": field}})
    finally:
        root.handlers, root.level = before
    assert len(lines) == 1


def test_a_traceback_can_be_read_and_begins_no_line_of_the_log(root: logging.Logger) -> None:
    try:
        raise ValueError(f"bad\n{FORGED}\r{FORGED}")
    except ValueError:
        first, *rest = lines_of("text", root, "no", exc_info=sys.exc_info())
    assert first.endswith("said: no")
    assert rest[0].strip() == "Traceback (most recent call last):"
    assert any("test_logs.py" in line for line in rest)
    assert any("ValueError: bad" in line for line in rest)
    # What is part of the record above is indented.
    assert all(line.startswith("  ") for line in rest)


def test_machines_get_the_text_itself(root: logging.Logger) -> None:
    (line,) = lines_of("json", root, f"no\n{FORGED}")
    assert json.loads(line)["message"] == f"said: no\n{FORGED}"
