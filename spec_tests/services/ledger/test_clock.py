"""Decision 0136: a clock that jumps dates no blocks, and shows in the log and in ``/health``."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from meshnode.domain.chain.comet.times import parse_time
from meshnode.domain.chain.genesis import parse_genesis
from meshnode.domain.units import DAY_NS, SECOND_NS
from meshnode.services.health import Health
from meshnode.services.ledger.clock import CLOCK_FILE, NodeClock, serve_clock
from meshnode.services.ledger.keeper import Keeper
from meshnode.supervise import Drain, ServiceBoard
from spec_tests.domain.chain.net import FakeModel
from spec_tests.services.ledger.ledgers import GENESIS, KEY

NOW = 1_900_000_000 * SECOND_NS


@dataclass
class Machine:
    """A machine's clocks, which a test sets."""

    folder: Path
    wall: int = NOW
    steady: int = 5 * SECOND_NS
    boot: str = "one"

    def node(self) -> NodeClock:
        """The clock of a node that starts now."""
        boot_id = self.folder / "boot_id"
        boot_id.write_text(self.boot + "\n")
        return NodeClock(
            self.folder, wall=lambda: self.wall, steady=lambda: self.steady, boot_id=boot_id
        )

    def wait(self, seconds: int) -> None:
        self.wall += seconds * SECOND_NS
        self.steady += seconds * SECOND_NS


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_blocks_are_dated_by_the_steady_clock_after_a_jump(machine: Machine) -> None:
    keeper = Keeper(machine.folder, GENESIS, FakeModel(), KEY)
    times = [parse_time(parse_genesis(GENESIS).genesis_time)]
    clock = machine.node()
    clock.begin(lambda: times[-1])
    try:
        for jump in (0, 0, 40 * DAY_NS, 0, -40 * DAY_NS, 0, -DAY_NS, 0):
            machine.wall += jump
            machine.wait(5)
            times.append(keeper.make_block(clock.date_ns()).time_ns)
    finally:
        keeper.close()
    # A block has the time of the vote for the one before it: five seconds each, and never a day.
    assert times[2] == NOW + 5 * SECOND_NS
    assert all(abs(b - a - 5 * SECOND_NS) < SECOND_NS for a, b in pairwise(times[2:]))


def test_a_jump_is_logged_once_and_shown(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = machine.node()
    health = Health(
        drain=Drain(),
        services=ServiceBoard(),
        device=lambda: "absent",
        peer_count=lambda: 0,
        tracker_url="",
        now=lambda: 0.0,
        clock=lambda: clock.word,
    )
    clock.look()
    assert "clock" not in health.report().checks
    machine.wall += 40 * DAY_NS
    for _ in range(3):
        machine.wait(5)
        clock.look()
    report = health.report()
    assert report.checks["clock"] == "3455999 s (39 days) ahead of the steady clock"
    # The node copes with it, so it may be sent work.
    assert report.healthy
    assert caplog.text.count("ahead of the steady clock") == 1
    assert "remove clock.json and start it again" in caplog.text
    machine.wall -= 40 * DAY_NS
    clock.look()
    assert health.report().checks.keys() == {"gpu", "network", "storage", "peers"}
    assert "agrees with the others again" in caplog.text


def test_a_restart_after_a_jump_still_knows_of_it(machine: Machine) -> None:
    machine.node().keep()
    machine.wall += 40 * DAY_NS
    machine.wait(60)
    again = machine.node()
    again.begin(lambda: NOW)
    assert again.date_ns() == NOW + 60 * SECOND_NS
    again.look()
    assert "ahead of the steady clock" in again.word
    # The wall clock is believed again after the machine has been restarted, or the file removed.
    machine.boot = "two"
    assert machine.node().date_ns() == machine.wall
    machine.boot = "one"
    (machine.folder / CLOCK_FILE).unlink()
    assert machine.node().date_ns() == machine.wall


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "meshnode-clock-v1"}', "\xff"])
def test_a_damaged_file_counts_as_missing(machine: Machine, text: str) -> None:
    (machine.folder / CLOCK_FILE).write_text(text, "latin-1")
    clock = machine.node()
    assert clock.date_ns() == NOW
    clock.keep()
    assert json.loads((machine.folder / CLOCK_FILE).read_text())["wall_ns"] == NOW


def test_a_file_that_cannot_be_written_costs_nothing(machine: Machine) -> None:
    clock = machine.node()
    (machine.folder / CLOCK_FILE).mkdir()
    clock.keep()
    assert clock.date_ns() == NOW


def test_the_file_is_written_when_the_expected_time_has_moved(machine: Machine) -> None:
    clock = machine.node()
    clock.keep()
    written = (machine.folder / CLOCK_FILE).stat().st_ino
    machine.wait(3600)
    clock.date_ns()
    clock.keep()
    assert (machine.folder / CLOCK_FILE).stat().st_ino == written
    machine.wall += 30 * SECOND_NS
    machine.wait(3600)
    clock.date_ns()
    clock.keep()
    assert (machine.folder / CLOCK_FILE).stat().st_ino != written


def test_peers_that_differ_are_shown_and_change_nothing(machine: Machine) -> None:
    clock = machine.node()
    clock.peers = lambda: [machine.wall + DAY_NS] * 3
    clock.look()
    assert clock.word == "86400 s behind most peers"
    assert clock.date_ns() == machine.wall
    # Three peers that show what the wall clock shows confirm its jump.
    machine.wall += DAY_NS
    clock.peers = lambda: [machine.wall] * 3
    clock.look()
    assert clock.word == ""
    assert clock.date_ns() == machine.wall


def test_a_follower_shows_blocks_that_are_dated_ahead(machine: Machine) -> None:
    latest = NOW
    clock = machine.node()
    clock.begin(lambda: latest)
    clock.look()
    assert clock.word == ""
    latest = NOW + DAY_NS
    clock.look()
    assert clock.word == "86400 s behind the last block"
    assert clock.date_ns() == NOW
    # A node that starts with such a block goes on from it.
    again = machine.node()
    again.begin(lambda: latest)
    machine.wait(5)
    assert 0 <= latest + 5 * SECOND_NS - again.date_ns() < SECOND_NS
    again.look()
    assert again.word == "86399 s behind the last block"


async def test_the_service_compares_the_clocks(machine: Machine, nursery: trio.Nursery) -> None:
    clock = machine.node()
    machine.wall += DAY_NS
    await nursery.start(serve_clock, clock)
    await trio.testing.wait_all_tasks_blocked()
    assert clock.word == "86400 s ahead of the steady clock"
