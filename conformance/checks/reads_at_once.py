"""Interface 4.1 and 4.2: what is read, asked for by several clients at the same moment.

Each answer of the node API is judged as any other is. Here it is one like that to a client alone:
served, and with the same members at its top. How many are served at a time is open, so that a node
may ask some to wait; but not for a few resources alone.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from conformance.checks.auth import OPEN_READS
from conformance.checks.native import READABLE
from conformance.checks.node_reads import AUTH_READS
from conformance.context import API, Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS, Credential
from conformance.httpwire import Answer
from conformance.registry import requirement

ALIKE = "NA-ROUTE-036"
AT_ONCE, ROUNDS = 4, 2
# A node may ask to wait, or be busy for a moment.
PERMITTED = (429, 503)
UNAVAILABLE = 503
# Of so many that are served, one that is not is no matter of how much a node can do.
FEW = 4


@dataclass(frozen=True)
class Read:
    """What is read, and with which token."""

    path: str
    credential: Credential = ANONYMOUS
    query: dict[str, object] = field(default_factory=dict)

    def ask(self, context: Context) -> Answer:
        """Read it once."""
        if self.path.startswith(API):
            return context.api("GET", self.path.removeprefix(API), credential=self.credential)
        return context.http.call("GET", self.path, query=self.query, credential=self.credential)


def _reads(context: Context) -> Iterator[Read]:
    for resource in (*OPEN_READS, *(AUTH_READS if context.target.token is not None else ())):
        credential = context.target.valid if resource.auth else ANONYMOUS
        yield Read(resource.prefix + resource.path, credential)
    for path, query in (*READABLE.values(), ("/api/training/global", {})):
        yield Read(path, query=query)
    yield Read("/v1/models", context.target.valid)


@requirement(ALIKE)
def reads_at_once(context: Context) -> None:
    """GET each resource twice alone, then several times at the same moment."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    served, busy = 0, list[tuple[str, list[Answer]]]()
    for read in _reads(context):
        alone = [read.ask(context) for _ in range(2)]
        if not all(answer.ok for answer in alone):
            continue
        members, rounds = _members(alone[0]) & _members(alone[1]), list[list[Answer]]()
        for _ in range(ROUNDS):
            rounds.append(_at_once(context, read))
            if all(one.ok and _is_like(one, members) for one in rounds[-1]):
                break
        others = [[one for one in turn if not _is_like(one, members)] for turn in rounds]
        if all(others):
            lacking = sorted(members - _members(others[0][0]))[:3]
            why = f"status {others[0][0].status} without {lacking}; alone it is served"
            why = f"GET {read.path} by {AT_ONCE} at the same moment: {why}"
            context.fails(ALIKE, why, *alone, *others[0][:2])
            continue
        context.holds(ALIKE, alone[0], *rounds[-1][:2])
        refused = [[one for one in turn if one.status == UNAVAILABLE] for turn in rounds]
        if len(rounds) == ROUNDS and all(refused):
            busy.append((read.path, [*alone, *refused[0][:2]]))
        served += not any(refused)
    for path, shown in busy if FEW * len(busy) <= served else ():
        why = f"status {UNAVAILABLE}, while other resources are served then"
        context.fails(ALIKE, f"GET {path} by {AT_ONCE} at the same moment: {why}", *shown)


def _at_once(context: Context, read: Read) -> list[Answer]:
    with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda _: read.ask(context), range(AT_ONCE)))


def _members(answer: Answer) -> frozenset[str]:
    """Return the names at the top of a document; none if it is no object."""
    return frozenset(answer.json_object() or {})


def _is_like(answer: Answer, members: frozenset[str]) -> bool:
    return answer.status in PERMITTED or (answer.ok and members <= _members(answer))
