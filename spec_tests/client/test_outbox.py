"""The outbox has one open entry per account, moves by the table, and is on disk before use."""

import json
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.client.answers import Identity
from meshnode.client.errors import UNKNOWN, Declined, Misused, OutcomeUnknown
from meshnode.client.outbox import MOVES, OPEN, OUTBOX_FILE, Entry, Outbox
from meshnode.client.session import CLIENT_FOLDER
from spec_tests.client.gateway import run_client

HERE = Identity("test-chain-1", "a" * 64)


def entry(number: int = 1, **changes: Any) -> Entry:
    first = Entry(
        application_id=f"{number:064x}",
        hash=f"{number:064X}",
        raw=b"{}",
        chain_id=HERE.chain_id,
        genesis_sha256=HERE.genesis_sha256,
        account="02" + "b" * 64,
        nonce=0,
        kind="transfer",
        summary="transfer",
        signed_at=1,
        signed_height=0,
    )
    return replace(first, **changes)


def test_an_entry_is_there_after_the_process_is_gone(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        stored = outbox.store(entry())
    with Outbox(tmp_path) as outbox:
        assert outbox.get(stored.application_id) == stored
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("nonce", [0, 1])
def test_nothing_is_signed_while_an_outcome_is_unknown(tmp_path: Path, nonce: int) -> None:
    with Outbox(tmp_path) as one, Outbox(tmp_path) as other:
        one.store(entry(1))
        # This also holds for another process, and for every nonce.
        with pytest.raises(OutcomeUnknown):
            other.store(entry(2, nonce=nonce))
        other.store(entry(3, account="03" + "c" * 64))
        other.store(entry(4, genesis_sha256="d" * 64))


def test_the_database_itself_refuses_a_second_open_entry(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.store(entry(1))
        outbox.store(entry(2, account="03" + "c" * 64))
    with sqlite3.connect(tmp_path / OUTBOX_FILE) as database, pytest.raises(sqlite3.IntegrityError):
        database.execute("UPDATE entries SET account = ''")
    database.close()


def test_a_nonce_that_was_committed_is_not_signed_again(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.move(outbox.store(entry(1, nonce=5)), "committed", height=3)
        for nonce in (4, 5):
            with pytest.raises(Declined):
                outbox.store(entry(2, nonce=nonce))
        assert outbox.store(entry(2, nonce=6)).state == "signed"


def test_the_same_body_again_is_the_same_entry_with_its_first_bytes(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.store(entry(1, raw=b"first"))
        with pytest.raises(OutcomeUnknown):
            outbox.store(entry(1, raw=b"second"))
        outbox.move(entry(1), "refused", note="no money")
        again = outbox.store(entry(1, raw=b"third"))
        assert (again.raw, again.state) == (b"first", "signed")


@given(st.lists(st.sampled_from(sorted(MOVES)), max_size=8))
def test_moves_follow_the_table(
    tmp_path_factory: pytest.TempPathFactory, states: list[str]
) -> None:
    with Outbox(tmp_path_factory.mktemp("outbox")) as outbox:
        now = outbox.store(entry())
        for state in states:
            after = outbox.move(now, state)
            allowed = state == now.state or state in MOVES[now.state]
            assert after.state == (state if allowed else now.state)
            now = after


def test_every_state_can_be_reached_and_open_ones_can_be_left() -> None:
    reached, front = {"signed"}, {"signed"}
    while front:
        front = {state for one in front for state in MOVES[one]} - reached
        reached |= front
    assert reached == set(MOVES)
    assert all("forgotten" in MOVES[state] for state in OPEN)


def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / OUTBOX_FILE
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(Misused):
        Outbox(tmp_path)
    assert path.read_bytes() == b"not a database" * 100


def test_damage_that_shows_later_leaves_the_outcome_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / CLIENT_FOLDER
    with Outbox(folder) as outbox:
        outbox.store(entry())
    path = folder / OUTBOX_FILE
    data = path.read_bytes()
    # Keep the first page, which describes the file, and damage the pages with the entries.
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    assert run_client(tmp_path, "outbox", "--json") == UNKNOWN
    assert json.loads(capsys.readouterr().out)["status"] == UNKNOWN


def test_an_entry_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.move(outbox.store(entry(0x1A)), "refused")
        outbox.store(entry(0x1B))
        assert outbox.find(f"{0x1A:064x}").nonce == 0
        for prefix in ("0", "f", "%"):
            with pytest.raises(Misused):
                outbox.find(prefix)
