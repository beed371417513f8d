"""The provider: paid answers on a real chain, whatever is restarted, refused or late."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support_chain import BOB, CAROL, Actor
from support_execution import ask, do, hurry, infer, node_key, running_chain, shared_execution
from support_ledger import SOON_S, eventually

from meshnode.domain.chain.blocks import TransactionResult
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import application_id, transaction_hash
from meshnode.domain.chain.errors import Rejected, WrongNonce
from meshnode.domain.errors import Unavailable
from meshnode.services.ledger import Ledger
from meshnode.services.work.provider import MOST_TRIES, Provider, serve_provider
from meshnode.services.work.submission import Refused, Submitter


@asynccontextmanager
async def providing(
    ledger: Ledger, who: Actor = CAROL, execution: object = None
) -> AsyncIterator[Provider]:
    submitter = Submitter(ledger, node_key(who))
    provider = Provider(ledger, execution or shared_execution(), submitter)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_provider, provider)
        yield provider
        nursery.cancel_scope.cancel()


async def finished(ledger: Ledger, job_id: str) -> dict[str, Any]:
    with trio.fail_after(SOON_S):
        while True:
            height = ledger.height
            job = await ask(ledger, "/job", id=job_id)
            if job["status"] != "pending":
                return job
            await ledger.wait_beyond(height)


async def test_a_job_is_answered_and_paid(tmp_path: Path) -> None:
    execution = shared_execution()
    async with running_chain(tmp_path, execution) as ledger, providing(ledger) as provider:
        job = await finished(ledger, await infer(ledger, CAROL.key, "A node", tokens=5))
        root = execution.genesis_facts().model_root
        assert job["status"] == "completed"
        assert job["output"] == execution.answer_prompt(root, "A node", 5)
        assert job["provider_paid"] == 4000
        assert (await ask(ledger, "/account", public_key=CAROL.key))["balance"] == 4000
        assert provider.online
        await eventually(lambda: provider.answered == 1)
    assert not provider.online


async def test_several_jobs_are_answered_in_order_of_expiry(tmp_path: Path) -> None:
    async with running_chain(tmp_path, shared_execution()) as ledger:
        lifetimes = {"late": 50, "soon": 20, "between": 30}
        ids = {name: await infer(ledger, CAROL.key, name, life) for name, life in lifetimes.items()}
        async with providing(ledger) as provider:
            heights = {
                name: (await finished(ledger, job_id))["height"] for name, job_id in ids.items()
            }
            await eventually(lambda: provider.answered == 3)
        assert sorted(heights, key=lambda name: heights[name]) == ["soon", "between", "late"]
        assert (await ask(ledger, "/account", public_key=CAROL.key))["nonce"] == 3


async def test_it_goes_on_after_a_restart_at_any_moment(tmp_path: Path) -> None:
    """Cancelled before, while and after the answer is on its way: it is paid once."""
    execution = shared_execution()
    async with running_chain(tmp_path, execution) as ledger:
        jobs = [await infer(ledger, CAROL.key, f"job {i}") for i in range(4)]
        submit, reached, held = ledger.submit, trio.Event(), trio.Event()

        async def hold(raw: bytes) -> TransactionResult:
            """The answer arrives; its sender does not hear of it."""
            result = await submit(raw)
            reached.set()
            await held.wait()
            return result

        for stopped_at in ("start", "submit"):
            async with providing(ledger):
                if stopped_at == "submit":
                    ledger.submit = hold  # type: ignore[method-assign, assignment]
                    with trio.fail_after(SOON_S):
                        await reached.wait()
        del ledger.submit
        async with providing(ledger):
            for job in jobs:
                assert (await finished(ledger, job))["status"] == "completed"
        account = await ask(ledger, "/account", public_key=CAROL.key)
        assert (account["nonce"], account["balance"]) == (4, 4 * 3200)


async def test_others_may_use_the_same_key(tmp_path: Path) -> None:
    async with running_chain(tmp_path, shared_execution()) as ledger:
        await do(ledger, BOB, "transfer", to=CAROL.key, amount=100_000)
        jobs = [await infer(ledger, CAROL.key, f"job {i}") for i in range(2)]
        async with providing(ledger):
            for _ in range(3):
                nonce = (await ask(ledger, "/account", public_key=CAROL.key))["nonce"]
                body = {"kind": "transfer", "chain_id": ledger.chain_id, "nonce": nonce}
                await ledger.submit(CAROL.sign({**body, "to": BOB.key, "amount": 1}))
            for job in jobs:
                assert (await finished(ledger, job))["status"] == "completed"


async def test_what_expires_too_soon_is_left_alone(tmp_path: Path) -> None:
    async with running_chain(tmp_path, shared_execution()) as ledger:
        job_id = await infer(ledger, CAROL.key, "too late", lifetime=4)
        job = await ask(ledger, "/job", id=job_id)
        await hurry(ledger, job["expires"] - ledger.height)
        asked: list[str] = []

        class Watched:
            conformant = True

            def answer_prompt(self, root: str, prompt: str, most: int) -> dict[str, Json]:
                asked.append(prompt)
                return {}

        async with providing(ledger, execution=Watched()) as provider:
            await eventually(lambda: provider.online)
            await hurry(ledger)
            assert (await finished(ledger, job_id))["status"] == "expired"
        assert asked == []


async def test_a_job_that_cannot_be_answered_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that computed something else would only repeat its mistake."""

    class Wrong:
        conformant = True
        asked = 0

        def answer_prompt(self, root: str, prompt: str, most: int) -> dict[str, Json]:
            self.asked += 1
            if self.asked == 1:
                raise ArithmeticError("not finite")
            return {"text": "wrong"}

    wrong = Wrong()
    async with running_chain(tmp_path, shared_execution()) as ledger:
        job_id = await infer(ledger, CAROL.key)
        async with providing(ledger, execution=wrong):
            for _ in range(MOST_TRIES + 2):
                await hurry(ledger)
            await eventually(lambda: wrong.asked == MOST_TRIES)
            await hurry(ledger, 2)
        assert wrong.asked == MOST_TRIES
        assert (await ask(ledger, "/job", id=job_id))["status"] == "pending"
    assert "Result differs from full replay" in caplog.text


async def test_a_node_that_computes_otherwise_answers_nothing(tmp_path: Path) -> None:
    class Unfit:
        conformant = False

        def answer_prompt(self, *_: object) -> dict[str, Json]:
            raise AssertionError

    async with running_chain(tmp_path, shared_execution()) as ledger:
        await infer(ledger, CAROL.key)
        async with providing(ledger, execution=Unfit()) as provider:
            await hurry(ledger)
            assert not provider.online


async def test_it_is_cancelled_while_it_waits(tmp_path: Path) -> None:
    async with running_chain(tmp_path, shared_execution()) as ledger:
        async with providing(ledger) as provider:
            await eventually(lambda: provider.online)
        assert not provider.online
        assert ledger.readiness().reason in ("ok", "stalled")


class FlakyChain:
    """Says what it is told to say, one answer after another."""

    chain_id = "flaky"
    height = 1

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.submitted: list[bytes] = []
        self.nonce = 3
        self.landed = set[str]()

    async def query(self, path: str, options: object = None) -> Any:
        from meshnode.domain.chain.queries import QueryResult

        await trio.lowlevel.checkpoint()
        return QueryResult(0, "", b'{"nonce":%d}' % self.nonce, self.height)

    async def submit(self, raw: bytes) -> TransactionResult:
        await trio.lowlevel.checkpoint()
        self.submitted.append(raw)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return TransactionResult(int(bool(answer)), answer, "AB" * 32)  # type: ignore[arg-type]

    async def wait_beyond(self, height: int) -> int:
        await trio.lowlevel.checkpoint()
        self.height += 1
        return self.height

    async def transaction(self, hash: str) -> tuple[int, TransactionResult] | None:
        await trio.lowlevel.checkpoint()
        landed = hash in self.landed
        return (self.height, TransactionResult(0, "", hash)) if landed else None  # type: ignore[arg-type]

    async def wait_transaction(self, hash: str) -> tuple[int, TransactionResult]:
        if not self.answers:
            return self.height, TransactionResult(0, "", hash)  # type: ignore[arg-type]
        await trio.sleep_forever()
        raise AssertionError


async def test_a_transaction_is_offered_until_it_is_in_a_block(autojump_clock: object) -> None:
    """A taken nonce, an unreachable block maker, a transaction that got lost: the same bytes."""
    chain = FlakyChain(str(WrongNonce()), Unavailable("nobody"), "", "")
    sent = await Submitter(chain, node_key(BOB)).send("respond", {"job_id": "x"})
    assert len(sent) == 64
    assert len(chain.submitted) == 4
    assert len(set(chain.submitted)) == 1


class DeafChain(FlakyChain):
    """Puts what it is offered into a block, and its answer is lost."""

    async def submit(self, raw: bytes) -> TransactionResult:
        self.nonce += 1
        self.landed.add(transaction_hash(raw))
        return await super().submit(raw)


@pytest.mark.parametrize("answer", [Unavailable("nobody"), ""])
async def test_what_is_in_a_block_unheard_is_not_sent_again(
    autojump_clock: object, answer: Exception | str
) -> None:
    """The chain would refuse a second one, and the first would count as refused."""
    chain = DeafChain(answer, "A task is already reserved")
    sent = await Submitter(chain, node_key(BOB)).send("reserve", {})
    body = json.loads(chain.submitted[0])["body"]
    assert sent == application_id(body, BOB.key)
    assert len(chain.submitted) == 1


async def test_a_refusal_is_the_end(autojump_clock: object) -> None:
    with pytest.raises(Refused, match="No live inference"):
        await Submitter(FlakyChain("No live inference"), node_key(BOB)).send("respond", {})
    assert issubclass(Refused, Rejected)
