"""Rules of this package: no bare assert, no import of an implementation, current generated code."""

import ast
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import conformance
from conformance import codegen
from conformance.grpcwire import CHANNEL_OPTIONS
from conformance.messagefile import MAX_MESSAGE_BYTES

HOME = Path(conformance.__file__).parent
# Tests, what a build leaves behind, and the node of a stranger, which is kept as it was written.
OTHERS = {"tests", "build", "second", "third", "fifth"}
MODULES = sorted(
    path for path in HOME.rglob("*.py") if not OTHERS & {*path.relative_to(HOME).parts}
)
# What the package may import besides the standard library and itself.
ALLOWED = {"conformance", "google", "grpc", "hypothesis", "yaml"}
ONLY_IN = {
    "pytest": {"pytest_plugin.py", "conftest.py", "test_target.py"},
    "grpc_tools": {"codegen.py"},
}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOME)))
def test_a_module_has_no_bare_assert(path: Path) -> None:
    # An assert would hide which sentence failed; a check records findings instead.
    lines = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert lines == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOME)))
def test_a_module_imports_nothing_of_any_implementation(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").split(".")[0])
    foreign = imported - ALLOWED - set(sys.stdlib_module_names)
    assert {name for name in foreign if path.name not in ONLY_IN.get(name, set())} == set()


def _module_name(path: Path) -> str:
    parts = path.relative_to(HOME.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _imports() -> dict[str, set[str]]:
    """Return what each module imports of the package, inside functions too."""
    names = {_module_name(path) for path in MODULES}
    imported: dict[str, set[str]] = {}
    for path in MODULES:
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= members & names
                found |= set() if members <= names else {node.module or ""}
        imported[_module_name(path)] = found & names
    return imported


def test_no_module_imports_one_that_imports_it() -> None:
    TopologicalSorter(_imports()).prepare()  # raises CycleError and names the circle


# What an installation starts.
STARTED = ("conformance.cli", "conformance.pytest_plugin", "conformance.judging.toy.__main__")


def test_whatever_is_imported_is_installed() -> None:
    settings = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
    packages = set(settings["tool"]["setuptools"]["packages"])
    imports, reached, todo = _imports(), set[str](), list(STARTED)
    while todo:
        module = todo.pop()
        if module not in reached:
            reached.add(module)
            todo += imports[module]
    lacking = {module for module in reached if not {module, module.rpartition(".")[0]} & packages}
    assert lacking == set()
    assert len(reached) > len(STARTED) + len(packages)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOME)))
def test_a_module_stays_under_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 400


def test_the_generated_descriptor_is_that_of_the_proto_file() -> None:
    pytest.importorskip("grpc_tools")
    written = (HOME / "node_descriptor.py").read_text(encoding="utf-8")
    assert written == codegen.generate(HOME / "proto" / "node.proto"), "run conformance.codegen"


def test_the_channel_keeps_the_limits_that_the_document_sets_for_clients() -> None:
    options = dict(CHANNEL_OPTIONS)
    assert MAX_MESSAGE_BYTES == 100 * 1024 * 1024
    assert options["grpc.max_send_message_length"] == MAX_MESSAGE_BYTES
    assert options["grpc.max_receive_message_length"] == MAX_MESSAGE_BYTES
    assert options["grpc.keepalive_time_ms"] == 30_000
    assert options["grpc.keepalive_timeout_ms"] == 10_000
    assert options["grpc.keepalive_permit_without_calls"] == 1
