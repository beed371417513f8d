"""Who may import whom (ARCHITECTURE.md). Reads the source; imports nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "meshnode").rglob("*.py"))
GENERATED = ("_pb2.py", "_grpc.py")
LONGEST = 400

LAYERS = {
    "domain": set(),
    "model": {"domain"},
    "wire": {"domain"},
    "rpc": {"domain", "wire"},
    "http": {"domain", "wire"},
    "services": {"domain", "model", "wire", "rpc", "http", "config", "sources", "datadir"},
    "client": {"domain", "config", "datadir"},
    "edges": {"domain", "wire", "rpc", "http", "services", "config"},
}
"""What each folder may import from the others. ``supervise`` is open to services, see below."""

LEAVES = {
    "config": {"domain"},
    "datadir": {"domain"},
    "supervise": {"domain"},
    "logs": set(),
    "banner": set(),
    "sources": {"config", "domain"},
}

ONLY_IN = {
    "purerpc": {"rpc"},
    "hypercorn": {"http"},
    "quart": {"http", "edges"},
    "quart_trio": {"http"},
    "torch": {"model", "services", "train_command"},
    "trio": {"rpc", "http", "services", "edges", "supervise", "assembly", "node", "cli"},
}
"""Libraries that are an adapter's own business."""

PURE = {"trio", "torch", "socket", "time", "random", "secrets", "datetime", "os", "threading"}
"""What ``domain`` must not touch: time and randomness are arguments there."""


def part_of(path: Path) -> str:
    """The folder, or the module's own name at the top level."""
    relative = path.relative_to(ROOT / "meshnode")
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> set[str]:
    own = {name.split(".")[1] for name in imports(path) if name.startswith("meshnode.")}
    return own - {part_of(path), "__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part in {"node", "assembly", "cli", "__init__", "__main__"} or part.endswith("_command"):
        return  # the composition root and the command line may import everything
    allowed = LAYERS.get(part, LEAVES.get(part))
    assert allowed is not None, f"{part} has no place in the layers yet"
    if part in {"services", "edges"}:
        allowed = allowed | {"supervise"}
    assert own_imports(path) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_stay_in_their_adapters(path: Path) -> None:
    part = part_of(path)
    used = {name.split(".")[0] for name in imports(path)}
    for library, homes in ONLY_IN.items():
        assert library not in used or part in homes, f"{library} in {part}"
    if part == "domain":
        assert not used & PURE


def test_edges_do_not_import_each_other() -> None:
    for path in (ROOT / "meshnode" / "edges").glob("*.py"):
        others = [name for name in imports(path) if name.startswith("meshnode.edges.")]
        assert others == [], path


def test_the_conformance_suite_knows_nothing_of_ours() -> None:
    for path in (ROOT / "conformance").rglob("*.py"):
        assert not [n for n in imports(path) if n.split(".")[0] == "meshnode"], path


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_short(path: Path) -> None:
    if not path.name.endswith(GENERATED):
        assert len(path.read_text().splitlines()) <= LONGEST
