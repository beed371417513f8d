"""The engine's program: found on the PATH, and only in a version that this node speaks to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from meshnode.domain.errors import StartupError

PROGRAM = "cometbft"
LINE = "0.38"
"""The line of CometBFT whose messages, block formats and files this node knows."""
ANSWER_S = 30.0
HOW = f"go install github.com/cometbft/cometbft/cmd/cometbft@v{LINE}.25"


def find_program(path: str | None = None) -> str:
    """The path of the program. Raises StartupError when it is missing or of another version.

    ``path`` is as the variable PATH; None for this process's own.
    """
    found = shutil.which(PROGRAM, path=os.environ.get("PATH") if path is None else path)
    if found is None:
        raise StartupError(f"chain.engine is cometbft, and no {PROGRAM} is on the PATH: {HOW}")
    try:
        answer = subprocess.run(
            [found, "version"], capture_output=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartupError(f"{found} cannot be run: {error}") from None
    version = answer.stdout.decode("ascii", "replace").strip()
    if not re.fullmatch(rf"v?{re.escape(LINE)}\.\d+\S*", version):
        shown = version.splitlines()[0][:60] if version else "unknown"
        raise StartupError(f"{found} has version {shown}; this node needs {LINE}: {HOW}")
    return found
