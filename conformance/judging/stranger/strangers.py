"""The strangers' nodes: how each is started, and what can be switched on in it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

import yaml

from conformance.baseline import Baseline, read
from conformance.strictjson import Json

HERE = Path(__file__).parent


class Lists(TypedDict):
    """What a node can be switched to."""

    faults: dict[str, str]
    """The kind of each fault by its id."""
    peculiar: list[str]
    """The ids of what the interface permits."""


@dataclass(frozen=True)
class Stranger:
    """A node that was written from the interface alone."""

    folder: Path
    """Has ``target.toml``, ``allowed.yaml``, the folder ``node``, and maybe ``known.toml``."""
    command: tuple[str, ...]
    """Starts the node, together with ``--port N``, in its folder."""
    listing: tuple[str, ...]
    """Prints its :class:`Lists` as JSON, in the same folder."""
    first_port: int
    build: tuple[str, ...] = ()
    """Makes the node of its code, in the same folder."""
    peer_option: str = ""
    """With what it is told, when it starts, of a node to pass gradients on to."""

    @property
    def signer(self) -> tuple[str, ...]:
        """What signs requests for the node; nothing if it knows no signatures."""
        script = self.folder / "sign.py"
        return (sys.executable, str(script)) if script.exists() else ()

    def told(self, address: str) -> tuple[str, ...]:
        """The words on its command line that name the suite's own node, ``HOST:PORT``."""
        return (self.peer_option, address) if self.peer_option else ()

    @property
    def node(self) -> Path:
        """The folder of its code."""
        return self.folder / "node"

    @property
    def tokens(self) -> Mapping[str, str]:
        """What clients of the node show, where its target names no others."""
        return {"token": "tok-a", "second_token": "tok-b", "expired_token": "tok-x"}

    def lists(self) -> Lists:
        """What it can be switched to. Its code says so, so what runs it must be there."""
        return _lists(self)

    def declared(self, ident: str) -> dict[str, Json]:
        """What its operator declares otherwise, with a peculiarity."""
        file = self.folder / "declared.yaml"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        found: dict[str, dict[str, Json]] = yaml.safe_load(text) or {}
        return found.get(ident, {})

    def known(self) -> Baseline:
        """What its sound node breaks; the same of a faulty one is not for its fault."""
        file = self.folder / "known.toml"
        return read(file) if file.exists() else Baseline({})

    def allowed(self) -> dict[str, str]:
        """Why the document allows a fault, by the id of each that it allows."""
        text = (self.folder / "allowed.yaml").read_text(encoding="utf-8")
        found: dict[str, str] = yaml.safe_load(text) or {}
        return found


@cache
def _lists(stranger: Stranger) -> Lists:
    command = list(stranger.listing)
    done = subprocess.run(command, cwd=stranger.node, capture_output=True, text=True, check=True)
    found: Lists = json.loads(done.stdout)
    return found


_BY_NODE_JS = """
import { readFileSync, readdirSync } from 'node:fs';
import { FAULTS } from './faults.js';
// A later list adds to the same one.
for (const name of readdirSync('.')) if (/^faults2_/.test(name)) await import(`./${name}`);
const lines = readFileSync('peculiar.js', 'utf8').matchAll(/^(p-[a-z0-9-]+) \\|/gm);
const faults = Object.fromEntries(FAULTS.map((fault) => [fault.id, fault.kind]));
console.log(JSON.stringify({ faults, peculiar: [...lines].map((line) => line[1]) }));
"""
_BY_PYTHON = """
import json
import faults, peculiar
kinds = {each["id"]: each["kind"] for each in faults.FAULTS}
print(json.dumps({"faults": kinds, "peculiar": [each["id"] for each in peculiar.PECULIAR]}))
"""
# Its lists are in three modules, each with what its author would have left out.
_OF_FIFTH = """
import json
import faults, more, more2, peculiar
listed = faults.FAULTS + faults.SPARE + more.MORE + more.MORE_SPARE + more2.MORE2
listed += more2.MORE2_SPARE
kinds = {each["id"]: each["kind"] for each in listed}
print(json.dumps({"faults": kinds, "peculiar": [each["id"] for each in peculiar.PECULIAR]}))
"""
# Its list has the sentence of each fault beside its kind; what its author kept back is in a file.
_OF_ELEVENTH = """
import json, pathlib, subprocess
listed = json.loads(subprocess.run(["./node", "--list"], capture_output=True, check=True).stdout)
kinds = {each["id"]: each["kind"] for each in listed["faults"]}
spare = pathlib.Path("catalogue/spare.tsv").read_text().splitlines()
kinds |= dict(line.split("\\t")[:2] for line in spare)
print(json.dumps({"faults": kinds, "peculiar": [each["id"] for each in listed["peculiarities"]]}))
"""
# They list the sentence of each fault beside its kind.
_WITH_SENTENCES = """
import json, subprocess, sys
listing = [*sys.argv[1:], "--list"]
listed = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
kinds = {each["id"]: each["kind"] for each in listed["faults"]}
print(json.dumps({"faults": kinds, "peculiar": [each["id"] for each in listed["peculiarities"]]}))
"""
# Their lists are tables, which their authors made of the code.
_BY_TABLES = """
import json, pathlib
lines = {name: pathlib.Path(f"{name}.tsv").read_text("utf-8").splitlines()
         for name in ("faults", "peculiarities")}
kinds = dict(line.split("\\t")[:2] for line in lines["faults"])
peculiar = [line.split("\\t")[0] for line in lines["peculiarities"]]
print(json.dumps({"faults": kinds, "peculiar": peculiar}))
"""
STRANGERS = {
    "first": Stranger(
        HERE,
        ("node", "server.js", "--host", "127.0.0.1"),
        ("node", "--input-type=module", "-e", _BY_NODE_JS),
        18700,
        build=("npm", "install", "--no-package-lock"),
        peer_option="--peer",
    ),
    "second": Stranger(
        HERE / "second",
        (sys.executable, "node.py"),
        (sys.executable, "-c", _BY_PYTHON),
        19700,
    ),
    "third": Stranger(
        HERE / "third",
        (sys.executable, "node.py"),
        (sys.executable, "-c", _BY_PYTHON),
        21700,
    ),
    "fourth": Stranger(
        HERE / "fourth",
        ("./node",),
        ("./node", "--list"),
        23700,
        # Debian's packages of Go's libraries are below this folder.
        build=("env", "GO111MODULE=off", "GOPATH=/usr/share/gocode", "go", "build", "-o", "node"),
    ),
    "fifth": Stranger(
        HERE / "fifth",
        (sys.executable, "node.py"),
        (sys.executable, "-c", _OF_FIFTH),
        25700,
    ),
    "sixth": Stranger(
        HERE / "sixth",
        ("ruby", "node.rb"),
        ("ruby", "node.rb", "--list"),
        27700,
    ),
    "seventh": Stranger(
        HERE / "seventh",
        ("./node",),
        ("./node", "--list"),
        29700,
        build=("make", "-j2", "node"),
    ),
    "eighth": Stranger(
        HERE / "eighth",
        ("node", "node.js"),
        ("node", "node.js", "--list"),
        30700,
        build=("npm", "install", "--no-package-lock"),
    ),
    "ninth": Stranger(
        HERE / "ninth",
        ("./node",),
        ("./node", "--list"),
        28700,
        build=("make", "node"),
    ),
    "tenth": Stranger(
        HERE / "tenth",
        ("./node_modules/.bin/bun", "node.ts"),
        ("./node_modules/.bin/bun", "node.ts", "--list"),
        26700,
        build=("npm", "install", "--no-package-lock"),
    ),
    "eleventh": Stranger(
        HERE / "eleventh",
        ("./node",),
        (sys.executable, "-c", _OF_ELEVENTH),
        24700,
        build=("make", "node"),
    ),
    "twelfth": Stranger(
        HERE / "twelfth",
        ("perl", "node.pl"),
        (sys.executable, "-c", _WITH_SENTENCES, "perl", "node.pl"),
        22700,
    ),
    "thirteenth": Stranger(
        HERE / "thirteenth",
        ("./run",),
        (sys.executable, "-c", _BY_TABLES),
        17700,
        build=("make",),
        peer_option="--peer",
    ),
    "fourteenth": Stranger(
        HERE / "fourteenth",
        ("php", "node.php"),
        (sys.executable, "-c", _WITH_SENTENCES, "php", "node.php"),
        15700,
        peer_option="--peer",
    ),
    "fifteenth": Stranger(
        HERE / "fifteenth",
        ("./run",),
        (sys.executable, "-c", _BY_TABLES),
        14700,
        build=("./build",),
        peer_option="--peer",
    ),
    "sixteenth": Stranger(
        HERE / "sixteenth",
        ("./run",),
        (sys.executable, "-c", _BY_TABLES),
        14800,
        build=("./build",),
        peer_option="--peer",
    ),
    "seventeenth": Stranger(
        HERE / "seventeenth",
        ("./run",),
        (sys.executable, "-c", _BY_TABLES),
        14900,
        build=("./build",),
        peer_option="--peer",
    ),
    "eighteenth": Stranger(
        HERE / "eighteenth",
        ("./run",),
        (sys.executable, "-c", _BY_TABLES),
        15000,
        build=("./build",),
        peer_option="--peer",
    ),
    "nineteenth": Stranger(
        HERE / "nineteenth",
        ("./run",),
        (sys.executable, "-c", _BY_TABLES),
        15200,
        build=("./build",),
        peer_option="--peer",
    ),
}
