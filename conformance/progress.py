"""How far a run is, on standard error."""

import sys


def no_progress(done: int, total: int, name: str) -> None:
    """Show nothing."""


def show_progress(done: int, total: int, name: str) -> None:
    """Draw a bar, over the one before."""
    bar = "#" * (30 * done // max(total, 1))
    end = "\n" if done == total else ""
    print(f"\r\033[K[{bar:30}] {done}/{total} {name}", end=end, file=sys.stderr, flush=True)
