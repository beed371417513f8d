"""Nodes that train, each on a host of its own, watched without a byte over the interface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from bench.netem import IP, Host
from bench.node_process import NO_LIMITS, TOKEN

PORT = 8000
MEMORY_GB = psutil.virtual_memory().total / 2**30 / 4
"""That a node may use: the machine has four of them."""


@dataclass(frozen=True, slots=True)
class Training:
    """How the nodes train."""

    model: str
    text: Path
    steps: int
    """H."""
    batch: int
    rate: float
    gradients: str
    upload_mib: float = 0.0
    """``training.upload_mib``."""


class LabNode:
    """A node on a host, which may be killed and started again."""

    def __init__(self, host: Host, folder: Path, training: Training, tracker: str) -> None:
        """``tracker`` is the URL of a node of the network, or empty."""
        self.host = host
        self.folder = folder
        self.url = f"http://{host.address}:{PORT}"
        self._training = training
        self._tracker = tracker
        self._process: subprocess.Popen[str] | None = None
        self._cpu_before = 0.0
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        """Start it for the first time."""
        self.folder.mkdir()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.kill()

    def start(self) -> None:
        """Start the process, and wait until it is ready."""
        training = self._training
        command = self.host.command(sys.executable, "-m", "meshnode", "--port", str(PORT))
        command += ["--host", self.host.address, "--data-dir", str(self.folder / "data")]
        command += ["--tracker", self._tracker] if self._tracker else []
        command += ["--model", training.model] if training.model else []
        variables = {
            "MESHNODE_TOKEN": TOKEN,
            "MESHNODE_RESOURCES_CPU_THREADS": "1",
            "MESHNODE_RESOURCES_MAX_MEMORY_GB": f"{MEMORY_GB:.1f}",
            "MESHNODE_TRAINING_TEXT": str(training.text),
            "MESHNODE_TRAINING_DILOCO_STEPS": str(training.steps),
            "MESHNODE_TRAINING_BATCH_SIZE": str(training.batch),
            "MESHNODE_TRAINING_LEARNING_RATE": str(training.rate),
            "MESHNODE_TRAINING_GRADIENTS": training.gradients,
            "MESHNODE_TRAINING_UPLOAD_MIB": str(training.upload_mib),
            # Otherwise each loads a second copy of the weights after every round.
            "MESHNODE_TRAINING_SERVE": "off",
            "OMP_NUM_THREADS": "1",
        }
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **NO_LIMITS, **variables},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        if self._process.stdout is None or "ready in" not in self._process.stdout.readline():
            raise RuntimeError(f"a node did not start: see {self.folder / 'log'}")

    def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        if self._process is not None:
            self._cpu_before = self.cpu_s
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    @property
    def cpu_s(self) -> float:
        """Processor time of all its processes so far, and the peak of its memory is noted."""
        if self._process is None:
            return self._cpu_before
        whole = psutil.Process(self._process.pid)
        spent = self._cpu_before
        resident = 0
        for process in (whole, *whole.children(recursive=True)):
            try:
                times = process.cpu_times()
                resident += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            spent += times.user + times.system
        self.peak_bytes = max(self.peak_bytes, resident)
        return spent

    @property
    def sent_bytes(self) -> int:
        """Bytes that have left through the host's interface, packets' headers included."""
        command = [IP, "-n", self.host.namespace, "-s", "-j", "link", "show", "eth0"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return int(json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"])

    def state(self) -> dict[str, Any]:
        """``/api/training/status``; empty while it does not answer. It costs no byte of eth0."""
        try:
            found: dict[str, Any] = self._ask("/api/training/status")
        except (subprocess.CalledProcessError, ValueError):
            return {}
        return found

    def train(self) -> None:
        """Switch training on, as an operator would."""
        body = json.dumps({"training": {"enabled": True}})
        self._ask("/api/v1/config", "-X", "PATCH", "--data", body)

    def peers(self) -> int:
        """How many other nodes it knows."""
        return int(self._ask("/api/v1/peers")["total"])

    def _ask(self, path: str, *arguments: str) -> Any:
        headers = ("-H", f"Authorization: Bearer {TOKEN}", "-H", "Content-Type: application/json")
        command = self.host.command("curl", "-sSf", "-m", "60", *headers, *arguments)
        done = subprocess.run(
            [*command, self.url + path], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout)
