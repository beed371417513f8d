"""The strangers' nodes: their lists can be read, and name what they switch."""

import re
import shutil
import socket
import subprocess

import pytest

from conformance.judging.stranger.judge import SOUND, Switch, judge
from conformance.judging.stranger.strangers import STRANGERS, Stranger

KINDS = {"effects", "fields", "guards", "limits", "numbers", "refusals", "relations", "routes"}
(
    FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, ELEVENTH, TWELFTH,
    THIRTEENTH, FOURTEENTH, FIFTEENTH, SIXTEENTH, SEVENTEENTH, EIGHTEENTH, NINETEENTH,
) = STRANGERS.values()  # fmt: skip
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not on the PATH")
needs_ruby = pytest.mark.skipif(shutil.which("ruby") is None, reason="Ruby is not on the PATH")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not on the PATH")


@needs_node
def test_peculiarities_are_listed_once_and_used() -> None:
    listed = FIRST.lists()["peculiar"]
    assert len(listed) == len(set(listed)) == 82
    code = "".join(file.read_text(encoding="utf-8") for file in sorted(FIRST.node.glob("*.js")))
    assert [ident for ident in listed if f"'{ident}'" not in code] == []


@needs_node
def test_faults_have_kinds() -> None:
    found = FIRST.lists()["faults"]
    assert len(found) == 602 + 218
    assert set(FIRST.allowed()) < set(found)
    assert set(found.values()) == KINDS


@pytest.mark.parametrize(
    ("node", "faults", "peculiar"),
    [(SECOND, 1204 + 243, 144), (THIRD, 338 + 411, 84), (FIFTH, 361 + 165 + 139, 44)],
    ids=["second", "third", "fifth"],
)
def test_a_python_node_lists_what_it_can_be_switched_to(
    node: Stranger, faults: int, peculiar: int
) -> None:
    lists = node.lists()
    assert len(lists["faults"]) == faults
    assert len(set(lists["peculiar"])) == len(lists["peculiar"]) == peculiar
    assert set(lists["faults"].values()) == KINDS
    assert set(node.allowed()) <= set(lists["faults"])


@needs_go
@pytest.mark.slow
def test_the_node_in_go_lists_what_it_can_be_switched_to() -> None:
    subprocess.run(FOURTH.build, cwd=FOURTH.node, check=True)
    lists = FOURTH.lists()
    assert len(lists["faults"]) == 392 + 152
    assert len(set(lists["peculiar"])) == len(lists["peculiar"]) == 112
    assert set(lists["faults"].values()) == KINDS
    assert set(FOURTH.allowed()) <= set(lists["faults"])


@needs_ruby
def test_the_node_in_ruby_lists_what_it_can_be_switched_to() -> None:
    lists = SIXTH.lists()
    assert len(lists["faults"]) == 287
    assert len(set(lists["peculiar"])) == len(lists["peculiar"]) == 44
    assert set(lists["faults"].values()) == KINDS
    assert set(SIXTH.allowed()) <= set(lists["faults"])


def test_the_node_in_perl_lists_what_it_can_be_switched_to() -> None:
    packages = ("-MMojolicious", "-MProtocol::HTTP2", "-MCrypt::PK::ECC", "-MCpanel::JSON::XS")
    perl = shutil.which("perl")
    if not perl or subprocess.run([perl, *packages, "-e", "1"], capture_output=True).returncode:
        pytest.skip("Perl, or one of its packages, is not here")
    lists = TWELFTH.lists()
    assert len(lists["faults"]) == 754
    assert len(set(lists["peculiar"])) == len(lists["peculiar"]) == 70
    assert set(lists["faults"].values()) == KINDS - {"numbers"} | {"grpc"}
    assert set(TWELFTH.allowed()) <= set(lists["faults"])


@pytest.mark.parametrize(
    ("node", "faults", "peculiar", "used"),
    [
        (THIRTEENTH, 841, 60, "({})"),
        (FIFTEENTH, 861, 79, '"{}"'),
        (SIXTEENTH, 719, 73, ":{})"),
        (SEVENTEENTH, 954, 53, 'p "{}"'),
        (EIGHTEENTH, 1087, 54, "{}"),
        (NINETEENTH, 1248, 46, "{}"),
    ],
    ids=["erlang", "c-sharp", "lisp", "ocaml", "nim", "d"],
)
def test_a_node_with_tables_lists_what_it_can_be_switched_to(
    node: Stranger, faults: int, peculiar: int, used: str
) -> None:
    lists = node.lists()
    assert len(lists["faults"]) == faults
    assert len(set(lists["peculiar"])) == len(lists["peculiar"]) == peculiar
    assert set(lists["faults"].values()) == (KINDS - {"numbers"}) | {"grpc"}
    assert set(node.allowed()) <= set(lists["faults"])
    code = "".join(path.read_text("utf-8") for path in sorted(node.node.glob("src/*")))
    assert [ident for ident in lists["peculiar"] if used.format(ident) not in code] == []


@pytest.mark.skipif(shutil.which("php") is None, reason="PHP is not on the PATH")
def test_the_node_in_php_lists_what_it_can_be_switched_to() -> None:
    lists = FOURTEENTH.lists()
    assert len(lists["faults"]) == 1180
    assert len(set(lists["peculiar"])) == len(lists["peculiar"]) == 116
    assert set(lists["faults"].values()) == (KINDS - {"numbers"}) | {"grpc"}
    assert set(FOURTEENTH.allowed()) <= set(lists["faults"])


def test_each_stranger_has_a_first_port_of_its_own() -> None:
    assert len({one.first_port for one in STRANGERS.values()}) == len(STRANGERS)


def test_a_node_is_not_judged_in_the_place_of_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        outcome = judge(FIFTH, port, Switch(SOUND))
    assert outcome.broke == (f"another program listens at port {port}",)


@pytest.mark.parametrize(
    ("node", "files", "many"),
    [
        (SEVENTH, "faults_*.cpp", 332),
        (EIGHTH, "faults-*.js", 278),
        (NINTH, "src/node/Faults*.java", 332),
        (ELEVENTH, "catalogue/[fs]*.tsv", 447 + 180),
    ],
    ids=["seventh", "eighth", "ninth", "eleventh"],
)
def test_a_node_that_has_to_be_built_says_in_its_tables_what_it_can_be_switched_to(
    node: Stranger, files: str, many: int
) -> None:
    texts = [file.read_text(encoding="utf-8") for file in sorted(node.node.glob(files))]
    kinds = "|".join(sorted(KINDS))
    lines = re.findall(rf'^\W*([\w.-]+)(?:", "| \| |\t)({kinds})\b', "\n".join(texts), re.MULTILINE)
    assert len(dict(lines)) == many
    assert {kind for _, kind in lines} == KINDS
    assert set(node.allowed()) < set(dict(lines))


def test_the_node_on_bun_says_in_its_tables_what_it_can_be_switched_to() -> None:
    files = sorted(TENTH.node.glob("faults_*.ts"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    # The kind is the beginning of an id.
    found = set(re.findall(r'(?:\[\s*"|id: ")([a-z]{3}-[a-z0-9-]+)"', text))
    assert len(found) == 220
    assert len({ident[:3] for ident in found}) == len(KINDS)
    assert set(TENTH.allowed()) < found
