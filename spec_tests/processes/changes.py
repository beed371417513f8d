"""Changes that tests make in the process of a node before it starts (see ``calls``)."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from meshnode import node, train_command
from meshnode.assembly import life
from meshnode.assembly.timings import NODE_TIMINGS
from meshnode.client.gateway import Gateway
from meshnode.domain.moving import MOVE_TIMINGS
from meshnode.domain.training.replica import Replica
from meshnode.model import run as training_run
from meshnode.model.engine import Engine
from meshnode.rpc import pool
from meshnode.rpc.server import serve_grpc
from meshnode.services import weights
from meshnode.services.dht.timings import DHT_TIMINGS
from meshnode.services.executor import Executor
from meshnode.services.peers import PEER_TIMINGS
from meshnode.services.pipeline import guessing
from meshnode.services.pipeline.driver import _Drive
from meshnode.services.shards.holder import Holder
from meshnode.services.training import rounds
from meshnode.services.training.fetching import CheckpointFetcher
from meshnode.services.training.learner import Learner
from meshnode.services.training.timings import TRAINING_TIMINGS
from meshnode.services.work.training_worker import StageJournal
from meshnode.wire import sse

POLL_S = 0.01
LONG_S = 600.0
"""Longer than any test waits for an effect."""


def substitute(owner: object, name: str, value: object) -> None:
    """Replace an attribute of a module or a class. The attribute must exist."""
    assert hasattr(owner, name), name
    setattr(owner, name, value)


def open_umask() -> None:
    """Set the umask to 0, as a careless shell may. The node's files must be private even so."""
    os.umask(0)


def allow_files(most: int) -> None:
    """Set how many files the process may open, as ``ulimit -n`` does."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# Timings


def _change_timings(**services: Any) -> None:
    """Replace the timings of these services; keep those that earlier changes replaced."""
    earlier = getattr(node.run_node, "keywords", {}).get("timings", NODE_TIMINGS)
    timings = replace(earlier, **services)
    substitute(node, "run_node", partial(node.run_node, timings=timings))


def notice_losses_soon() -> None:
    """Make nodes notice soon that a peer is gone, and search soon for peers that they lost."""
    _change_timings(
        dht=replace(DHT_TIMINGS, lost_s=1.0), peers=replace(PEER_TIMINGS, beat_s=1.0, call_s=5.0)
    )


def move_soon() -> None:
    """Make nodes move to layers that nobody holds within seconds, and never for speed."""
    brisk = replace(MOVE_TIMINGS, look_s=0.5, relief_s=3.0, speed_s=LONG_S, known_s=3.0, rest_s=3.0)
    _change_timings(moving=brisk)


def wait_longer(seconds: float) -> None:
    """Let a driver wait this long for a holder, which may be slow on a busy machine."""
    pool.CONNECT_S = seconds
    _change_timings(peers=replace(PEER_TIMINGS, call_s=seconds))


def wait_longer_for_trackers(seconds: float) -> None:
    """Let a node that chooses its layers wait this long for a slow tracker."""
    pool.CONNECT_S = weights.ASK_S = seconds


def train_briskly() -> None:
    """Make nodes that train poll each other every 0.3 s. Their deadlines stay the same.

    Rounds are so short then that some make the weights worse. Such rounds are kept: three that are
    dropped would end a training that has to last as long as its test (decision 0226).
    """
    _change_timings(training=replace(TRAINING_TIMINGS, poll_s=0.3))
    substitute(rounds, "is_worse", lambda measured, previous: False)


def wait_for_contributions() -> None:
    """Let an exchange last until all have contributed, however slow the machine is."""
    earlier = getattr(node.run_node, "keywords", {}).get("timings", NODE_TIMINGS).training
    patient = replace(earlier.rounds, exchange_least_s=LONG_S)
    _change_timings(training=replace(earlier, rounds=patient))


# Generations


def hold_generations(file: str, held: str) -> None:
    """Let each generation choose as many tokens as ``file`` says, and hold it before the next one.

    A held generation writes the number of the token that it waits for, from 1, into ``held``.
    """
    choose, gate = _Drive._choose, Path(file)

    def is_held(number: int) -> bool:
        if number <= int(gate.read_text()):
            return False
        Path(held).write_text(str(number))
        return True

    async def choose_when_let(self: _Drive, *arguments: Any) -> int:
        counted = vars(self._progress.sampler)
        number = counted["chosen"] = counted.get("chosen", 0) + 1
        while is_held(number):  # noqa: ASYNC110 - the test that lets it go on is another process
            await trio.sleep(POLL_S)
        return await choose(self, *arguments)

    substitute(_Drive, "_choose", choose_when_let)


def guess_always(depth: int) -> None:
    """Make a driver guess so many tokens ahead, whatever they cost."""
    substitute(guessing, "best_depth", lambda costs, rate, proposal_ms=0.0: depth)


def hold_flights(file: str, held: str) -> None:
    """Hold the messages that a driver sends ahead as long as ``file`` says ``hold``.

    The number of those that wait is written into ``held``. When ``file`` says ``forget``, the node
    drops all sessions once, and lets the messages go on.
    """
    forward, gate, waiting = Holder.forward, Path(file), [0]

    def word() -> str:
        return gate.read_text() if gate.exists() else ""

    def count(change: int) -> None:
        waiting[0] += change
        Path(held).write_text(str(waiting[0]))

    async def forward_when_let(self: Holder, call: Any) -> Any:
        if call.flight and not call.closes and word():
            count(1)
            while word() == "hold":  # noqa: ASYNC110 - the test that lets it go is another process
                await trio.sleep(POLL_S)
            count(-1)
            if word() == "forget":
                gate.unlink()  # noqa: ASYNC240 - once, in a test
                self.close_all()
        return await forward(self, call)

    substitute(Holder, "forward", forward_when_let)


def decode_slowly(seconds: float) -> None:
    """Delay each decoding step by ``seconds``. The default model ends a text within a second."""
    _before_each_decode(partial(time.sleep, seconds))


def hold_decoding(file: str) -> None:
    """Hold decoding as long as ``file`` exists: a generation then stops after its first token."""

    def wait() -> None:
        while Path(file).exists():
            time.sleep(POLL_S)

    _before_each_decode(wait)


def _before_each_decode(act: Callable[[], None]) -> None:
    decode = Engine.decode

    def acting_decode(self: Engine, *arguments: Any) -> Any:
        act()
        return decode(self, *arguments)

    substitute(Engine, "decode", acting_decode)


def enlarge_events() -> None:
    """Make each token's event so large that all buffers fill up when a reader stalls."""
    encode = sse.encode_event
    padding = b": " + b"x" * 1_000_000 + b"\n"
    substitute(sse, "encode_event", lambda value: padding + encode(value))


# Faults


def crash_executor() -> None:
    """Make the executor raise RuntimeError soon after it has got something to do."""
    step = Executor.step

    async def crash(self: Executor) -> None:
        if self.active:
            raise RuntimeError("a fault in the executor")
        await step(self)

    substitute(Executor, "step", crash)


def crash_grpc_once() -> None:
    """Make the gRPC edge raise RuntimeError once, after it has started."""
    serve: Callable[..., Awaitable[None]] = serve_grpc
    crashes = [1]

    async def flaky(*arguments: Any, task_status: trio.TaskStatus[Any], **options: Any) -> None:
        if not crashes:
            return await serve(*arguments, task_status=task_status, **options)
        crashes.pop()
        async with trio.open_nursery() as nursery:
            task_status.started(await nursery.start(partial(serve, *arguments, **options)))
            raise RuntimeError("a fault in the edge")

    substitute(life, "serve_grpc", flaky)


def die_around_broadcast(moment: str) -> None:
    """Kill a client just ``before`` or just ``after`` it sends a transaction."""
    send = Gateway.broadcast

    def broadcast(self: Gateway, raw: bytes) -> Any:
        if moment == "after":
            send(self, raw)
        os.kill(os.getpid(), signal.SIGKILL)

    substitute(Gateway, "broadcast", broadcast)


# Training


STATES: dict[str, tuple[type, str]] = {
    "inner": (Learner, "contribution"),
    "exchange": (Replica, "fetch"),
    "outer": (Learner, "applied"),
    "settling": (Replica, "settle"),
    "fetching": (CheckpointFetcher, "fetch"),
}
"""By state, the method that a node calls in it. Methods of Replica are called in others too."""


def die_in(state: str) -> None:
    """Kill the process the first time that its training is in ``state``."""
    owner, name = STATES[state]
    undisturbed = getattr(owner, name)

    def die(self: object, *arguments: Any) -> Any:
        if not isinstance(self, Replica) or self.state.value == state:
            os.kill(os.getpid(), signal.SIGKILL)
        return undisturbed(self, *arguments)

    substitute(owner, name, die)


def fetch_only_with(file: str) -> None:
    """Delay every ``CheckpointFetcher.fetch`` until ``file`` exists."""
    undisturbed = CheckpointFetcher.fetch

    def wait_for_file() -> None:
        while not Path(file).exists():
            time.sleep(POLL_S)

    async def fetch(self: CheckpointFetcher, *arguments: Any) -> Any:
        await trio.to_thread.run_sync(wait_for_file, abandon_on_cancel=True)
        return await undisturbed(self, *arguments)

    substitute(CheckpointFetcher, "fetch", fetch)


def die_beside_the_journal(moment: str) -> None:
    """Kill a worker as soon as its journal records that a task has ``begun`` or ``finished``."""
    begin, finish = StageJournal.begin, StageJournal.finish

    def begin_and_die(self: StageJournal, *arguments: Any) -> None:
        begin(self, *arguments)
        if moment == "begun":
            os.kill(os.getpid(), signal.SIGKILL)

    def finish_and_die(self: StageJournal, *arguments: Any) -> None:
        finish(self, *arguments)
        if moment == "finished":
            os.kill(os.getpid(), signal.SIGKILL)

    substitute(StageJournal, "begin", begin_and_die)
    substitute(StageJournal, "finish", finish_and_die)


def stop_after_step(step: int, checkpoint_every_s: float) -> None:
    """Make ``meshnode train`` print ``waiting`` after that step, and wait for a signal."""
    training_run.CHECKPOINT_SECONDS = checkpoint_every_s
    show = training_run.show_progress

    def show_and_wait(run: training_run.TrainingRun) -> None:
        show(run)
        if run.trainer.step_count == step:
            before = signal.getsignal(signal.SIGINT)
            print("waiting", file=sys.stderr, flush=True)
            while signal.getsignal(signal.SIGINT) == before:
                time.sleep(POLL_S)

    substitute(train_command, "show_progress", show_and_wait)
