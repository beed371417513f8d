"""Loads layers of a model and prints this process's memory as JSON: ``memory_probe.py DIR LAYERS``.

A program of its own, because the peak memory of a process that has done other work says nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from meshnode.memory import map_large_blocks
from meshnode.model.loading import load_model


def main(directory: str, layers: str) -> None:
    """Print bytes of weights, memory kept and peak, and whether torch's compiler was imported."""
    map_large_blocks()
    model = load_model(Path(directory), json.loads(layers))
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    memory = {
        "weights": model.weight_bytes,
        "kept": int(sizes["RssAnon"]) * 1024,
        "peak": int(sizes["VmHWM"]) * 1024,
        "compiler": "torch._dynamo" in sys.modules,
    }
    print(json.dumps(memory))


if __name__ == "__main__":
    main(*sys.argv[1:])
