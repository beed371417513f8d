"""Real worker processes that are killed and restarted are paid once by a real gateway."""

from __future__ import annotations

import argparse
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.services.ledger import Ledger
from meshnode.worker_command import add_worker_arguments, run_worker_command
from spec_tests.domain.chain.net import Actor
from spec_tests.processes import changes, forking
from spec_tests.processes.calls import NODE, Call
from spec_tests.processes.forking import ForkedProcess
from spec_tests.processes.nodes import READY_WITHIN_S, environment
from spec_tests.services.ledger.ledgers import SOON_S
from spec_tests.services.work.models_chain import (
    FIRST,
    SECOND,
    ask,
    hurry,
    key_file,
    model_directory,
    running_chain,
    serve_gateway,
    shared_execution,
    sponsoring,
)

pytestmark = pytest.mark.process


@dataclass
class Network:
    ledger: Ledger
    url: str
    folder: Path

    def start(self, who: Actor, stage: int, *more: str, dies: str = "") -> ForkedProcess:
        key = key_file(self.folder, who)
        common = ["worker", "--gateway", self.url, "--key", str(key), "--stage", str(stage)]
        home = ["--data-dir", str(self.folder / f"home{stage}"), "--model", str(model_directory())]
        change: list[Call] = [partial(changes.die_beside_the_journal, moment=dies)] if dies else []
        calls = [*change, NODE]
        return forking.start(calls, [*common, *home, *more], environment(OMP_NUM_THREADS="1"))

    async def run(self, who: Actor, stage: int, *more: str, dies: str = "") -> tuple[int, str]:
        """Run a worker until it ends by itself; return the exit status and its output."""

        def finish() -> tuple[int, str]:
            with self.start(who, stage, *more, dies=dies) as process:
                said = process.stdout.read()
                return process.wait(READY_WITHIN_S), said

        return await trio.to_thread.run_sync(finish)

    async def round(self) -> int:
        return int((await ask(self.ledger, "/summary"))["round"])

    async def balance(self, who: Actor) -> int:
        return int((await ask(self.ledger, "/account", public_key=who.key))["balance"])


@asynccontextmanager
async def sponsored(folder: Path, tasks: int) -> AsyncIterator[Network]:
    async with (
        running_chain(folder / "chain", shared_execution()) as ledger,
        sponsoring(ledger, folder / "sponsor", tasks=tasks) as sponsor,
        trio.open_nursery() as nursery,
    ):
        served = await serve_gateway(nursery, ledger, shared_execution(), sponsor)
        yield Network(ledger, served.url, folder)
        nursery.cancel_scope.cancel()


async def test_workers_train_and_one_that_is_killed_goes_on(tmp_path: Path) -> None:
    """A worker that was killed with a result in its journal only sends it at its next start."""
    async with sponsored(tmp_path, 1) as network, trio.open_nursery() as nursery:

        async def second() -> None:
            status, said = await network.run(SECOND, 1, "--tasks", "1")
            assert (status, "returned task" in said) == (0, True), said

        nursery.start_soon(second)
        status, said = await network.run(FIRST, 0, dies="finished")
        assert status == -signal.SIGKILL, said
        status, said = await network.run(FIRST, 0, "--tasks", "1")
        assert (status, "returned task" in said) == (0, True), said
        with trio.fail_after(SOON_S):
            while await network.round() < 1:
                await network.ledger.wait_beyond(network.ledger.height)
        assert await network.balance(FIRST) == await network.balance(SECOND) == 400_000


async def test_an_interrupted_operation_waits_for_the_next_lease(tmp_path: Path) -> None:
    async with sponsored(tmp_path, 2) as network, trio.open_nursery() as nursery:

        async def second() -> None:
            status, said = await network.run(SECOND, 1, "--tasks", "1")
            assert status == 0, said

        nursery.start_soon(second)
        status, said = await network.run(FIRST, 0, dies="begun")
        assert status == -signal.SIGKILL, said
        lease = (await ask(network.ledger, "/summary"))["lease"]

        async def expire() -> None:
            await hurry(network.ledger, lease["expires"] - network.ledger.height + 1)

        nursery.start_soon(expire)
        status, said = await network.run(FIRST, 0, "--tasks", "1")
        assert (status, lease["task_id"] in said) == (0, False), said


async def test_what_the_operator_can_mend_is_said_in_one_line(tmp_path: Path) -> None:
    def start(url: str, key: Path, model: Path, *more: str) -> str:
        parser = argparse.ArgumentParser()
        add_worker_arguments(parser)
        arguments = ["--gateway", url, "--key", str(key), "--stage", "0", *more]
        with pytest.raises(MeshnodeError) as failure:
            run_worker_command(parser.parse_args(arguments), str(model), "", tmp_path / "home")
        return str(failure.value)

    key, model = key_file(tmp_path, FIRST), model_directory()
    async with sponsored(tmp_path, 0) as network:
        for arguments, reason in (
            ((network.url, key, model, "--genesis-sha256", "ab" * 32), "with the genesis abab"),
            ((network.url, tmp_path / "none", model), "cannot read the key file"),
            (("ftp://x", key, model), "is not a gateway"),
            ((network.url, key, tmp_path), "no such file"),
            ((network.url, key, DEFAULT_MODEL), "the chain's model is not the one"),
        ):
            said = await trio.to_thread.run_sync(partial(start, *arguments))
            assert reason in said
            assert "\n" not in said


async def test_a_worker_without_work_ends_at_sigterm(tmp_path: Path) -> None:
    async with sponsored(tmp_path, 0) as network, trio.open_nursery() as nursery:
        process = network.start(FIRST, 0)

        def stop() -> None:
            with process:
                said = process.stdout.readline()
                assert said.startswith("working on features for execution-test-1")
                process.terminate()
                assert process.wait(READY_WITHIN_S) == 0

        nursery.start_soon(trio.to_thread.run_sync, stop)
