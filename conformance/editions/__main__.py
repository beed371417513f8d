"""`python -m conformance.editions`: freezes the catalogue as the next edition.

Writes `N.txt` for the edition `CURRENT`, unless it exists: a released edition never changes.
"""

import sys
from pathlib import Path

from conformance.catalogue import Origin, load
from conformance.editions import CURRENT


def render() -> str:
    """Return the lines of an edition that has the catalogue as it is now."""
    scored = (item for item in load().values() if item.origin is not Origin.SILENT)
    return "".join(f"{item.id} {item.level.value} {item.profile.value}\n" for item in scored)


def main() -> int:
    """Write the file, or say that it exists."""
    path = Path(__file__).parent / f"{CURRENT}.txt"
    if path.exists():
        print(f"{path.name} exists: raise CURRENT first", file=sys.stderr)
        return 1
    path.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
