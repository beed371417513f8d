"""requirements.lock is a complete set-up with hashes (tools/lock.py)."""

import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import APART, LOCK, Pinned, read_lock, torch_version

ROOT = Path(__file__).parents[2]
TEXT = LOCK.read_text()
PYTHONS = ("3.11", "3.12", "3.13")


def pinned_for(python: str) -> dict[str, Pinned]:
    """What is installed on Linux with that version of Python."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    entries = [
        entry
        for entry in read_lock(TEXT)
        if not entry.marker or Marker(entry.marker).evaluate(environment)
    ]
    assert len({entry.name for entry in entries}) == len(entries), "one version of each"
    return {entry.name: entry for entry in entries}


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    newer = (ROOT / "requirements-h2.txt").read_text().splitlines()
    return [Requirement(line) for line in (*lines, *newer) if not line.startswith("#")]


def test_every_dependency_is_pinned_in_a_declared_version() -> None:
    assert next(entry for entry in declared() if entry.name == "torch").specifier.contains(
        torch_version(TEXT)
    )
    assert f"torch=={torch_version(TEXT)} " in (ROOT / "README.md").read_text()
    for python in PYTHONS:
        pinned = pinned_for(python)
        missing = [
            str(entry)
            for entry in declared()
            if entry.name != "torch"
            and not (entry.name in pinned and entry.specifier.contains(pinned[entry.name].version))
        ]
        assert missing == [], f"python -m tools.lock makes it again ({python})"


def test_what_the_dependencies_need_is_pinned_too() -> None:
    """As far as their metadata is installed here; purerpc's own range of h2 is too old."""
    wrong = []
    pinned = pinned_for("3.11")
    for name, entry in pinned.items():
        try:
            needed = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            continue
        for need in needed:
            other = canonicalize_name(need.name)
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
            if not applies or APART.fullmatch(other) or (name, other) == ("purerpc", "h2"):
                continue
            found = pinned.get(other)
            if found is None or not need.specifier.contains(found.version, prereleases=True):
                wrong.append(f"{entry.name}: {need}")
    assert wrong == []


def test_every_package_has_hashes_and_no_source_is_named() -> None:
    entries = list(read_lock(TEXT))
    assert len(entries) == sum("==" in line for line in TEXT.splitlines()[2:])
    assert [entry.name for entry in entries if not entry.hashes] == []
    assert "://" not in TEXT
    assert "--index" not in TEXT
    assert "--find-links" not in TEXT
