"""How a test run is spread over the processors.

A run of one or more folders uses one worker more than there are cores, because many tests wait
for processes or time-outs, and every worker computes in one thread. The tests of the suite wait for
answers nearly all the time, so they have some patient workers of their own, which take nothing
else. The tests of one file run in one worker, because fixtures of a module are built once for all
of its tests; except those of the long files that have no such fixtures. A run of single files stays
in this process: starting workers would take longer than such a file does. ``-n 0`` keeps a run of
folders in one process, too; so does ``-p no:xdist``.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController

MAX_WORKERS = 8
"""Any more workers would have nothing to do while the longest file runs."""
PATIENT = 4
"""Workers for the tests of the suite alone, beside the others."""
SUITE = "conformance/tests/"
SPREAD = tuple(
    f"{SUITE}test_{name}.py" for name in ("mutants*", "peculiar_but_allowed", "callback")
)
"""Long files, each of whose tests may run in any worker."""
FIRST = tuple(
    f"{SUITE}test_{name}.py" for name in ("derived_faults", "whole_runs", "peculiar_but_allowed")
)
"""What takes minutes by itself: begun last, it would keep one worker while others rest."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Choose the number of workers before pytest-xdist reads its options."""
    option = config.option
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    if option.numprocesses is None and option.dist == "no" and not option.tx and _many(config):
        option.patient = PATIENT if _has_suite(config) else 0
        usual = min(len(os.sched_getaffinity(0)) + 1, MAX_WORKERS)
        option.numprocesses = usual + option.patient
    if option.numprocesses:
        # The workers inherit it; torch reads it when it is imported.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if option.numprocesses and option.dist == "no":
        option.dist = "loadfile"
    # Start files in the order of collection, not by their number of tests.
    option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests first that take longest, and keep the order of all others."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Keep the tests of a file together, except for those of ``SPREAD``."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return nodeid if any(fnmatch(file, one) for one in SPREAD) else file

        def _assign_work_unit(self, node: WorkerController) -> None:
            """Give a patient worker tests of the suite, and the others those only at last."""
            chosen = self._next(self._is_patient(node))
            if chosen is not None:
                self.workqueue.move_to_end(chosen, last=False)
            elif self._is_patient(node):
                node.shutdown()
                return
            super()._assign_work_unit(node)

        def _next(self, patient: bool) -> str | None:
            of_suite = (scope for scope in self.workqueue if scope.startswith(SUITE) == patient)
            return next(of_suite, None)

        def _is_patient(self, node: WorkerController) -> bool:
            every: int = self.numnodes
            patient = range(every - getattr(config.option, "patient", 0), every)
            return int(node.gateway.id.removeprefix("gw")) in patient

    return ByFile(config, log)


def _many(config: pytest.Config) -> bool:
    """Whether the run is of folders, without ``--collect-only``, ``--pdb`` or ``-s``."""
    option = config.option
    seen = option.collectonly or option.usepdb or option.capture == "no"
    return not seen and any(Path(arg.split("::")[0]).is_dir() for arg in config.args)


def _has_suite(config: pytest.Config) -> bool:
    """Whether the run is of the suite's tests and of others."""
    suite = config.rootpath / SUITE
    folders = [Path(arg.split("::")[0]).resolve() for arg in config.args]
    whole = any(folder != suite and suite.is_relative_to(folder) for folder in folders)
    return whole or (suite in folders and len(folders) > 1)
