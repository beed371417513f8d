"""The wallet's book and journal (decision 0084): records, and torn or damaged files."""

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from meshnode.datadir import write_private
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.domain.spending import (
    AccountBook,
    Charge,
    OrderEnd,
    Outcome,
    PendingTransaction,
    Record,
    TransactionOutcome,
    decode_record,
    encode_record,
)
from meshnode.services.signer import journal as wallet_journal
from meshnode.services.signer.journal import JOURNAL_FILE, Journal

ACCOUNTS = ["alice", "bob"]
CHOICES = st.lists(
    st.tuples(
        st.sampled_from(["charge", "fly", "settle", "land", "order", "forget"]),
        st.sampled_from(ACCOUNTS),
        st.integers(1, 5000),
        st.sampled_from(list(Outcome)),
    ),
    max_size=30,
)


def signed(
    account: str, number: int, spends: int, settles: int = 0, order: str = ""
) -> PendingTransaction:
    return PendingTransaction(
        account, number, "{}", f"hash {number}", f"id {number}", spends, settles, order
    )


def records(choices: list[tuple[str, str, int, Outcome]]) -> Iterator[Record]:
    """Yield records that can follow one another, made from arbitrary choices."""
    book, numbers = AccountBook(), itertools.count()
    for kind, account, amount, outcome in choices:
        record: Record | None = None
        pending = book.pending(account)
        if kind == "charge":
            record = Charge(account, amount, "gen")
        elif kind == "land" and pending is not None:
            record = TransactionOutcome(account, pending.hash, outcome)
        elif kind in ("fly", "settle") and pending is None:
            settles = min(amount, book.owed(account)) if kind == "settle" else 0
            record = signed(account, next(numbers), amount, settles, "order" if amount % 2 else "")
        elif kind == "order":
            record = OrderEnd("order", "refused")
        elif kind == "forget":
            record = OrderEnd("order", "")
        if record is not None:
            book.apply(record)
            yield record


def facts(book: AccountBook) -> object:
    money = [(book.owed(one), book.claimed(one), book.pending(one)) for one in ACCOUNTS]
    return money, book.orders(), sorted(book.debtors(1))


@given(CHOICES)
def test_a_snapshot_is_the_same_book(choices: list[tuple[str, str, int, Outcome]]) -> None:
    book, charged, settled = AccountBook(), dict.fromkeys(ACCOUNTS, 0), dict.fromkeys(ACCOUNTS, 0)
    for record in records(choices):
        before = book.pending(getattr(record, "account", ""))
        book.apply(record)
        if isinstance(record, Charge):
            charged[record.account] += record.atoms
        if isinstance(record, TransactionOutcome) and record.outcome == Outcome.COMMITTED:
            assert before is not None
            settled[record.account] += before.settles
        again = AccountBook()
        for kept in book.snapshot():
            again.apply(decode_record(encode_record(kept)))
        assert facts(again) == facts(book)
        for account in ACCOUNTS:
            assert book.owed(account) == charged[account] - settled[account] >= 0
            assert book.claimed(account) >= book.owed(account)


def test_an_old_look_at_the_ledger_is_known_as_such() -> None:
    book = AccountBook()
    book.apply(signed("alice", 4, 10))
    book.apply(TransactionOutcome("alice", "hash 4", Outcome.COMMITTED))
    assert book.outdated("alice", 4)
    assert not book.outdated("alice", 5)
    book.apply(signed("alice", 5, 10))
    book.apply(TransactionOutcome("alice", "hash 5", Outcome.REFUSED))
    assert not book.outdated("alice", 5)


@pytest.mark.parametrize(
    "record",
    [
        Charge("alice", 0),
        signed("alice", 0, 5, settles=1),
        TransactionOutcome("alice", "hash 0", Outcome.COMMITTED),
    ],
)
def test_records_that_contradict_the_book_are_refused(record: Record) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        AccountBook().apply(record)


async def write(folder: Path, *written: Record, chain_id: str = "chain") -> None:
    journal = Journal(folder, chain_id)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.serve)
        for record in written:
            await journal.append(record)
        nursery.cancel_scope.cancel()


async def test_a_torn_last_line_never_was(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_FILE
    await write(tmp_path, Charge("alice", 5))
    whole = path.read_bytes()
    await write(tmp_path, Charge("alice", 7))
    longer = path.read_bytes()
    for end in range(len(whole), len(longer)):
        path.write_bytes(longer[:end])
        assert Journal(tmp_path, "chain").accounts.owed("alice") == 5
        assert path.read_bytes() == whole
    path.write_bytes(longer)
    assert Journal(tmp_path, "chain").accounts.owed("alice") == 12


async def test_damage_anywhere_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_FILE
    await write(tmp_path, Charge("alice", 5), Charge("bob", 7))
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        if whole[place : place + 1] == b"\n":
            continue
        damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        path.write_bytes(damaged)
        with pytest.raises(StartupError, match="is damaged"):
            Journal(tmp_path, "chain")
        assert path.read_bytes() == damaged


@pytest.mark.parametrize("lost", [b"", bytes(70), b"0123"], ids=["empty", "zeros", "cut"])
async def test_a_journal_without_its_first_line_has_lost_charges(
    tmp_path: Path, lost: bytes
) -> None:
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(lost)
    with pytest.raises(StartupError, match="is damaged"):
        Journal(tmp_path, "chain")
    assert path.read_bytes() == lost


async def test_zeros_in_place_of_lines_are_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_FILE
    await write(tmp_path, Charge("alice", 5), Charge("bob", 7))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] + bytes(20))
    assert Journal(tmp_path, "chain").accounts.owed("bob") == 0
    end = whole[:-1].rindex(b"\n") + 1
    path.write_bytes(whole[:end] + bytes(len(whole) - end))
    with pytest.raises(StartupError, match="is damaged"):
        Journal(tmp_path, "chain")


async def test_a_kill_while_a_journal_is_set_aside_leaves_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(tmp_path, Charge("alice", 5))

    def killed(path: Path, data: bytes) -> None:
        if path.name == JOURNAL_FILE:
            raise KeyboardInterrupt
        write_private(path, data)

    monkeypatch.setattr(wallet_journal, "write_private", killed)
    with pytest.raises(KeyboardInterrupt):
        Journal(tmp_path, "other")
    assert (tmp_path / JOURNAL_FILE).exists()
    monkeypatch.undo()
    assert Journal(tmp_path, "other").accounts.owed("alice") == 0
    assert len(others(tmp_path)) == 1


def others(folder: Path) -> list[Path]:
    return list(folder.glob("wallet.journal.*"))


async def test_another_chains_journal_is_set_aside(tmp_path: Path) -> None:
    await write(tmp_path, Charge("alice", 5))
    whole = (tmp_path / JOURNAL_FILE).read_bytes()
    assert Journal(tmp_path, "other").accounts.owed("alice") == 0
    assert [path.read_bytes() for path in others(tmp_path)] == [whole]


async def test_records_posted_before_the_end_are_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "chain")
    ended: list[str] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.serve)
        nursery.cancel_scope.cancel()
        journal.post(Charge("alice", 5), lambda: ended.append("alice"))
    assert ended == ["alice"]
    assert Journal(tmp_path, "chain").accounts.owed("alice") == 5


async def test_a_rewrite_and_a_line_that_fail_leave_the_next_line_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, failures = os.fsync, list[OSError]()

    def fsync(handle: int) -> None:
        if failures:
            raise failures.pop()
        syncs(handle)

    def replaced_and_not_synced(path: Path, data: bytes) -> None:
        write_private(path, data)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(wallet_journal, "COMPACT_AT", 1000)
    journal = Journal(tmp_path, "chain")
    monkeypatch.setattr(wallet_journal, "write_private", replaced_and_not_synced)
    monkeypatch.setattr(os, "fsync", fsync)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.serve)
        for _ in range(30):
            await journal.append(Charge("alice", 1))
        failures.append(OSError(errno.EIO, "Input/output error"))
        with pytest.raises(Unavailable):
            await journal.append(Charge("bob", 1))
        await journal.append(Charge("bob", 5))
        nursery.cancel_scope.cancel()
    again = Journal(tmp_path, "chain").accounts
    assert (again.owed("alice"), again.owed("bob")) == (30, 5)


async def test_a_journal_that_cannot_be_opened_for_a_while_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    journal = Journal(tmp_path, "chain")
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.serve)
        with monkeypatch.context() as short:
            short.setattr(Path, "open", no_descriptor)
            with pytest.raises(Unavailable):
                await journal.append(Charge("alice", 5))
        await journal.append(Charge("bob", 7))
        nursery.cancel_scope.cancel()
    again = Journal(tmp_path, "chain").accounts
    assert (again.owed("alice"), again.owed("bob")) == (0, 7)


async def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot use .*: No such file"):
        Journal(tmp_path / "gone", "chain")
