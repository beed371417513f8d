"""Compiling the kernels on the machine that runs them, once (decision 0150).

The library is plain C++ behind a C interface, so it depends neither on Python's version nor on
torch's. It lies in the user's cache folder under a name that is derived from the sources, the
compiler and its options, so that an update compiles it again and two nodes share it.

An image, whose users should need no compiler, brings the libraries along: :func:`bring` compiles
one for each kind of processor into the package, and they come before the user's folder.

Nothing here fails a start: without a compiler, or on a processor without AVX2, there is no library,
and a reason in one line.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

SOURCE = Path(__file__).parent / "source"
MAIN = "library.cpp"
COMPILERS = ("c++", "g++", "clang++")
OPTIONS = (
    *("-O3", "-std=c++20", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden"),
    # Equal inputs must give equal bits on every machine: nothing is contracted or reordered.
    *("-ffp-contract=off", "-fno-math-errno"),
    *("-mavx2", "-mfma", "-mf16c"),
)
HERE = "-mtune=native"
"""For the processor that compiles; it changes the order of instructions, and no result."""
BROUGHT = Path(__file__).parent / "built"
"""Libraries that came with the package."""
COMPILE_S = 300.0
"""Seconds after which a compiler is given up; it takes 5 to 20."""
_FLAGS = {
    "avx512_vnni": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
    "avx_vnni": ("-mavxvnni",),
}
"""Wider vectors, each lane of which does the same, and instructions that add four products of bytes
exactly: results stay the same to the bit."""


class NoKernels(Exception):
    """There is no library of kernels; the message says why, in a line."""


def library_path() -> Path:
    """The compiled library, which is compiled now unless it is there. Raises NoKernels.

    Blocks for up to ``COMPILE_S``.
    """
    if os.environ.get("MESHNODE_KERNELS", "") == "torch":
        raise NoKernels("MESHNODE_KERNELS is torch")
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        raise NoKernels("the processor has no AVX2")
    options = (*OPTIONS, *_processor_options())
    brought = _brought(options)
    if brought.exists():
        return brought
    compiler = _compiler()
    command = [compiler, *options, HERE]
    path = _cache_folder() / f"kernels-{_digest([*command, _version(compiler)])}.so"
    if not path.exists():
        _compile(command, path)
    return path


def bring() -> list[Path]:
    """Compile a library for each kind of processor into the package. Raises NoKernels, OSError."""
    BROUGHT.mkdir(exist_ok=True)
    made = []
    for extra in ((), *_FLAGS.values()):
        options = (*OPTIONS, *extra)
        _compile([_compiler(), *options], _brought(options))
        made.append(_brought(options))
    return made


def _brought(options: Sequence[str]) -> Path:
    return BROUGHT / f"kernels-{_digest(options)}.so"


def _compiler() -> str:
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), *COMPILERS))), None)
    if compiler is None:
        raise NoKernels("there is no C++ compiler")
    return compiler


def _processor_options() -> tuple[str, ...]:
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("flags")[2]
    except OSError:
        return ()
    present = set(flags.partition("\n")[0].split())
    return next((options for name, options in _FLAGS.items() if name in present), ())


def _version(compiler: str) -> str:
    try:
        answer = subprocess.run([compiler, "--version"], capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        raise NoKernels(f"{compiler} does not run") from None
    return answer.stdout.decode(errors="replace")


def _digest(words: Sequence[str]) -> str:
    """A name for what is compiled from the sources with ``words``."""
    digest = hashlib.sha256("\0".join(words).encode())
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """The user's cache folder, which nobody else may write to. Raises NoKernels."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if base else Path.home() / ".cache") / "meshnode"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):
        raise NoKernels(f"{folder} cannot be made") from None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise NoKernels(f"others may write to {folder}")
    return folder


def _compile(command: list[str], path: Path) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / path.name
            subprocess.run(
                [*command, str(SOURCE / MAIN), "-o", str(made)],
                capture_output=True,
                check=True,
                timeout=COMPILE_S,
            )
            # Two nodes may compile at once: each replaces the file as a whole.
            made.replace(path)
    except (OSError, subprocess.SubprocessError):
        raise NoKernels(f"{command[0]} could not compile the kernels") from None
