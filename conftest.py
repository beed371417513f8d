"""How a test run is spread over the processors.

A run of one or more folders uses one worker more than there are cores, because many tests wait
for processes or time-outs, and every worker computes in one thread. The tests of one file always
run in one worker, because fixtures of a module are built once for all of its tests. A run of
single files stays in this process: starting workers would take longer than such a file does.
``-n 0`` keeps a run of folders in one process, too; so does ``-p no:xdist``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MAX_WORKERS = 8
"""Any more workers would have nothing to do while the longest file runs."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Choose the number of workers before pytest-xdist reads its options."""
    option = config.option
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    if option.numprocesses is None and option.dist == "no" and not option.tx and _many(config):
        option.numprocesses = min(len(os.sched_getaffinity(0)) + 1, MAX_WORKERS)
    if option.numprocesses:
        # The workers inherit it; torch reads it when it is imported.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if option.numprocesses and option.dist == "no":
        option.dist = "loadfile"
    # Start files in the order of collection, not by their number of tests.
    option.loadscopereorder = False


def _many(config: pytest.Config) -> bool:
    """Whether the run is of folders, without ``--collect-only``, ``--pdb`` or ``-s``."""
    option = config.option
    seen = option.collectonly or option.usepdb or option.capture == "no"
    return not seen and any(Path(arg.split("::")[0]).is_dir() for arg in config.args)
