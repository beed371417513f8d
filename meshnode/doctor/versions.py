"""Python, and the libraries that this release asks for."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator

from meshnode import __version__
from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning

CHECK = "versions"
PYTHON = (3, 11)
INSTALL = "install again: pip install -e . && pip install --no-deps -r requirements-h2.txt"
H2 = ("h2", ">=3.2")
"""Brought by purerpc and installed beside it (decision 0001)."""

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)([^;]*)")
_BOUND = re.compile(r"(>=|==|<|>)([0-9][0-9.]*)")


def check(_: Examination) -> Iterator[Finding]:
    """Compare what is installed with what the package's metadata asks for."""
    python = platform.python_version()
    if sys.version_info < PYTHON:
        yield fault(CHECK, f"Python {python}", "meshnode needs Python 3.11 or later")
    else:
        yield ok(CHECK, f"meshnode {__version__}, Python {python}, {platform.system()}")
    try:
        required = importlib.metadata.requires("meshnode") or []
    except importlib.metadata.PackageNotFoundError:
        yield warning(CHECK, "meshnode is not installed: its libraries are not checked", INSTALL)
        return
    wanted = [_parsed(text) for text in required if "extra ==" not in text]
    wrong = list(_wrong([*wanted, H2]))
    yield from wrong
    if not wrong:
        versions = {name: importlib.metadata.version(name) for name in ("torch", "trio", "h2")}
        named = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield ok(CHECK, f"{len(wanted) + 1} libraries as required; {named}")


def _wrong(wanted: list[tuple[str, str]]) -> Iterator[Finding]:
    for name, bounds in wanted:
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield fault(CHECK, f"the library {name} is not installed", INSTALL)
            continue
        if not satisfies(found, bounds):
            yield fault(CHECK, f"{name} {found} does not satisfy {bounds}", INSTALL)


def satisfies(version: str, bounds: str) -> bool:
    """Whether a release satisfies bounds such as ``>=2.11,<2.14``; local parts do not count."""
    found = _numbers(version)
    for sign, text in _BOUND.findall(bounds):
        bound = _numbers(text)
        width = max(len(found), len(bound))
        ours, theirs = (one + (0,) * (width - len(one)) for one in (found, bound))
        holds = {">=": ours >= theirs, "==": ours == theirs, "<": ours < theirs, ">": ours > theirs}
        if not holds[sign]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _parsed(requirement: str) -> tuple[str, str]:
    match = _REQUIREMENT.match(requirement)
    return (match[1], match[2].strip()) if match else (requirement, "")
