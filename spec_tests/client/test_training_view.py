"""The table and the curve of ``meshnode train status`` (decision 0228)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from meshnode.client.training_view import BLANK, HEIGHT, curve, training_table

STATE: dict[str, Any] = {
    "enabled": True,
    "problem": "",
    "steps_done": 3,
    "steps_in_round": 500,
    "dropped_rounds": 1,
    "losses": [2.5, 2.0],
    "served": {
        "setting": "better",
        "version": 7,
        "model_hash": "ab" * 32,
        "held_out_loss": 2.0,
        "waiting": "version 8 waits for an idle moment",
    },
    "nodes": [{"node_id": "c" * 40, "state": "inner", "round": 8, "version": 7, "loss": 1.5}],
    "bytes_sent": 1 << 20,
    "bytes_received": 0,
}


def test_the_table_says_what_is_trained_and_served() -> None:
    text = training_table(STATE)
    assert "training   on, step 3 of 500" in text
    assert "held out   2.5000 at first, 2.0000 now" in text
    assert f"served     version 7 of model {'ab' * 8}, held-out loss 2.0000 (better)" in text
    assert "waiting    version 8 waits for an idle moment" in text
    assert "1.0 MiB sent, 0.0 MiB received" in text
    assert "cccccccc  inner" in text


@given(st.recursive(st.none() | st.text() | st.floats(), st.lists, max_leaves=3))
def test_any_answer_gives_printable_text(value: object) -> None:
    for name in STATE:
        text = training_table({**STATE, name: value})
        assert all(line.isprintable() for line in text.splitlines())


def test_a_falling_loss_falls() -> None:
    lines = curve([2.0, 1.5, 1.0], 30)
    assert len(lines) == HEIGHT
    assert lines[0].startswith("  2.0000")
    assert lines[-1].startswith("  1.0000")
    heights = [next(at for at in range(HEIGHT) if dot(lines[at], column)) for column in range(20)]
    assert heights == sorted(heights)
    assert curve([2.0], 30) == curve([], 30) == curve([2.0, 1.0], 5) == []


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(0, 200))
def test_a_curve_fits_its_width(losses: list[float], width: int) -> None:
    assert all(len(line) <= width for line in curve(losses, width))


def dot(line: str, column: int) -> bool:
    return len(line) > 10 + column and line[10 + column] not in (" ", chr(BLANK))
