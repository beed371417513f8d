"""Runs the suite against a stranger's node with one switch after the other, several at a time.

What a run says is one line of JSON, written as soon as it is known, so that a judging that was cut
off goes on where it stopped.
"""

import json
import multiprocessing
import shlex
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from http.client import HTTPException
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from conformance.catalogue import Level
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.judging.stranger.strangers import Stranger
from conformance.peer.callback import listening
from conformance.peer.command import judged_as_client
from conformance.peer.peer import Patience, Peer, Setup
from conformance.probe import probe
from conformance.run import Runner
from conformance.target import Target, documented_grpc_address, make_target, read_file
from conformance.verdict import Standing

APART = 10
# In whole units of the currency: enough for all that a run may spend at any of the nodes.
BUDGET = 400.0
STARTS_WITHIN_S = 60.0
# These nodes come to a peer as soon as they start, if they come at all.
AS_A_CLIENT = Setup(patience=Patience(first_s=15.0, recover_s=30.0, idle_s=20.0))
SOUND, FAULT, PECULIAR = "", "--fault", "--peculiar"


@dataclass(frozen=True)
class Switch:
    """What a node is started with: nothing, one of its faults, or one of its peculiarities."""

    option: str
    ident: str = "sound"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words on the node's command line."""
        return (self.option, self.ident) if self.option else ()


@dataclass(frozen=True)
class Outcome:
    """What a run said of one switch. Times are seconds."""

    option: str
    ident: str
    violated: tuple[str, ...] = ()
    """Requirements of the level MUST, of which a run against a fault ends with the first check."""
    advised: tuple[str, ...] = ()
    """Those of the level SHOULD."""
    proved: int = 0
    took_s: float = 0.0
    why: tuple[str, ...] = ()
    """A message for each of `violated`."""
    broke: tuple[str, ...] = ()
    """Checks that ended with an error of their own, or why the node did not start."""

    @property
    def seen(self) -> bool:
        """Whether anything was found, or the run is none."""
        return bool(self.violated or self.advised or self.broke)

    @property
    def switch(self) -> Switch:
        """What the node was started with."""
        return Switch(self.option, self.ident)


def target_at(stranger: Stranger, port: int, ident: str) -> Target:
    """What the stranger's operator declares, with everything allowed and the draft edition.

    ``ident`` is that of the switch that the node was started with.
    """
    settings: dict[str, Any] = dict(stranger.tokens)
    settings |= read_file(stranger.folder / "target.toml")
    for name, value in stranger.declared(ident).items():
        # A table has the other keys as before; nothing is declared of what is null.
        settings[name] = settings[name] | value if isinstance(value, dict) else value
        if isinstance(value, dict):
            settings[name] = {key: one for key, one in settings[name].items() if one is not None}
        if value is None:
            del settings[name]
    if stranger.signer:
        settings["signer"] = shlex.join(stranger.signer)
    settings = {"budget": BUDGET} | settings
    settings |= {"url": f"http://127.0.0.1:{port}", "edition": DRAFT}
    return make_target(settings | {"allow": ["mutate", "spend", "intrusive"]})


def judge(stranger: Stranger, port: int, switch: Switch, only: tuple[str, ...] = ()) -> Outcome:
    """Start the node with a switch, and run the suite against it, all of it or ``only`` a part.

    A run against a fault ends with the first check that finds a MUST violated. A fault of which it
    has seen nothing is one of the node as a client, perhaps: so the node is started once more, and
    judged by `meshnode-conformance peer`. The part is named by the ids of requirements. What the
    sound node is known to break does not count.
    """
    began = time.monotonic()
    target = target_at(stranger, port, switch.ident)
    target = replace(target, grpc=documented_grpc_address(target.url))
    baseline = stranger.known()
    try:
        with listening(target, None) as peer, _started(stranger, switch, port, peer):
            found = probe(target)
            if not found.profiles:
                shown = ("GEN-013",), ("nothing answers as the document describes",)
                return Outcome(switch.option, switch.ident, *shown[:1], why=shown[1])
            told = replace(target, profiles=found.profiles, grpc=found.grpc, absent=found.absent)
            run = Runner(
                told,
                only=only,
                baseline=baseline,
                first_violation=switch.option == FAULT,
                peer=peer,
            ).run()
        outcome = _outcome(switch, run, baseline.known, began)
        if outcome.seen or only or switch.option != FAULT or not stranger.peer_option:
            return outcome
        with Peer(AS_A_CLIENT) as peer, _started(stranger, switch, port, peer):
            run = Runner(
                judged_as_client(target),
                baseline=baseline,
                first_violation=True,
                peer=peer,
            ).run()
    except NotStarted as reason:
        return Outcome(switch.option, switch.ident, broke=(str(reason),))
    return replace(_outcome(switch, run, baseline.known, began), proved=outcome.proved)


class NotStarted(Exception):
    """The node does not answer, or something else does."""


@contextmanager
def _started(stranger: Stranger, switch: Switch, port: int, peer: Peer | None) -> Iterator[None]:
    """Run the node with a switch, and tell it of the peer. Raises `NotStarted`."""
    told = stranger.told(urlsplit(peer.url).netloc) if peer else ()
    if _taken(port):
        # The run would be one against that program.
        raise NotStarted(f"another program listens at port {port}")
    node = subprocess.Popen(
        [*stranger.command, "--port", str(port), *told, *switch.arguments],
        cwd=stranger.node,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if not _answers(port, node):
            raise NotStarted("the node does not answer")
        yield
    finally:
        node.kill()
        node.wait()


def _outcome(switch: Switch, run: Run, known: Container[str], began: float) -> Outcome:
    violated = [
        item
        for item in run.results
        if item.standing is Standing.VIOLATED and item.requirement.id not in known
    ]
    must = [item for item in violated if item.requirement.level is Level.MUST]
    return Outcome(
        switch.option,
        switch.ident,
        tuple(item.requirement.id for item in must),
        tuple(item.requirement.id for item in violated if item not in must),
        sum(item.standing is Standing.PROVED for item in run.asked),
        round(time.monotonic() - began, 1),
        tuple(item.reason[:200] for item in must),
        tuple(run.faults),
    )


def _taken(port: int) -> bool:
    """Tell whether somebody listens at a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def _answers(port: int, node: "subprocess.Popen[bytes]") -> bool:
    """Wait until the node answers, whatever it says."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline and node.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/health", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except (OSError, HTTPException):
            time.sleep(0.1)
        else:
            return True
    return False


# The ports that belong to this process until it ends.
_own: list[int] = []


def _take(ports: "Queue[int]") -> None:
    _own.append(ports.get())


def _judge_here(stranger: Stranger, switch: Switch, only: tuple[str, ...]) -> Outcome:
    return judge(stranger, _own[0], switch, only)


def judge_all(
    stranger: Stranger,
    switches: Iterable[Switch],
    at_once: int,
    first_port: int,
    only: tuple[str, ...] = (),
) -> Iterator[Outcome]:
    """Yield what each switch came to, as soon as it is known, with `at_once` nodes at a time."""
    context = multiprocessing.get_context("spawn")
    ports: Queue[int] = context.Queue()
    for number in range(at_once):
        ports.put(first_port + number * APART)
    pool = ProcessPoolExecutor(at_once, context, _take, (ports,))
    with pool:
        runs = [pool.submit(_judge_here, stranger, switch, only) for switch in switches]
        for done in as_completed(runs):
            yield done.result()


def read_outcomes(file: Path) -> dict[Switch, Outcome]:
    """Return the last outcome of each switch in a file, without those that broke down."""
    found: dict[Switch, Outcome] = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
            outcome = Outcome(**{**fields, **lists})
            if not outcome.broke:
                found[outcome.switch] = outcome
    return found


def line_of(outcome: Outcome) -> str:
    """One line of the file of outcomes."""
    return json.dumps(asdict(outcome)) + "\n"
