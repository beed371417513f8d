"""A place of its own for a page: home, folders and ports, in which its commands run.

A command sees the page's ports, and the tests others: ``8000`` and its neighbours are replaced by
free ones in what is run, and back in what is printed. ``pip`` installs nothing, but refuses what
the project's files do not name; nothing outside the machine is asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from spec_tests.docs.pages import ROOT, Step, commands, fits, is_node, port_of
from spec_tests.ports import free_port
from spec_tests.processes import calls, forking
from spec_tests.processes.nodes import wait_chain

WITHIN_S = 600.0
"""For one command, or the start of a server; only reached when a test fails."""
PORTS = range(8000, 8008)
_SHOWN_PORT = re.compile(r"(?<![\d.])(?:8|9|10)00[0-7](?!\d)")

_LAST_OF_BANNER = re.compile(r" +-d '\{\"prompt\"| +curl \S+/api/v1/layers")

_PIP = """\
import re, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
known = " ".join([*project["dependencies"], *sum(extras.values(), [])])
words = [w for w in sys.argv[2:] if not w.startswith("-")]
assert sys.argv[1] == "install", sys.argv
for word in words:
    name, _, extra = word.rstrip("]").partition("[")
    unknown = [e for e in extra.split(",") if e and e not in extras]
    assert not unknown, f"no extra {unknown} in pyproject.toml"
    bare = re.split("[=<>]", name)[0]
    import os
    there = os.path.exists(name) or bare in known or bare == "meshnode"
    assert there, f"nothing in this project names {word}"
print("Successfully installed", *words)
"""
_TOLD = (
    "import json, os, sys; json.dump((sys.argv[1:], dict(os.environ), os.getcwd()), sys.stdout)\n"
)
_PYTHON = """\
#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && : > "$3/bin/activate"; exit; fi
exec '{python}' "$@"
"""


@dataclass
class Server:
    """A command that runs on."""

    process: subprocess.Popen[str] | forking.ForkedProcess
    lines: list[str] = field(default_factory=list)


@dataclass
class Sandbox:
    """Where the commands of one page run, one after the other as in one terminal."""

    base: Path
    fresh: bool = False
    """Whether nodes are started as a reader starts them, or forked with everything imported."""
    ports: dict[int, int] = field(default_factory=dict)
    servers: dict[int, Server] = field(default_factory=dict)
    printed: str = ""
    """By the last command, or by the server that was started last."""

    def __post_init__(self) -> None:
        """Make the folders and the programs."""
        self.work, self.bin = self.base / "work", self.base / "bin"
        for folder in (self.work, self.bin, self.base / "home", self.base / "tmp"):
            folder.mkdir()
        for path in ROOT.iterdir():
            if not path.name.startswith("."):
                (self.work / path.name).symlink_to(path)
        own = shutil.which("python", path=os.path.dirname(sys.executable)) or sys.executable
        self._program("python", _PYTHON.format(python=own))
        self._program("python3", _PYTHON.format(python=own))
        self._program("meshnode", f"#!/bin/sh\nexec '{own}' -m meshnode \"$@\"\n")
        self._program("meshnode-conformance", f"#!/bin/sh\nexec '{own}' -m conformance \"$@\"\n")
        (self.base / "pip.py").write_text(_PIP)
        self._program("pip", f"#!/bin/sh\nexec '{own}' '{self.base}/pip.py' \"$@\"\n")
        for port in PORTS:
            chosen = free_port()
            self.ports |= {port + extra: chosen + extra for extra in (0, 1000, 2000)}
        kept = {k: v for k, v in os.environ.items() if k in ("LANG", "OMP_NUM_THREADS", "LC_ALL")}
        own_bin = os.path.dirname(sys.executable)
        self.environment = {
            **kept,
            "PATH": f"{self.bin}:{os.environ['PATH']}:{own_bin}",
            "HOME": str(self.base / "home"),
            "TMPDIR": str(self.base / "tmp"),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "120",
            "MESHNODE_PORT": str(self.ports[8000]),
            "MESHNODE_GATEWAY": f"http://127.0.0.1:{self.ports[8000]}",
        }

    def _program(self, name: str, text: str, folder: Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.write_text(text)
        path.chmod(0o755)

    def mapped(self, text: str) -> str:
        """What is run in place of what the page says."""
        text = _SHOWN_PORT.sub(lambda found: str(self.ports[int(found[0])]), text)
        return re.sub(r"(?<![\w.])/tmp/", f"{self.base}/tmp/", text)  # noqa: S108 - as above

    def shown(self, text: str) -> str:
        """What the page would show for what was printed."""
        back = {str(real): str(page) for page, real in self.ports.items()}
        text = re.sub(r"(?<![\d.])\d{5}(?!\d)", lambda found: back.get(found[0], found[0]), text)
        text = text.replace(f"{self.base}/tmp/", "/tmp/")  # noqa: S108 - as pages say it
        return text.replace(f"{self.base}/home", "/home/you").replace(str(self.work), "/work")

    def take(self, step: Step) -> None:
        """Do what a step asks of the reader. AssertionError says what went wrong."""
        if step.word == "stop":
            self.stop(int(step.value))
        elif step.word == "file":
            path = self.work / step.value
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.mapped(step.body))
        elif step.word == "output":
            self.expect(step.body)
        else:
            every = commands(step)
            for number, (command, output) in enumerate(every, 1):
                last = number == len(every)
                if is_node(command):
                    self.serve(command, port_of(command), node=True)
                elif last and step.word == "serves":
                    self.serve(command, int(step.value))
                else:
                    wanted = int(step.value) if last and step.word == "status" else 0
                    self.run(command, wanted)
                if output:
                    self.expect(output)

    def run(self, command: str, status: int = 0) -> None:
        """Run one command to its end."""
        done = subprocess.run(
            self._bash(command),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        self.printed = self.shown(done.stdout)
        servers = "".join("\n".join(one.lines[-20:]) for one in self.servers.values())
        said = f"{command}\n{self.printed}\n{servers}"
        assert done.returncode == status, f"ended with {done.returncode}: {said}"

    def _bash(self, command: str) -> list[str]:
        # Variables and the folder last from one command to the next, as in a terminal.
        state = self.base / "state"
        if not state.exists():
            state.write_text(f"cd {self.work}\n")
        keep = f'trap \'{{ export -p; echo "cd \\"$PWD\\""; }} > {state}\' EXIT'
        text = f"set -a\n. {state}\n{keep}\n{self.mapped(command)}\n"
        return ["bash", "-eo", "pipefail", "-c", text]

    def serve(self, command: str, port: int, *, node: bool = False) -> None:
        """Start a command that runs on, in place of one on its port; wait until it is ready."""
        if port in self.servers:
            self.stop(port)
        start = self._fork if node and not self.fresh else self._start
        process = start(command)
        server = self.servers[port] = Server(process)
        threading.Thread(target=_read, args=(server,), daemon=True).start()
        end = time.monotonic() + WITHIN_S
        while not self._is_ready(server, port, node=node):
            said = "\n".join(server.lines)
            assert process.poll() is None, f"{command} ended with {process.returncode}:\n{said}"
            assert time.monotonic() < end, f"{command} is not ready:\n{said}"
            time.sleep(0.05)
        if node:
            wait_chain(self.ports[port])
        self.printed = self.shown("\n".join(server.lines))

    def _script(self, command: str, programs: str = "") -> list[str]:
        state = self.base / "state"
        before = f". {state}\n" if state.exists() else f"cd {self.work}\n"
        path = f'export PATH="{programs}:$PATH"\n' if programs else ""
        return ["bash", "-c", f"{before}{path}exec env {self.mapped(command)}"]

    def _start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._script(command),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _fork(self, command: str) -> forking.ForkedProcess:
        # What a shell makes of the command is told by a program in place of the node.
        programs = self.base / "told"
        if not programs.exists():
            programs.mkdir()
            for name in ("python", "meshnode"):
                self._program(name, f"#!{sys.executable}\n{_TOLD}", programs)
        script = self._script(command, str(programs))
        done = subprocess.run(script, env=self.environment, capture_output=True, check=True)
        arguments, environment, folder = json.loads(done.stdout)
        environment["PATH"] = environment["PATH"].removeprefix(f"{programs}:")
        # The default of this setting was fixed when the server of forks was started.
        home = environment["HOME"]
        environment.setdefault("MESHNODE_DATA_DIR", f"{home}/.local/share/meshnode")
        del environment["PYTHONPATH"]  # one server of forks for these tests and others
        own = arguments[2:] if arguments[:2] == ["-m", "meshnode"] else arguments
        return forking.start([calls.NODE], own, environment, folder=folder)

    def _is_ready(self, server: Server, port: int, *, node: bool) -> bool:
        if node:
            return any(_LAST_OF_BANNER.match(line) for line in list(server.lines))
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports[port])) == 0

    def expect(self, shown: str) -> None:
        """Compare what was printed last with what the page shows."""
        wrong = fits(shown, self.printed)
        assert not wrong, f"{wrong} in what was printed:\n{self.printed}"

    def stop(self, port: int) -> None:
        """End a server; to a node SIGTERM is what Ctrl-C is, and no shell may have it ignored."""
        server = self.servers.pop(port, None)
        if server is None:  # it was skipped
            return
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(WITHIN_S)
        finally:
            server.process.kill()
            assert server.process.stdout is not None
            server.process.wait()

    def close(self) -> None:
        """End everything that still runs."""
        for server in self.servers.values():
            server.process.send_signal(signal.SIGTERM)
        for port in list(self.servers):
            self.stop(port)


def _read(server: Server) -> None:
    assert server.process.stdout is not None
    with server.process.stdout:
        for line in server.process.stdout:
            server.lines.append(line.rstrip("\n"))
