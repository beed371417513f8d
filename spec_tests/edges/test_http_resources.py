"""Interface 2.1, resources: measured over a real interval, without waiting for it."""

import os

import psutil
import pytest

from meshnode.services.process import KEPT_S, ProcessGauge


class Machine:
    """A clock and a processor-time counter that a test moves."""

    def __init__(self, gauge_type: type[ProcessGauge], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.used = 7.0
        monkeypatch.setattr(gauge_type, "_cpu_seconds", lambda _: self.used)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def run(self, seconds: float, used: float) -> None:
        self.now += seconds
        self.used += used


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(ProcessGauge, monkeypatch)


def test_the_share_is_of_all_processors(machine: Machine) -> None:
    gauge = ProcessGauge(lambda: machine.now)
    assert gauge.cpu_percent() == 0.0
    machine.run(10, used=20)
    assert gauge.cpu_percent() == 100.0
    machine.run(10, used=5)
    assert gauge.cpu_percent() == 25.0


def test_frequent_readers_do_not_shorten_the_interval(machine: Machine) -> None:
    gauge = ProcessGauge(lambda: machine.now)
    machine.run(5, used=5)
    assert gauge.cpu_percent() == 50.0
    for _ in range(9):
        # Measured alone, such a burst within a tenth of a second would be reported as 100 %.
        machine.run(0.1, used=0.2)
        assert gauge.cpu_percent() < 60.0


def test_an_old_load_is_forgotten(machine: Machine) -> None:
    gauge = ProcessGauge(lambda: machine.now)
    machine.run(10, used=20)
    assert gauge.cpu_percent() == 100.0
    machine.run(2, used=0)
    gauge.cpu_percent()
    machine.run(2, used=0)
    assert gauge.cpu_percent() == 0.0


def test_memory_is_the_resident_set() -> None:
    assert ProcessGauge().ram_used() > 10_000_000


def test_memory_is_not_read_for_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now, readings = 0.0, 0
    gauge = ProcessGauge(clock=lambda: now)
    resident = psutil.Process.memory_info

    def count(process: psutil.Process) -> object:
        nonlocal readings
        readings += 1
        return resident(process)

    monkeypatch.setattr(psutil.Process, "memory_info", count)
    first = gauge.ram_used()
    assert first == gauge.ram_used() > 0
    assert readings == 1
    now = KEPT_S
    gauge.ram_used()
    assert readings == 2
