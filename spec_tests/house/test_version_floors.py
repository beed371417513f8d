"""The documented set-up ends on versions above every advisory that is known to matter here.

An advisory database cannot be reached from every machine, so the floors are kept by hand; the
``audit`` session looks them up where it can.
"""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLOORS = [
    ("h2", "4.4.1", "CVE-2025-57804 (request splitting), CVE-2026-71554"),
    ("h11", "0.16.0", "CVE-2025-43859 (chunked bodies read leniently)"),
    ("hypercorn", "0.18.0", "declares an h2 line that has the fixes"),
    ("jinja2", "3.1.6", "CVE-2025-27516 (sandbox escape)"),
    ("werkzeug", "3.0.6", "CVE-2024-49767 (form parser exhausts memory)"),
    ("flask", "3.1.1", "CVE-2025-47278 (key rotation order)"),
    ("protobuf", "6.31.1", "CVE-2025-4565 (recursion in the pure Python parser)"),
    ("torch", "2.6.0", "CVE-2025-32434 (torch.load)"),
    ("purerpc", "0.8.0", "0.1.6, which pip prefers when nothing is pinned, cannot work"),
]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0]))


@pytest.mark.parametrize(("package", "floor", "reason"), FLOORS)
def test_installed_version_is_at_or_above_its_floor(package: str, floor: str, reason: str) -> None:
    installed = version(package)
    assert numbers(installed) >= numbers(floor), f"{package} {installed} < {floor}: {reason}"


def test_every_declared_dependency_is_installed_in_a_declared_version() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in declared:
        name, operator, floor = re.findall(r"^([\w-]+)(>=|==)([\d.]+)", requirement)[0]
        try:
            installed = numbers(version(name))
        except PackageNotFoundError:
            pytest.fail(f"{name} is declared and not installed")
        wanted = numbers(floor)
        assert installed >= wanted if operator == ">=" else installed == wanted, requirement
