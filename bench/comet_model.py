"""How long the chain's model holds up blocks of four validators: ``python -m bench.comet_model``.

Each validator generates an answer again before it accepts it, once, when it checks the transaction;
the engine's next commit waits for that check. The model here sleeps instead of computing, so that
four validators on a few cores do not wait for one another's computations. Beside the intervals
between blocks stands what the default model takes for the longest answer and for a training step.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bench.comet import headers
from meshnode.domain.chain.genesis import GenesisFacts
from meshnode.domain.chain.profile import NetworkProfile
from meshnode.services.work.execution import Execution, load_execution
from spec_tests.domain.chain.net import PROFILE
from spec_tests.processes.comet.cluster import cluster
from spec_tests.processes.comet.jobs import Inferences

DEFAULT_MODEL = Path(__file__).parents[1] / "meshnode" / "assets" / "default"
PAUSE_S = 1.0


def intervals(answer_s: float | None, blocks: int) -> dict[str, float]:
    """Seconds between blocks while inferences are answered; without any if that is None."""
    folder = Path(tempfile.mkdtemp(prefix="comet-bench-"))
    profile = replace(PROFILE, limits=replace(PROFILE.limits, finished_jobs=1000))
    with cluster(folder, 4, base=27700, profile=profile) as this:
        this.pause_s = PAUSE_S
        for one in this.validators:
            this.start(one, answer_s=answer_s or 0.0)
        this.wait_height(3)
        inferences = Inferences(this, random.Random(1))  # noqa: S311 - which validator is asked
        if answer_s is not None:
            inferences.start()
        first = this.tip()
        this.wait_height(first + blocks)
        if answer_s is not None:
            inferences.stop()
        times = [time_ns / 1e9 for _, time_ns, _ in headers(this.validators[0], first)]
    shutil.rmtree(folder)
    between = [later - earlier for earlier, later in pairwise(times)]
    return {
        "answers": sum(state == "completed" for state in inferences.ended.values()),
        "median_s": round(statistics.median(between), 2),
        "longest_s": round(max(between), 2),
    }


def real_model() -> dict[str, float]:
    """Processor seconds of the default model for the longest answer, and for a training step."""
    folder = Path(tempfile.mkdtemp(prefix="comet-bench-"))
    execution = load_execution(DEFAULT_MODEL, folder, NetworkProfile())
    facts = execution.genesis_facts()
    prompt = "The node " * 40
    found = {
        "answer_64_tokens_s": _timed(lambda: execution.answer_prompt(facts.model_root, prompt, 64)),
        "training_step_s": _timed(lambda: _step(execution, facts)),
    }
    shutil.rmtree(folder)
    return found


def _step(execution: Execution, facts: GenesisFacts) -> None:
    execution.update(execution.describe_task(0, facts.model_root)["weights"], 0)


def _timed(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return round(time.process_time() - begun, 2)


def main() -> None:
    """Measure, and print a line of JSON for each row."""
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(json.dumps(real_model()), flush=True)
    for answer_s in (None, 0.0, 0.5, 2.0):
        print(json.dumps({"answer_s": answer_s, **intervals(answer_s, blocks)}), flush=True)


if __name__ == "__main__":
    main()
