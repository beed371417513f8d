"""Runs schemathesis against a new node, with the node's own ``/openapi.json``.

``python -m tools.fuzz SCHEMATHESIS [ARGUMENT...]``: SCHEMATHESIS is the path of the program, which
is installed in an environment of its own, apart from the node's dependencies.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.node_process import running_node

CONFIG = Path(__file__).with_name("schemathesis.toml")
CHECKS = ["--checks", "all", "--max-examples", "25", "--generation-deterministic"]


def main(program: str, *arguments: str) -> int:
    """Return the exit status of schemathesis, which is 0 if it finds nothing."""
    with running_node(threads=1) as node:
        command = [
            program,
            "--config-file",
            str(CONFIG),
            "run",
            f"{node.url}/openapi.json",
            *CHECKS,
            *arguments,
        ]
        command += ["-H", f"Authorization: Bearer {node.token}"]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
