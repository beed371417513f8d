"""Parses canonical JSON in an interpreter with narrow limits, and prints the results."""

from __future__ import annotations

import sys

from meshnode.domain.chain.canonical import JsonLimits, parse
from meshnode.domain.chain.errors import MalformedJson


def main() -> None:
    """Print whether 32 nested arrays are read, then the classes of two refusals."""
    sys.setrecursionlimit(120)
    sys.set_int_max_str_digits(640)
    print(parse(b"[" * 32 + b"]" * 32, JsonLimits(100)) is not None)
    for data in (b"1" * 700, b"[" * 33):
        try:
            parse(data, JsonLimits(1000))
        except MalformedJson as refusal:
            print(type(refusal).__name__)


if __name__ == "__main__":
    main()
