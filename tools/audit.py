"""Looks up advisories for the running environment, and fails if they cannot be looked up.

pip-audit reports "no known vulnerabilities" even if its source of advisories returns nothing. It is
therefore asked first about a release that is known to be vulnerable. If it finds nothing there, its
other answers mean nothing either, and the audit fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

KNOWN_BAD = "h2==3.2.0"
"""This release has CVE-2025-57804, among others."""


def main() -> int:
    """Return 0 when packages could be looked up and none of them has an advisory."""
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary.txt"
        canary.write_text(KNOWN_BAD + "\n")
        found = audit(["--requirement", str(canary), "--no-deps", "--disable-pip"])
    if not found.get("h2"):
        print(f"audit: advisories cannot be looked up: none was found for {KNOWN_BAD}")
        return 1
    installed = audit(["--local"])
    if not installed:
        print("audit: no installed package could be looked up")
        return 1
    vulnerable = {name: ids for name, ids in installed.items() if ids}
    for name, ids in sorted(vulnerable.items()):
        print(f"audit: {name}: {', '.join(ids)}")
    if not vulnerable:
        print("audit: no advisory for any installed package")
    return 1 if vulnerable else 0


def audit(arguments: list[str]) -> dict[str, list[str]]:
    """Run pip-audit and return the advisories of each package that it could look up."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    try:
        document = json.loads(result.stdout)
    except ValueError:
        print(result.stderr.strip() or "pip-audit printed nothing", file=sys.stderr)
        return {}
    return {
        entry["name"]: [advisory["id"] for advisory in entry.get("vulns", [])]
        for entry in document["dependencies"]
        if "skip_reason" not in entry
    }


if __name__ == "__main__":
    sys.exit(main())
