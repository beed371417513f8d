"""2.1, 2.3, 4.3: processes that train together have the same weights after every round."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spec_tests.support_model import make_model
from spec_tests.support_process import wait_until
from spec_tests.support_training_process import DIES, TrainingProcesses, death


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "model", initializer_range=0.05)


@pytest.fixture
def processes(tmp_path: Path, model: Path) -> Iterator[TrainingProcesses]:
    with ExitStack() as stack:
        yield TrainingProcesses(tmp_path, model, stack)


def test_a_joiner_a_straggler_and_a_leaver(processes: TrainingProcesses) -> None:
    first, second = processes.start("a"), processes.start("b")
    version = processes.wait_rounds(2)
    assert processes.verdict(first)["is_working"] is True

    # Late joiners agree within one round of theirs.
    joiners = [processes.start("c"), processes.start("d")]
    wait_until(lambda: processes.training(first)["total_nodes_training"] == 4, 60)
    version = processes.wait_rounds(2)
    for node in processes.nodes:
        found = processes.training(node)
        assert found["total_nodes_training"] == 4
        assert found["global_steps"] > 0
        assert found["global_tokens"] == 4 * 128 * found["global_steps"]
        assert found["data_shards_covered"] == list(range(16))

    # One that hangs is waited for no longer than a round may last, and is back afterwards.
    straggler = joiners[0]
    others = [node for node in processes.nodes if node is not straggler]
    straggler.signal(signal.SIGSTOP)
    try:
        processes.wait_agreed(version + 1, *others)
    finally:
        straggler.signal(signal.SIGCONT)
    processes.wait_rounds(2)

    # Gradients add up: what was accepted somewhere was submitted by somebody.
    def quiet() -> bool:
        figures = [processes.metrics(node)["training"] for node in processes.nodes]
        submitted = sum(one["gradients_submitted"] for one in figures)
        return submitted == sum(one["gradients_accepted"] for one in figures) > 8

    wait_until(quiet, 60)

    # One that is told to stop, and one whose operator switches its training off.
    joiners[1].signal(signal.SIGTERM)
    assert joiners[1].wait()[0] == 0
    processes.gone(joiners[1])
    changed = second.ask("PATCH", "/api/v1/config", {"training": {"enabled": False}}).json
    assert changed == {"success": True, "updated": ["training.enabled"], "restart_required": False}
    rest = [first, straggler]
    wait_until(lambda: processes.training(first)["total_nodes_training"] == 2, 60)
    processes.wait_rounds(2, *rest)
    assert processes.training(second)["local"]["is_training"] is False
    second.ask("PATCH", "/api/v1/config", {"training": {"enabled": True, "diloco_steps": 2}})
    processes.wait_rounds(1)
    assert processes.training(second)["diloco"]["inner_steps_total"] == 2


def test_a_kill_in_each_state_loses_nothing(processes: TrainingProcesses) -> None:
    processes.start("a")
    version = processes.wait_rounds(1)
    for state in DIES:
        # To fetch it must be behind: as it is when it comes, and after each death.
        victim = processes.start("b", prelude=death(state))
        assert wait_until(lambda one=victim: one.process.poll(), 60) == -signal.SIGKILL, state
        processes.gone(victim)
    back = processes.start("b")
    version = processes.wait_rounds(2)
    assert version > 2
    assert "Traceback" not in back.log()
    submitted = processes.metrics(processes.nodes[0])["training"]["gradients_submitted"]
    assert submitted > 0


def test_bytes_on_the_network_are_those_of_the_contributions(processes: TrainingProcesses) -> None:
    nodes = [processes.start("a"), processes.start("b")]
    processes.wait_rounds(1)
    sizes = 4 * processes.info(nodes[0]).params

    def measured() -> list[tuple[int, int]]:
        return [
            (one["training"]["gradients_submitted"], one["network"]["bytes_sent"])
            for one in map(processes.metrics, nodes)
        ]

    before = measured()
    processes.wait_rounds(2)
    for (sent_before, bytes_before), (sent, sent_bytes) in zip(before, measured(), strict=True):
        count = sent - sent_before
        assert count >= 1
        assert sent_bytes - bytes_before == pytest.approx(count * sizes, rel=0.4)


def test_training_without_its_text_says_so_and_serves_on(
    processes: TrainingProcesses, tmp_path: Path
) -> None:
    node = processes.start("a", MESHNODE_TRAINING_TEXT=str(tmp_path / "none"))
    found = wait_until(lambda: _problem(processes.verdict(node)), 30)
    assert "shorter than two sequences" in found["reason"]
    assert found["is_working"] is False
    assert "again" in found["action"]
    # More than one crash of a service would have used up its restarts by then.
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.txt").write_text((processes.text / "sums.txt").read_text())
    begun = time.monotonic()
    processes.wait_agreed(1)
    assert time.monotonic() - begun < 60
    assert processes.verdict(node)["is_working"] is True


def _problem(verdict: dict) -> dict:
    return verdict if "sequences" in verdict["reason"] else {}
