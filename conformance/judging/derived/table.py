"""The table of derived faults by kind, for DERIVED.md and JUDGE.md."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from conformance.judging.derived.allowed import reason
from conformance.judging.derived.fault import Fault
from conformance.judging.derived.judge import CAUGHT, NOT_SHOWN, DerivedJudge, Ended

# What is reached for every kind, and for all kinds together.
GOAL = 0.98
# How many derived faults are judged by whole runs too.
SAMPLE = 20


@dataclass(frozen=True)
class NodeTable:
    """The faults of one node that were judged, those for which no time was left, and the sample.

    `unlike` holds what a whole run concluded differently.
    """

    node: str
    ended: tuple[Ended, ...]
    left: int
    confirmed: int
    unlike: tuple[str, ...]

    def missed(self) -> list[Ended]:
        """Return the faults that were neither caught nor allowed by the document."""
        return [
            item
            for item in self.ended
            if item.how not in (CAUGHT, NOT_SHOWN) and reason(item.fault) is None
        ]

    def gaps(self) -> list[str]:
        """Describe the kinds below the goal, and what a whole run saw differently."""
        found = []
        for kind, counts in self.by_kind().items():
            judged = counts["caught"] + counts["missed"]
            if judged and counts["caught"] / judged < GOAL and counts["missed"] > 1:
                found.append(f"{self.node}: {kind}: {counts['missed']} of {judged} were missed")
        return [*found, *(f"{self.node}: {item}" for item in self.unlike)]

    def by_kind(self) -> dict[str, Counter[str]]:
        """Count the faults of each kind: caught, missed, allowed by the document, not shown."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for item in self.ended:
            found[item.fault.kind][_column(item)] += 1
        return dict(sorted(found.items()))


def confirm(name: str, judge: DerivedJudge, ended: list[Ended], many: int) -> NodeTable:
    """Judge a sample of the faults that were caught, of so many, by whole runs too."""
    sample = [item for item in ended if item.how == CAUGHT][:: max(1, len(ended) // SAMPLE)]
    again = [judge.judge(item.fault, whole=True) for item in sample]
    unlike = tuple(
        f"a whole run against {item.fault.kind}: {item.fault.name} ended {item.how}"
        for item in again
        if item.how != CAUGHT
    )
    return NodeTable(name, tuple(ended), many - len(ended), len(again), unlike)


def _column(item: Ended) -> str:
    if item.how in (CAUGHT, NOT_SHOWN):
        return item.how
    return "missed" if reason(item.fault) is None else "allowed"


def share(counts: Counter[str]) -> str:
    """Return the share of what could be judged that was caught."""
    judged = counts["caught"] + counts["missed"]
    return f"{counts['caught'] / judged:.1%}" if judged else "-"


COLUMNS = ("caught", "missed", "allowed", NOT_SHOWN)


def render(tables: Iterable[NodeTable]) -> Iterator[str]:
    """Yield the lines of the section."""
    tables = list(tables)
    if not tables:
        return
    yield "## Derived faults\n"
    yield "Every single fault of a kind, made from the catalogue, the messages and the routes, and"
    yield "worn by a node, the small one also without any declaration; a client wears its own."
    yield "*Caught* means that a MUST is violated, or what a client breaks. *Allowed* means that"
    yield "the document does not forbid it, for a reason below; *not shown*, that the node is in no"
    yield "state that shows it. The share is that of caught among caught and missed.\n"
    for table in tables:
        yield from _node(table)
    yield from _reasons(item for table in tables for item in table.ended)


def _node(table: NodeTable) -> Iterator[str]:
    yield f"### {table.node}\n"
    left = f"; for {table.left} no time was left" if table.left else ""
    alike = table.confirmed - len(table.unlike)
    yield f"{len(table.ended)} faults{left}. Of {table.confirmed} runs that were made again as a"
    yield f"whole, or without a fault, {alike} ended as they had to.\n"
    yield "| kind | caught | missed | allowed | not shown | share |\n|---|---|---|---|---|---|"
    total: Counter[str] = Counter()
    for kind, counts in table.by_kind().items():
        total += counts
        yield _row(kind, counts)
    yield _row("all", total)
    yield ""
    for item in table.missed():
        yield f"- missed ({item.how}): {item.fault.kind}: `{item.fault.name}`"
    if table.missed():
        yield ""


def _row(kind: str, counts: Counter[str]) -> str:
    figures = " | ".join(str(counts[column]) for column in COLUMNS)
    return f"| {kind} | {figures} | {share(counts)} |"


def _reasons(ended: Iterable[Ended]) -> Iterator[str]:
    faults: dict[str, set[Fault]] = defaultdict(set)
    for item in ended:
        why = reason(item.fault) if item.how not in (CAUGHT, NOT_SHOWN) else None
        if why is not None:
            faults[why].add(item.fault)
    yield "### Why the document allows what is not caught\n"
    yield "| faults | for instance | because |\n|---|---|---|"
    for why, group in sorted(faults.items(), key=lambda pair: -len({f.name for f in pair[1]})):
        first = min(group, key=lambda fault: (fault.kind, fault.name))
        names = {(fault.kind, fault.name) for fault in group}
        yield f"| {len(names)} | {first.kind}: `{first.name}` | {why} |"
    yield ""
