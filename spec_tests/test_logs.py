"""The log on standard error: no message can forge a record, whatever line breaks it has."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshnode.logs import set_up_logging

NOTHING: Mapping[str, str] = MappingProxyType({})
FORGED = "2026-01-01T00:00:00.000Z warning  meshnode: forged"
BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.handlers, root.level
    yield root
    root.handlers, root.level = before


def lines_of(
    log_format: str,
    root: logging.Logger,
    message: str,
    *,
    name: str = "meshnode.test",
    environ: Mapping[str, str] = NOTHING,
    **options: object,
) -> list[str]:
    set_up_logging(log_format, environ)
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    stream = handler.stream = io.StringIO()
    logging.getLogger(name).warning("said: %s", message, **options)  # type: ignore[arg-type]
    return stream.getvalue().splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard error look like a terminal of 80 columns."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("line_break", BREAKS)
def test_text_of_a_peer_cannot_begin_a_log_line(root: logging.Logger, line_break: str) -> None:
    (line,) = lines_of("text", root, f"no{line_break}{FORGED}")
    assert " warning  test: said: no\\" in line
    assert line.endswith(FORGED)


def test_text_of_a_peer_cannot_control_a_terminal(root: logging.Logger) -> None:
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
    # Lines that belong to the record above are indented.
    assert all(line.startswith("  ") for line in rest)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("meshnode.services.ledger.solo", "ledger"),
        ("meshnode.services.peers", "peers"),
        ("meshnode.node", "node"),
        ("meshnode.http.server", "http"),
        ("hypercorn.error", "hypercorn"),
        ("meshnode", "meshnode"),
    ],
)
def test_people_read_a_short_name_and_machines_the_whole(
    root: logging.Logger, name: str, short: str
) -> None:
    (line,) = lines_of("text", root, "no", name=name)
    assert line.endswith(f"Z warning  {short}: said: no")
    (line,) = lines_of("json", root, "no", name=name)
    assert json.loads(line)["logger"] == name


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_the_time_of_day_and_a_coloured_level(root: logging.Logger) -> None:
    (line,) = lines_of("text", root, "no")
    assert re.fullmatch(
        r"\x1b\[2m\d\d:\d\d:\d\d\x1b\[0m \x1b\[33mwarning\x1b\[0m \x1b\[2mtest:\x1b\[0m said: no",
        line,
    )
    assert json.loads(lines_of("json", root, "no")[0])["message"] == "said: no"


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_is_left_out_where_it_is_not_wanted(
    root: logging.Logger, environ: dict[str, str]
) -> None:
    (line,) = lines_of("text", root, "no", environ=environ)
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning test: said: no", line)


@pytest.mark.usefixtures("terminal")
@given(st.text(), st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_of_others_cannot_forge_a_log_line_on_a_terminal(message: str, word: str) -> None:
    root = logging.getLogger()
    before = root.handlers, root.level
    try:
        text = f"{message} {'word ' * 30}{word}"
        first, *rest = lines_of("text", root, text, environ={"NO_COLOR": "1"})
    finally:
        root.handlers, root.level = before
    assert re.match(r"\d\d:\d\d:\d\d warning test: said:", first)
    assert rest
    for line in rest:
        assert line.startswith(" " * len("00:00:00 warning "))
        # Only a single word that does not fit may make a line longer.
        assert len(line) <= 80 or " " not in line.strip()


def test_machines_get_the_text_itself(root: logging.Logger) -> None:
    (line,) = lines_of("json", root, f"no\n{FORGED}")
    assert json.loads(line)["message"] == f"said: no\n{FORGED}"
