"""`python -m conformance.results`: checks the files of the table, and writes its page.

With `--check` it writes nothing, and exits with 1 if a file is wrong or the page is out of date.
"""

import sys

from conformance.results import HOME, faults, files
from conformance.results.page import FILE, render


def main(arguments: list[str]) -> int:
    """Check everything; write the page, or compare it."""
    wrong = [f"{path.relative_to(HOME)}: {why}" for path in files() for why in faults(path)]
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    if wrong:
        return 1
    text = render()
    if "--check" not in arguments:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
        print(f"{FILE.name} is out of date: run python -m conformance.results", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
