"""Interface 4.1 and 4.2: what is read, asked for by several clients at the same moment.

Each answer of the node API is judged as any other is. Here it is one like that to a client alone:
served, and with the same members at its top. How many are served at a time is open, so that a node
may ask some to wait.
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
    for read in _reads(context):
        alone = [read.ask(context) for _ in range(2)]
        if not all(answer.ok for answer in alone):
            continue
        members = _members(alone[0]) & _members(alone[1])
        for _ in range(ROUNDS):
            with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
                answers = list(pool.map(lambda _, one=read: one.ask(context), range(AT_ONCE)))
            other = [one for one in answers if not _is_like(one, members)]
            if not other:
                context.holds(ALIKE, alone[0], *answers[:2])
                break
        else:
            lacking = sorted(members - _members(other[0]))[:3]
            why = f"status {other[0].status} without {lacking}; alone it is served"
            why = f"GET {read.path} by {AT_ONCE} at the same moment: {why}"
            context.fails(ALIKE, why, *alone, *other[:2])


def _members(answer: Answer) -> frozenset[str]:
    """Return the names at the top of a document; none if it is no object."""
    return frozenset(answer.json_object() or {})


def _is_like(answer: Answer, members: frozenset[str]) -> bool:
    return answer.status in PERMITTED or (answer.ok and members <= _members(answer))
