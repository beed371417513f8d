"""Generate ``docs/interface.md`` from the conformance suite's catalogue and texts.

    python -m tools.interface_document           writes the file
    python -m tools.interface_document --check   writes nothing, fails when the file is stale

The texts are in ``conformance/interface/text``: they belong to the suite's package, since the suite
writes the document beside its reports. This script adds links to the files of this repository.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.interface import document

ROOT = Path(__file__).resolve().parent.parent
FILE = Path("docs/interface.md")


def generate() -> str:
    """Return the text of the file."""
    decisions = {path.name[:4]: path.name for path in (ROOT / "decisions").glob("[0-9]*.md")}

    def link(kind: str, shown: str) -> str:
        if kind == "native network":
            return f"[{shown}](native-network.md#section-{shown})"
        if kind == "decision":
            return f"[{shown}](../decisions/{decisions[shown]})"
        return f"[{shown}](../conformance/{kind})"

    return document.render(link)


def main() -> int:
    """Write or check the file; the exit status of a check is 1 if the file is stale."""
    parser = argparse.ArgumentParser(description="Generate docs/interface.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    check: bool = parser.parse_args().check
    text, target = generate(), ROOT / FILE
    if target.exists() and target.read_text(encoding="utf-8") == text:
        print(f"{FILE} is up to date")
        return 0
    print(f"{'stale' if check else 'written'}: {FILE}")
    if check:
        print("run: python -m tools.interface_document")
        return 1
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
