"""The follower checks everything and trusts no source (decision 0074)."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.comet.jsonform import SyncInfo
from meshnode.domain.chain.genesis import genesis_document
from meshnode.domain.errors import RateLimited, StartupError, Unavailable
from meshnode.services.ledger import (
    follower,
    load_or_fetch_genesis,
)
from meshnode.services.ledger.database import stored_genesis
from meshnode.services.ledger.keeper import Keeper
from spec_tests.domain.chain.net import ALICE, BOB, CAROL, Actor, FakeModel, Net, genesis
from spec_tests.services.ledger.following import pair, root
from spec_tests.services.ledger.ledgers import (
    GENESIS,
    KEY,
    LedgerSource,
    account,
    eventually,
    running_ledger,
    send,
    transfer,
    until,
)

pytestmark = pytest.mark.usefixtures("no_pauses")

SECOND = 1_000_000_000


STATUS = "status"
"""Name of the source's method that a test replaces."""


async def test_it_catches_up_and_stays(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, _, follows):
        await eventually(lambda: follows.height == producer.height and not follows.catching_up)
        assert follows.readiness().reason == "ok"
        height = await send(producer, amount=9)
        await until(follows, height)
        assert root(follows) == root(producer)
        assert await follows.blocks(None, 50) == await producer.blocks(None, 50)
        assert await account(follows, BOB) == await account(producer, BOB)


async def test_it_asks_one_question_a_block_while_it_catches_up(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        assert source.asked.count("block") <= producer.height + 1
        assert source.asked.count("commit") <= 2


async def test_it_goes_on_after_its_own_restart(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        before = root(follows)
    async with running_ledger(tmp_path / "producer") as producer:
        source.ledger, source.down = producer, True
        async with running_ledger(tmp_path / "follower", None, source) as follows:
            assert follows.height >= 4
            assert root(follows) == before
            assert follows.readiness().reason == "catching_up"
            source.down = False
            height = await send(producer)
            await until(follows, height)
            assert root(follows) == root(producer)


async def test_it_survives_the_producers_restart(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        source.down = True
        await eventually(lambda: "nobody there" in follows.trouble)
        # Still ready: this changes only after 30 s.
        assert follows.readiness().reason == "ok"
        source.down = False
        height = await send(producer)
        await until(follows, height)
        await eventually(lambda: not follows.trouble)


async def test_without_blocks_it_stalls(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        await eventually(lambda: not follows.catching_up)
        source.down = True
        follows._block_at -= 31
        assert follows.readiness().reason == "stalled"


async def test_being_asked_to_wait_is_not_reported_as_trouble(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        told = trio.Event()

        async def busy() -> SyncInfo:
            told.set()
            raise RateLimited(1)

        setattr(source, STATUS, busy)
        await told.wait()
        assert follows.trouble == ""


async def test_a_producer_that_catches_up_itself_is_followed_but_not_ready(tmp_path: Path) -> None:
    bent = {"bend_status": lambda info: replace(info, catching_up=True)}
    async with pair(tmp_path, **bent) as (producer, _, follows):
        await until(follows, producer.height)
        assert follows.readiness().reason == "catching_up"


# Slow answers.


async def test_slow_answers_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ANSWER_S", 0.05)
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        setattr(source, STATUS, trio.sleep_forever)
        await eventually(lambda: "takes too long" in follows.trouble)


# Transactions.


async def test_a_transaction_goes_to_the_producer_and_comes_back_in_a_block(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await eventually(lambda: follows.height == producer.height and not follows.catching_up)
        for _ in range(3):
            await send(follows)
        assert [(kind, ttl) for _, kind, ttl in source.relayed] == [("transfer", 8)] * 3
        assert follows.waiting == 0
        assert root(follows) == root(producer)


async def test_a_transaction_that_the_producer_refuses_is_dropped(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await eventually(lambda: follows.height == producer.height and not follows.catching_up)

        async def refuse(raw: bytes, kind: str, ttl: int) -> tuple[bool, str]:
            return False, "not today"

        honest, source_relay = source.relay, refuse
        follows._relay = source_relay
        raw = await transfer(follows, amount=3)
        result = await follows.submit(raw)
        assert (result.code, result.log) == (1, "not today")
        assert follows.waiting == 0
        follows._relay = honest
        assert (await follows.submit(await transfer(follows, amount=4))).code == 0


async def test_an_unknown_outcome_can_be_asked_for_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await eventually(lambda: follows.height == producer.height and not follows.catching_up)
        source.down = True
        raw = await transfer(follows)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await follows.submit(raw)
        source.down = False
        result = await follows.submit(raw)
        assert result.code == 0
        with trio.fail_after(120):
            await follows.wait_transaction(result.hash)


async def test_a_transaction_does_not_circle_among_followers(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, _, follows):
        await eventually(lambda: follows.height == producer.height and not follows.catching_up)
        seen = []

        async def back(raw: bytes, kind: str, ttl: int) -> tuple[bool, str]:
            seen.append(ttl)
            result = await follows.submit(raw, ttl - 1)
            return result.code == 0, result.log

        follows._relay = back
        with pytest.raises(Unavailable, match="on its way"):
            await follows.submit(await transfer(follows))
        assert seen == [8]
        with pytest.raises(Unavailable, match="travel"):
            await follows.submit(await transfer(follows), ttl=0)


async def test_while_it_catches_up_it_takes_nothing(tmp_path: Path) -> None:
    bent = {"bend_status": lambda info: replace(info, catching_up=True)}
    async with pair(tmp_path, **bent) as (producer, _, follows):
        await until(follows, producer.height)
        with pytest.raises(Unavailable, match="catching up"):
            await follows.submit(await transfer(producer))


# Fetching the genesis.


async def test_the_genesis_is_pinned_on_first_use(tmp_path: Path) -> None:
    async with running_ledger(tmp_path / "producer") as producer:
        source = LedgerSource(producer)
        assert await load_or_fetch_genesis(tmp_path, source) == GENESIS
        # Later starts do not need the source.
        source.down = True
        assert await load_or_fetch_genesis(tmp_path, source) == GENESIS
        # But a source that offers another genesis is refused.
        source.down = False
        other = encode(genesis_document(genesis(chain_id="another")))
        producer.genesis_bytes = other
        with pytest.raises(StartupError, match="another one"):
            await load_or_fetch_genesis(tmp_path, source)


async def test_the_genesis_can_be_given_by_its_hash(tmp_path: Path) -> None:
    async with running_ledger(tmp_path / "producer") as producer:
        source = LedgerSource(producer)
        with pytest.raises(StartupError, match="SHA-256"):
            await load_or_fetch_genesis(tmp_path, source, "00" * 32)
        assert stored_genesis(tmp_path) is None
        pinned = producer.genesis_sha256.upper()
        assert await load_or_fetch_genesis(tmp_path, source, pinned) == GENESIS


async def test_a_first_start_needs_an_answer_that_is_a_genesis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshnode.services.ledger.genesis.FIRST_ANSWER_S", 0.1)
    async with running_ledger(tmp_path / "producer") as producer:
        source = LedgerSource(producer, down=True)
        with pytest.raises(StartupError, match="does not answer"):
            await load_or_fetch_genesis(tmp_path, source)
        source.down = False
        producer.genesis_bytes = b'{"chain_id":"x"}'
        with pytest.raises(StartupError, match="cannot be understood"):
            await load_or_fetch_genesis(tmp_path, source)
        assert stored_genesis(tmp_path) is None


@pytest.mark.parametrize("offered", [b"", b"<html>a hotel</html>", b"{}", b'{"chain_id":"x"}'])
async def test_a_malformed_answer_does_not_stop_a_node_that_has_a_genesis(
    tmp_path: Path, offered: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_ledger(tmp_path / "producer") as producer:
        source = LedgerSource(producer)
        assert await load_or_fetch_genesis(tmp_path, source) == GENESIS
        producer.genesis_bytes = offered
        assert await load_or_fetch_genesis(tmp_path, source) == GENESIS
        assert "cannot be understood" in caplog.text
        assert stored_genesis(tmp_path) == GENESIS


# Chains of random transactions.

PEOPLE = st.sampled_from([ALICE, BOB, CAROL])
STEP = st.one_of(
    st.tuples(st.just("transfer"), PEOPLE, PEOPLE, st.integers(1, 4_000_000)),
    st.tuples(st.just("stake"), PEOPLE, PEOPLE, st.integers(900, 2_000_000)),
    st.tuples(st.just("unstake"), PEOPLE, PEOPLE, st.integers(1, 2_000_000)),
    st.tuples(st.just("infer"), PEOPLE, PEOPLE, st.integers(7000, 9000)),
    st.tuples(st.just("respond"), PEOPLE, PEOPLE, st.integers(0, 3)),
)
STEPS = st.lists(st.lists(STEP, max_size=5), max_size=8)


def fields_of(net: Net, kind: str, who: Actor, to: Actor, number: int) -> dict[str, Json] | None:
    """Return the fields of a transaction of this kind, or None if none can be made now."""
    if kind == "transfer":
        return {"to": to.key, "amount": number}
    if kind == "stake":
        return {"amount": number, "duration_days": 1 + number % 30}
    if kind == "unstake":
        return {"amount": number}
    if kind == "infer":
        return net.infer(who, to, price=number)
    jobs = net.query("/jobs", provider=who.key)["jobs"]
    if not jobs:
        return None
    job = jobs[number % len(jobs)]
    return {"job_id": job["id"], "result_root": net.result_root(job["id"])}


@given(STEPS)
@settings(max_examples=settings().max_examples // 6)
def test_replaying_a_chain_gives_its_root(steps: list[list[tuple[Any, ...]]]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        made = Keeper(Path(one), GENESIS, FakeModel(), KEY)
        taken = Keeper(Path(two), GENESIS, FakeModel())
        # ``net`` reads accounts and nonces from the application of the chain that is being made.
        net = Net(made.genesis)
        net.app = made._app
        for number, step in enumerate(steps):
            for kind, who, to, amount in step:
                fields = fields_of(net, kind, who, to, amount)
                if fields is not None:
                    made.submit(net.tx(who, kind, **fields))
            stored = made.make_block(number * 86_400 * SECOND)
            assert taken.take_block(stored.block, stored.commit) == stored
            assert taken._app.app_hash == made._app.app_hash
        made.close()
        taken.close()
        again = Keeper(Path(two), GENESIS, FakeModel())
        assert again._app.app_hash == made._app.app_hash
        again.close()


@dataclass
class _QuietChain:
    """A ledger together with its source, which makes empty blocks; it notes when it is asked."""

    every_s: float
    chain_id: str = "quiet"
    name: str = "http://quiet"
    height: int = 1
    waiting: int = 0
    catching_up: bool = False
    arrived: trio.Event = field(default_factory=trio.Event)
    asked: list[float] = field(default_factory=list)
    behind: int = 0
    began: float = field(default_factory=trio.current_time)

    def report(self, trouble: str, *, refusing: bool = False) -> None:
        assert not trouble

    async def block(self, height: int) -> SimpleNamespace:
        return SimpleNamespace(hash=bytes(32), transactions=(), header=height, last_commit="")

    async def commit(self, height: int) -> tuple[int, str]:
        return height, ""

    async def take_block(self, block: SimpleNamespace, commit: str) -> None:
        self.height = block.header

    async def status(self) -> SyncInfo:
        self.asked.append(trio.current_time() - self.began)
        tip = 1 + int(self.asked[-1] / self.every_s)
        self.behind = max(self.behind, tip - self.height)
        return SyncInfo(self.chain_id, tip, hash=bytes(32))

    def pauses(self) -> list[float]:
        return [after - before for before, after in pairwise(self.asked)]


@asynccontextmanager
async def _followed(every_s: float) -> AsyncIterator[_QuietChain]:
    chain: Any = _QuietChain(every_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(follower.run_follower, chain, chain, poll_s=1.0))
        await trio.sleep(299.5)
        yield chain
        nursery.cancel_scope.cancel()


async def test_a_quiet_chain_is_asked_more_and_more_seldom(autojump_clock: object) -> None:
    # As often as a solo node makes a block.
    async with _followed(every_s=5.0) as quiet:
        pauses = quiet.pauses()
        assert pauses == sorted(pauses)
        assert pauses[0] <= 1.2
        assert pauses[-1] == pytest.approx(4.0)
        assert (quiet.height, quiet.behind) == (60, 1)
        # A transaction that went through this node is looked for until it has come.
        asked = len(quiet.asked)
        quiet.waiting = 1
        quiet.arrived.set()
        await trio.sleep(10)
        assert quiet.asked[asked] - 299.5 <= 1.0
        assert quiet.pauses()[asked:] == pytest.approx([1.0] * (len(quiet.asked) - asked - 1))


async def test_a_quick_chain_is_never_far_ahead_between_questions(autojump_clock: object) -> None:
    async with _followed(every_s=1.0) as quick:
        assert quick.behind <= follower.NEAR
        assert max(quick.pauses()) <= 2.1
