"""Run schemathesis against a node of its own, from the node's own ``/openapi.json``.

``python -m tools.fuzz SCHEMATHESIS [ARGUMENT...]``: SCHEMATHESIS is the program, which lives in an
environment of its own, since its dependencies are none of the node's.
"""

from __future__ import annotations

import subprocess
import sys

from bench.node_process import running_node

CHECKS = ["--checks", "all", "--max-examples", "25", "--generation-deterministic"]


def main(program: str, *arguments: str) -> int:
    """Return schemathesis' exit status: 0 when it finds nothing."""
    with running_node(threads=1) as node:
        command = [program, "run", f"{node.url}/openapi.json", *CHECKS, *arguments]
        command += ["-H", f"Authorization: Bearer {node.token}"]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
