"""Writes requirements.lock: the recommended set-up, with a version and hashes for each package.

``python -m tools.lock`` needs the ``lock`` extra and a package index. The file has names, versions
and hashes only, so any index or mirror can serve it, and pip refuses a file that differs:

    pip install --no-deps torch==VERSION
    pip install --no-deps --require-hashes -r requirements.lock
    pip install --no-deps --no-build-isolation -e .

torch is left out. Its wheels for one version differ by platform and by accelerator, they come from
several indexes, and a CPU wheel of another index than the one that was locked would be refused. The
first line of the file names its version; what a CPU wheel needs beside itself is in the file, and
what only wheels for CUDA need is not. ``--no-deps`` is needed because purerpc declares an older h2
(decision 0001); a test checks instead that the file is complete.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
OLDEST_PYTHON = "3.11"

APART = re.compile(r"torch|triton|(?:nvidia|cuda)-.*")
"""Packages that are left out: torch, and what only its wheels for CUDA need."""

_PINNED = re.compile(r"([a-z0-9-]+)==([^ ;]+)(?: ; ([^\\]+))? \\")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_HEAD = """\
# torch=={torch}, which is installed before the rest; tools/lock.py says why it is not among it.
# Made by "python -m tools.lock"; installed with "pip install --no-deps --require-hashes -r".
"""


@dataclass(frozen=True, slots=True)
class Pinned:
    """One package in the file."""

    name: str
    version: str
    marker: str
    """When it is needed; empty for always."""
    hashes: int
    """How many files the hashes allow."""


def read_lock(text: str) -> Iterator[Pinned]:
    """The packages in a file of requirements with hashes."""
    for block in _blocks(text):
        match = _PINNED.match(block)
        if match is not None:
            yield Pinned(match[1], match[2], (match[3] or "").strip(), len(_HASH.findall(block)))


def torch_version(text: str) -> str:
    """The version of torch that a file made by :func:`main` names."""
    return text.partition("torch==")[2].partition(",")[0]


def main() -> int:
    """Resolve the project's dependencies, and write the file."""
    text = _resolve()
    torch = next(pinned.version for pinned in read_lock(text) if pinned.name == "torch")
    kept = [block for block in _blocks(text) if not APART.fullmatch(block.partition("==")[0])]
    LOCK.write_text(_HEAD.format(torch=torch.partition("+")[0]) + "".join(kept))
    print(f"lock: {len(kept)} packages in {LOCK.name}")
    return 0


def _resolve() -> str:
    options = ["--universal", "--generate-hashes", "--no-header", "--annotation-style", "line"]
    options += ["--python-version", OLDEST_PYTHON, "pyproject.toml", "-"]
    building = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", "--quiet", *options],
        input="\n".join(building),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def _blocks(text: str) -> list[str]:
    """The lines of each package; comments before the first one are left out."""
    return re.findall(r"^[a-z0-9].*\n(?:[ \t].*\n)*", text, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
