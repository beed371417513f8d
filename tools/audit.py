"""Look up advisories for the running environment, and never mistake silence for safety.

pip-audit answers "no known vulnerabilities" also where its source of advisories answers nothing.
So it is first asked about a release that is known to be vulnerable: unless it says so, nothing that
it says about the environment counts, and this fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

KNOWN_BAD = "h2==3.2.0"
"""CVE-2025-57804 among others."""


def main() -> int:
    """Return 0 when every installed package was looked up and none has an advisory."""
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary.txt"
        canary.write_text(KNOWN_BAD + "\n")
        found = audit(["--requirement", str(canary), "--no-deps", "--disable-pip"])
    if not found.get("h2"):
        print(f"audit: nothing could be looked up: {KNOWN_BAD} came back without an advisory")
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
    """Run pip-audit and return the advisories of each package; empty where it could not answer."""
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
