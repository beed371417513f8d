"""What ``meshnode watch`` makes of events, also of those of a node that lies (decision 0167)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from meshnode.client.errors import Declined, GatewayMisbehaves
from meshnode.client.watching import stream
from meshnode.client.watching.screen import render
from meshnode.client.watching.state import Watched
from meshnode.client.watching.stream import Watch, watch_in_lines, watch_on_screen

SNAPSHOT: dict[str, Any] = {
    "node": {"node_id": "ab" * 20, "status": "running", "role": "driver", "model": "m"},
    "health": {"healthy": True, "checks": {}},
    "figures": {"active": 1, "tokens_generated": 100},
    "training": {"enabled": True, "version": 3, "losses": [2.5]},
    "blocks": [{"height": 7}],
    "peers": [{"id": "cd" * 20, "role": "validator", "layers": [4, 5], "address": "192.0.2.1:80"}],
    "generations": [{"id": "gen-1234567890", "completion_tokens": 2, "max_tokens": 9, "path": []}],
}
KINDS = (
    "snapshot",
    "node",
    "health",
    "figures",
    "training",
    "block",
    "charge",
    "peer.joined",
    "peer.changed",
    "peer.left",
    "generation.began",
    "generation.routed",
    "generation.progress",
    "generation.failover",
    "generation.ended",
    "unknown",
)
NAMES = st.sampled_from([*SNAPSHOT, "id", "layers", "path", "losses", "completion_tokens"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


def shown(watched: Watched, width: int = 100, height: int = 30) -> str:
    return "\n".join(render(watched, "", width, height))


def test_a_table_of_what_is_known() -> None:
    watched = Watched()
    watched.apply("snapshot", SNAPSHOT, 0.0)
    watched.apply("figures", {"tokens_generated": 150}, 2.0)
    text = shown(watched)
    for words in ("abababababab", "[healthy]", "25.0 tokens/s", "cdcdcdcd", "4-5", "block 7"):
        assert words in text
    assert "held-out loss 2.5000" in text


def test_without_a_token_it_says_how_to_see_more() -> None:
    watched = Watched()
    watched.apply("snapshot", {"node": SNAPSHOT["node"]}, 0.0)
    assert "MESHNODE_TOKEN" in shown(watched)


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("peer.joined", {"id": "ef" * 20, "address": "h:1"}, "peer efefefef joined from h:1"),
        ("peer.changed", {"id": "cd" * 20}, ""),
        ("peer.left", {"id": "cd" * 20}, "peer cdcdcdcd left"),
        ("generation.failover", {"id": "gen-12", "reason": "gone"}, "12 leaves its path: gone"),
        ("generation.routed", {"id": "gen-12", "path": [{"node_id": "aa"}]}, "over aa"),
        ("generation.progress", {"completion_tokens": {"gen-1234567890": 5}}, ""),
        ("training", {"version": 4, "losses": [2.25]}, "round 4 ended, held-out loss 2.2500"),
        ("health", {"healthy": False, "checks": {"gpu": "failing"}}, "not healthy: gpu failing"),
        ("block", {"height": 8, "count": 2}, "block 8, 2 transactions"),
    ],
)
def test_news_in_words(kind: str, data: dict[str, Any], words: str) -> None:
    watched = Watched()
    watched.apply("snapshot", SNAPSHOT, 0.0)
    assert watched.apply(kind, data, 1.0).endswith(words)


@given(
    events=st.lists(
        st.tuples(st.sampled_from(KINDS), st.dictionaries(NAMES, ANYTHING)), max_size=6
    ),
    width=st.integers(0, 200),
    height=st.integers(0, 60),
)
def test_no_event_breaks_the_table_or_leaves_the_screen(
    events: list[tuple[str, dict[str, Any]]], width: int, height: int
) -> None:
    watched = Watched()
    for number, (kind, data) in enumerate(events):
        watched.apply(kind, data, float(number))
    lines = render(watched, "", width, height)
    assert len(lines) <= height
    assert all(len(line) <= max(40, width) and line.isprintable() for line in lines)


def test_text_of_a_node_cannot_control_the_terminal() -> None:
    watched = Watched()
    words = watched.apply("generation.failover", {"id": "x", "reason": "\x1b[2J\nfake"}, 0.0)
    assert words.isprintable()
    assert shown(watched).replace("\n", "").isprintable()


class FakeNode:
    """Stands for the connection: each attempt takes the next script."""

    def __init__(self, *scripts: list[Any]) -> None:
        self.scripts = list(scripts)
        self.asked: list[str] = []

    async def once(self, watch: Watch) -> bool:
        self.asked.append(watch._last)
        script = self.scripts.pop(0) if self.scripts else [trio.sleep_forever]
        for step in script:
            if isinstance(step, Exception):
                raise step
            if callable(step):
                await step()
            else:
                watch._take(json.dumps(step))
                watch.trouble = ""
        return True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    node = FakeNode()
    monkeypatch.setattr(Watch, "_once", lambda watch: node.once(watch))
    return node


async def test_lines_and_coming_back_behind_the_last_event(
    fake: FakeNode, autojump_clock: trio.testing.MockClock
) -> None:
    fake.scripts = [
        [{"id": "r-1", "event": "snapshot", "data": SNAPSHOT}, {"event": "heartbeat"}],
        [OSError("refused")],
        [OSError("refused")],
        [{"id": "r-2", "event": "block", "data": {"height": 9, "count": 0}}],
    ]
    out = io.StringIO()
    with trio.move_on_after(60):
        await watch_in_lines(Watch("ws://node/ws"), out)
    assert fake.asked[:4] == ["", "r-1", "r-1", "r-1"]
    lines = [line[9:] for line in out.getvalue().splitlines()]
    assert lines == [
        "connected to abababab: 1 peers shown",
        "refused; trying again",
        "block 9, 0 transactions",
    ]


async def test_the_screen_is_restored(
    fake: FakeNode, autojump_clock: trio.testing.MockClock
) -> None:
    fake.scripts = [[{"id": "r-1", "event": "snapshot", "data": SNAPSHOT}, trio.sleep_forever]]
    out = io.StringIO()
    with trio.move_on_after(1):
        await watch_on_screen(Watch("ws://node/ws"), out)
    assert out.getvalue().startswith(stream.ENTER)
    assert out.getvalue().endswith(stream.LEAVE)
    assert "abababab" in out.getvalue()


@pytest.mark.parametrize("message", ["", "[]", "{}", "1", "nonsense", '{"event":1}', b"\xff"])
def test_what_is_no_event(message: str | bytes) -> None:
    watch = Watch("ws://node/ws")
    if message == '{"event":1}':
        watch._take(message)
        assert not watch.watched.news
    else:
        with pytest.raises(GatewayMisbehaves):
            watch._take(message)


@pytest.mark.parametrize(
    ("status", "failure"),
    [(401, Declined), (403, Declined), (404, GatewayMisbehaves), (426, GatewayMisbehaves)],
)
def test_refusals_that_waiting_does_not_mend(status: int, failure: type[Exception]) -> None:
    from trio_websocket import ConnectionRejected

    with pytest.raises(failure):
        Watch("ws://node/ws")._end_for_good(ConnectionRejected(status, (), b""))
    Watch("ws://node/ws")._end_for_good(ConnectionRejected(503, (), b""))
