"""Why the document allows what is not caught, read from `allowed.yaml`."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from conformance.judging.derived.fault import Fault

FILE = Path(__file__).parent / "allowed.yaml"


@dataclass(frozen=True)
class Allowance:
    """Faults, by regular expressions for kind and name, and the sentence that allows them."""

    kind: str
    name: str
    because: str

    def fits(self, fault: Fault) -> bool:
        """Return whether the fault is one of these."""
        return bool(re.fullmatch(self.kind, fault.kind) and re.fullmatch(self.name, fault.name))


@cache
def allowances() -> tuple[Allowance, ...]:
    """Read the file."""
    return tuple(Allowance(**entry) for entry in yaml.safe_load(FILE.read_text(encoding="utf-8")))


def reason(fault: Fault) -> str | None:
    """Return why the document allows the fault, or None if it does not."""
    return next((entry.because for entry in allowances() if entry.fits(fault)), None)
