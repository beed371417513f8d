"""The provider is paid for its answers on a real chain, despite restarts, refusals and delays."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.chain.blocks import TransactionResult
from meshnode.domain.chain.canonical import Json
from meshnode.services.ledger import Ledger
from meshnode.services.work.provider import MAX_TRIES, Provider, serve_provider
from spec_tests.domain.chain.net import BOB, CAROL, Actor
from spec_tests.services.ledger.ledgers import SOON_S, eventually
from spec_tests.services.signer.signers import start_signer
from spec_tests.services.work.models_chain import (
    ask,
    do,
    hurry,
    infer,
    node_key,
    running_chain,
    shared_execution,
)


@asynccontextmanager
async def providing(
    ledger: Ledger, folder: Path, who: Actor = CAROL, execution: Any = None
) -> AsyncIterator[Provider]:
    async with trio.open_nursery() as nursery:
        signer = await start_signer(nursery, ledger, node_key(who), folder / "signer")
        provider = Provider(ledger, execution or shared_execution(), signer)
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
    async with (
        running_chain(tmp_path, execution) as ledger,
        providing(ledger, tmp_path) as provider,
    ):
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
        async with providing(ledger, tmp_path) as provider:
            heights = {
                name: (await finished(ledger, job_id))["height"] for name, job_id in ids.items()
            }
            await eventually(lambda: provider.answered == 3)
        assert sorted(heights, key=lambda name: heights[name]) == ["soon", "between", "late"]
        assert (await ask(ledger, "/account", public_key=CAROL.key))["nonce"] == 3


async def test_it_goes_on_after_a_restart_at_any_moment(tmp_path: Path) -> None:
    """Cancelled before, during and after the submission of its answer, it is paid exactly once."""
    execution = shared_execution()
    async with running_chain(tmp_path, execution) as ledger:
        jobs = [await infer(ledger, CAROL.key, f"job {i}") for i in range(4)]
        submit, reached, held = ledger.submit, trio.Event(), trio.Event()

        async def hold(raw: bytes) -> TransactionResult:
            """Submit the transaction, but never return the result to its sender."""
            result = await submit(raw)
            reached.set()
            await held.wait()
            return result

        for stopped_at in ("start", "submit"):
            async with providing(ledger, tmp_path):
                if stopped_at == "submit":
                    ledger.submit = hold  # type: ignore[method-assign, assignment]
                    with trio.fail_after(SOON_S):
                        await reached.wait()
        del ledger.submit
        async with providing(ledger, tmp_path):
            for job in jobs:
                assert (await finished(ledger, job))["status"] == "completed"
        account = await ask(ledger, "/account", public_key=CAROL.key)
        assert (account["nonce"], account["balance"]) == (4, 4 * 3200)


async def test_others_may_use_the_same_key(tmp_path: Path) -> None:
    async with running_chain(tmp_path, shared_execution()) as ledger:
        await do(ledger, BOB, "transfer", to=CAROL.key, amount=100_000)
        jobs = [await infer(ledger, CAROL.key, f"job {i}") for i in range(2)]
        async with providing(ledger, tmp_path):
            for _ in range(3):
                nonce = (await ask(ledger, "/account", public_key=CAROL.key))["nonce"]
                body = {"kind": "transfer", "chain_id": ledger.chain_id, "nonce": nonce}
                await ledger.submit(CAROL.sign({**body, "to": BOB.key, "amount": 1}))
            for job in jobs:
                assert (await finished(ledger, job))["status"] == "completed"


async def test_jobs_that_expire_too_soon_are_not_answered(tmp_path: Path) -> None:
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

        async with providing(ledger, tmp_path, execution=Watched()) as provider:
            await eventually(lambda: provider.online)
            await hurry(ledger)
            assert (await finished(ledger, job_id))["status"] == "expired"
        assert asked == []


async def test_a_job_that_cannot_be_answered_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Tries are limited: a node whose result is wrong would only get it wrong again."""

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
        async with providing(ledger, tmp_path, execution=wrong):
            for _ in range(MAX_TRIES + 2):
                await hurry(ledger)
            await eventually(lambda: wrong.asked == MAX_TRIES)
            await hurry(ledger, 2)
        assert wrong.asked == MAX_TRIES
        assert (await ask(ledger, "/job", id=job_id))["status"] == "pending"
    assert "Result differs from full replay" in caplog.text


async def test_a_node_with_other_arithmetic_answers_nothing(tmp_path: Path) -> None:
    class Unfit:
        conformant = False

        def answer_prompt(self, *_: object) -> dict[str, Json]:
            raise AssertionError

    async with running_chain(tmp_path, shared_execution()) as ledger:
        await infer(ledger, CAROL.key)
        async with providing(ledger, tmp_path, execution=Unfit()) as provider:
            await hurry(ledger)
            assert not provider.online


async def test_it_is_cancelled_while_it_waits(tmp_path: Path) -> None:
    async with running_chain(tmp_path, shared_execution()) as ledger:
        async with providing(ledger, tmp_path) as provider:
            await eventually(lambda: provider.online)
        assert not provider.online
        assert ledger.readiness().reason in ("ok", "stalled")
