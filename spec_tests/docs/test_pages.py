"""How pages are read, and that none evades being run."""

from __future__ import annotations

import pytest

from spec_tests.docs.pages import (
    RUN,
    commands,
    fits,
    is_node,
    is_run,
    name_of,
    pages,
    port_of,
    steps,
)

MAX_NOT_RUN = 20
"""Fences in all pages that cannot be run on one machine without a network."""


def test_every_page_is_understood_and_most_fences_are_run() -> None:
    every = [(name_of(page), step) for page in pages() for step in steps(page.read_text("utf-8"))]
    left_out = [(name, step.line, step.value) for name, step in every if step.word == "not run"]
    assert all(len(reason.split()) > 3 for _, _, reason in left_out), "say why"
    assert len(left_out) <= MAX_NOT_RUN
    assert sum(is_run(step) for _, step in every) > 4 * len(left_out)
    # What only looks like a command is none: output, and files to save.
    assert all(step.language in RUN or step.word != "not run" for _, step in every), (
        "a mark at a fence that is never run"
    )


def test_the_fences_of_a_page_are_found_with_their_comments() -> None:
    text = (
        "# A\n\n```sh\none\n```\n\n<!-- file: a.py -->\n```python\nx\n```\n\n## B\n\n"
        "<!-- not run: no network here -->\n```sh\ntwo\n```\n\n<!-- stop: 8000 -->\n"
    )
    found = steps(text)
    assert [(s.language, s.word, s.value, s.section) for s in found] == [
        ("sh", "", "", 1),
        ("python", "file", "a.py", 1),
        ("sh", "not run", "no network here", 2),
        ("", "stop", "8000", 0),
    ]
    assert [is_run(step) for step in found] == [True, False, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "```\nls\n```\n",
        "```bash\nls\n```\n",
        "- a\n\n  ```sh\n  ls\n  ```\n",
        "```sh\nls\n",
        "a\n\n<!-- not run: too far from a fence -->\n\na\n",
    ],
)
def test_a_fence_that_could_evade_the_tests_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fence"):
        steps(text)


def test_a_script_is_divided_at_its_nodes() -> None:
    (step,) = steps(
        "```sh\na \\\n  b\npip install x && python -m meshnode --port 8001\n"
        "A=1 meshnode --layers 0-2  # a\nmeshnode status\n```\n"
    )
    assert [command for command, _ in commands(step)] == [
        "a \\\n  b\npip install x\n",
        "python -m meshnode --port 8001",
        "A=1 meshnode --layers 0-2  # a",
        "meshnode status\n",
    ]


def test_a_console_has_commands_with_their_output() -> None:
    (step,) = steps("```console\n$ a \\\n    b\nshown\n$ c\n```\n")
    assert commands(step) == [("a \\\n    b", "shown"), ("c", "")]


def test_what_runs_on_is_known() -> None:
    assert is_node("python -m meshnode")
    assert is_node("MESHNODE_TOKEN=x python -m meshnode --host 0.0.0.0 --port 8002")
    assert not is_node("meshnode status")
    assert not is_node("python -m meshnode --version")
    assert port_of("meshnode --port 8002") == 8002
    assert port_of("meshnode") == 8000


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("ready in 0.9 s", "ready in 12.25 s"),
        ("node  da96ce241c24d2fe", "node 0123456789abcdef"),
        ('{"id":"...","n":3,...}', '{"id":"inf_1","n":4,"b":{"c":"d"}}'),
        ("...\nlast line", "first\nsecond\nlast line\nand more"),
        ("at 2026-11-23 03:43 UTC", "at 2027-01-01 00:00 UTC"),
    ],
)
def test_output_fits_but_for_what_varies(shown: str, printed: str) -> None:
    assert fits(shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("ready", "not ready"),
        ("NA-INF-013", "NA-INF-007"),
        ("one\ntwo", "one\nthree\ntwo"),
        ("one", ""),
    ],
)
def test_other_output_does_not_fit(shown: str, printed: str) -> None:
    assert fits(shown, printed) != ""
