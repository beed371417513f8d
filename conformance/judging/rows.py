"""Rows of the table that were judged, in memory and in a file, so that a judging can go on."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Judged:
    """How one row of the table ended; `gap` is empty if it ended as expected."""

    group: str
    name: str
    ident: str
    level: str
    gap: str
    took_s: float

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all other rows."""
        return self.group, self.name, self.ident


@dataclass
class Rows:
    """The rows so far. With a file, each is in it as soon as it is known, as a line of JSON."""

    file: Path | None = None
    found: list[Judged] = field(default_factory=list)
    known: dict[tuple[str, str, str], Judged] = field(default_factory=dict)
    """Those of an earlier judging that ended as expected."""

    def read(self) -> None:
        """Take the rows of the file for known; those with a gap are judged again."""
        if self.file is None or not self.file.exists():
            return
        for line in self.file.read_text(encoding="utf-8").splitlines():
            row = Judged(**json.loads(line))
            self.known.pop(row.key, None)
            if not row.gap:
                self.known[row.key] = row

    def has(self, key: tuple[str, str, str]) -> bool:
        """Whether the row is known; if so it counts as judged."""
        if key in self.known:
            self.found.append(self.known[key])
        return key in self.known

    def add(self, row: Judged) -> None:
        """Keep one more."""
        self.found.append(row)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
