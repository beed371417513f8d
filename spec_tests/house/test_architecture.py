"""Which modules may import which (ARCHITECTURE.md). Reads the source; imports nothing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "meshnode").rglob("*.py"))
SUITE = sorted((ROOT / "conformance").rglob("*.py"))
GENERATED = ("_pb2.py", "_grpc.py")
MAX_LINES = 400

LAYERS: dict[str, set[str]] = {
    "domain": set(),
    "model": {"domain"},
    "wire": {"domain"},
    "rpc": {"domain", "wire", "accepting", "newcomers", "tls", "turns"},
    "http": {"domain", "wire", "accepting", "newcomers", "tls", "turns"},
    "services": {
        "domain",
        "model",
        "wire",
        "rpc",
        "http",
        "config",
        "sources",
        "datadir",
        "turns",
        "memory",
    },
    "client": {"domain", "config", "datadir"},
    "edges": {"domain", "wire", "rpc", "http", "services", "config"},
    "doctor": {
        "domain",
        "model",
        "wire",
        "rpc",
        "services",
        "client",
        "config",
        "datadir",
        "descriptors",
        "memory",
        "ports",
        "tls",
    },
}
"""What each folder may import from the others. ``supervise`` is open to services, see below."""

LEAVES: dict[str, set[str]] = {
    "accepting": {"domain"},
    "turns": {"domain"},
    "newcomers": {"accepting", "turns"},
    "config": {"domain"},
    "datadir": {"domain"},
    "descriptors": set(),
    "supervise": {"domain"},
    "tls": {"domain"},
    "logs": set(),
    "memory": {"domain"},
    "ports": {"config", "domain"},
    "banner": set(),
    "sources": {"config", "domain"},
}

ONLY_IN = {
    "purerpc": {"rpc"},
    "hypercorn": {"http"},
    "quart": {"http", "edges"},
    "quart_trio": {"http"},
    "torch": {"model", "services", "train_command"},
    "trio": {
        "rpc",
        "http",
        "services",
        "edges",
        "accepting",
        "newcomers",
        "turns",
        "supervise",
        "tls",
        "assembly",
        "node",
        "cli",
        "client",
        "doctor",
        "watch_command",
    },
    "httpx2": {"client"},
    "opentelemetry": {"services"},
    "trio_websocket": {"client", "services"},
}
"""Libraries, with the only folders and modules that may import them."""

ROOTS = {"node", "assembly", "cli", "__init__", "__main__"}
"""The composition root and the command line (``*_command``, too) may import everything."""

PURE = {"trio", "torch", "socket", "time", "random", "secrets", "datetime", "os", "threading"}
"""Modules that ``domain`` must not import: it gets time and randomness as arguments."""


def part_of(path: Path) -> str:
    """The folder, or the module's own name at the top level."""
    relative = path.relative_to(ROOT / "meshnode")
    return relative.parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> frozenset[str]:
    """All names that a module imports, including imports in functions and for type checking."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports_of(node)


def _imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module:
        assert node.level == 0, f"a relative import of {node.module}"
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> set[str]:
    own = {name.split(".")[1] for name in imports(path) if name.startswith("meshnode.")}
    return own - {part_of(path), "__version__"}


def test_imports_point_one_way() -> None:
    wrong = {}
    for path in MODULES:
        part = part_of(path)
        if part in ROOTS or part.endswith("_command"):
            continue
        assert part in LAYERS | LEAVES, f"{part} has no place in the layers yet"
        allowed = LAYERS.get(part, set()) | LEAVES.get(part, set())
        if part in {"services", "edges"}:
            allowed = allowed | {"supervise"}
        if forbidden := own_imports(path) - allowed:
            wrong[str(path)] = forbidden
    assert not wrong


def test_libraries_stay_in_their_adapters() -> None:
    wrong = []
    for path in MODULES:
        part = part_of(path)
        used = {name.split(".")[0] for name in imports(path)}
        forbidden = {library for library, homes in ONLY_IN.items() if part not in homes}
        if part == "domain":
            forbidden |= PURE
        wrong += [(str(path), library) for library in used & forbidden]
    assert not wrong


def test_edges_and_the_suite_import_what_they_may() -> None:
    """Edges do not import each other; the conformance suite imports nothing of the node."""
    wrong = []
    for paths, forbidden in (
        (sorted((ROOT / "meshnode" / "edges").glob("*.py")), "meshnode.edges."),
        (SUITE, "meshnode."),
    ):
        for path in paths:
            wrong += [(str(path), n) for n in imports(path) if f"{n}.".startswith(forbidden)]
    assert not wrong


def test_only_a_node_that_records_traces_imports_their_libraries() -> None:
    """Nothing imports the package of traces when it is imported itself (decision 0200)."""
    folder, eager = ROOT / "meshnode" / "services" / "tracing", []
    for path in MODULES:
        if path.parent == folder:
            continue
        names = {
            name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in _imports_of(node)
        }
        eager += [(str(path), n) for n in names if "opentelemetry" in n or "services.tracing" in n]
    assert not eager


def test_modules_stay_short() -> None:
    own = [path for path in MODULES if not path.name.endswith(GENERATED)]
    lengths = {str(path): len(path.read_text().splitlines()) for path in own}
    assert not {path: length for path, length in lengths.items() if length > MAX_LINES}


# Circles


def graph() -> dict[str, set[str]]:
    """The modules that each module imports, by full names."""
    names = {path: module_name(path) for path in (*MODULES, *SUITE)}
    known = set(names.values())
    return {name: set(imports(path) & known) - {name} for path, name in names.items()}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder_of(name: str) -> str:
    """The folder of a module: the package within ``services``, else the top-level folder."""
    parts = name.split(".")
    return ".".join(parts[: 3 if parts[:2] == ["meshnode", "services"] else 2])


def folded(modules: Mapping[str, set[str]], fold: Callable[[str], str]) -> dict[str, set[str]]:
    folders: dict[str, set[str]] = defaultdict(set)
    for name, imported in modules.items():
        folders[fold(name)] |= {fold(one) for one in imported} - {fold(name)}
    return folders


def circles(imported: Mapping[str, set[str]]) -> set[tuple[str, ...]]:
    """Circular imports; after each one found, one of its imports is removed for the next search."""
    left = {name: set(others) for name, others in imported.items()}
    found = set()
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = error.args[1][:-1]
            found.add(tuple(sorted(circle)))
            left[circle[1]].discard(circle[0])
        else:
            return found


def test_no_import_goes_in_a_circle() -> None:
    # Imports of a package by its own modules are left out, since packages re-export their names.
    modules = {
        name: {one for one in imported if not name.startswith(f"{one}.")}
        for name, imported in graph().items()
    }
    assert circles(modules) == set()
    assert circles(folded(modules, folder_of)) == set()


def test_circles_are_found() -> None:
    imported = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(imported) == {("a", "b", "c")}
    assert circles({**imported, "c": set()}) == set()


def test_no_two_services_share_a_class_name() -> None:
    homes = defaultdict(list)
    for path in MODULES:
        if part_of(path) == "services":
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(module_name(path))
    shared = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert shared == {}
