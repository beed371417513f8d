"""Installs and starts a known implementation, and yields it as a target."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.sut import Recipe
from conformance.target import GRPC_PORT_OFFSET, BadConfiguration

STOP_WITHIN_S = 20.0
# How much of a log a failure shows.
SHOWN_LINES = 15
DONE = "installed"
# From these, two ports that are GRPC_PORT_OFFSET apart are looked for.
PORTS = range(20000, 60000, 37)


def home_of(recipe: Recipe, cache: Path) -> Path:
    """Return the folder of the implementation's environment."""
    return cache / "sut" / f"{recipe.name}-{recipe.version}"


def install(recipe: Recipe, cache: Path, source: Path | None) -> Path:
    """Install an implementation once, and return its interpreter.

    Raises `BadConfiguration` if pip fails; its own words are on standard error.
    """
    if not recipe.install:
        return Path(sys.executable)
    home = home_of(recipe, cache)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    # An implementation from a checkout is installed again, because the checkout may have changed.
    if (home / DONE).exists() and source is None:
        return python
    venv.create(home, with_pip=True, clear=not (home / DONE).exists())
    for call in recipe.install:
        words = [_filled(word, {"source": str(source)}) for word in call]
        print(f"pip install {' '.join(words)}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *words], stdout=sys.stderr, check=False
        )
        if done.returncode:
            raise BadConfiguration(f"pip could not install {recipe.name}: exit {done.returncode}")
    (home / DONE).write_text("", encoding="utf-8")
    return python


@contextmanager
def started(recipe: Recipe, python: Path, source: Path | None) -> Iterator[dict[str, Any]]:
    """Start an implementation, yield the settings of its target when it answers, then stop it.

    Raises `BadConfiguration` with the end of its log if it ends or stays silent.
    """
    port, token = _free_port(), secrets.token_hex(16)
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="sut-", ignore_cleanup_errors=True) as folder:
        data = Path(folder)
        known = {
            "port": str(port),
            "token": token,
            "data": folder,
            "bin": str(python.parent),
            "python": str(python),
            "source": str(source),
            "file": _file(recipe, python),
        }
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            **_importable(recipe),
            **{name: _filled(value, known) for name, value in recipe.environment.items()},
            "HOME": folder,
            "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        log = data / "log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [_filled(word, known) for word in recipe.start],
                cwd=folder, env=environment, stdout=written, stderr=written,
            )  # fmt: skip
        try:
            _wait(recipe, process, url, log)
            yield {**recipe.target, "url": url, "token": token}
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _importable(recipe: Recipe) -> dict[str, str]:
    """Let a part of the suite itself be found where the suite runs from a checkout or one file."""
    home = Path(__file__).parents[2]
    return {} if recipe.install else {"PYTHONPATH": str(home)}


def _filled(word: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _file(recipe: Recipe, python: Path) -> str:
    if recipe.file is None:
        return ""
    found = sorted(python.parents[1].glob(f"lib/python*/site-packages/{recipe.file}"))
    if not found:
        raise BadConfiguration(f"{recipe.name}: no file {recipe.file} is installed")
    return str(found[0])


def _free_port() -> int:
    for port in PORTS:
        try:
            for number in (port, port + GRPC_PORT_OFFSET):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port
    raise BadConfiguration("no two free ports that are 1000 apart")


def _wait(recipe: Recipe, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    ends = time.monotonic() + recipe.ready_s
    while time.monotonic() < ends:
        if process.poll() is not None:
            raise BadConfiguration(f"{recipe.name} ended with {process.returncode}:\n{_end(log)}")
        try:
            with urllib.request.urlopen(url + recipe.ready, timeout=5):  # noqa: S310 - our own URL
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)
    raise BadConfiguration(
        f"{recipe.name} does not answer after {recipe.ready_s:g} s:\n{_end(log)}"
    )


def _end(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LINES:])
