"""Interface 4.1 and 5: who reads what, in a drawn order, one after another and at the same time."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from conformance.checks.auth import INVENTED
from conformance.checks.money import TRIES
from conformance.checks.node_reads import AUTH_READS, BALANCE, PROOFS, TRANSACTIONS
from conformance.checks.reading import Resource
from conformance.context import Context
from conformance.httprequest import ANONYMOUS, Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

# So many are read at the same time.
AT_ONCE = 8
REFUSED = 401
Query = dict[str, object]
NO_QUERY: Query = {}


@dataclass(frozen=True)
class Read:
    """One reading: of what, by whom, and what it was answered with."""

    resource: Resource
    query: Query
    reader: Credential
    answer: Answer

    @property
    def address(self) -> Json:
        """Whose balance it is, if it is one."""
        return (self.answer.json_object() or {}).get("address")

    def __str__(self) -> str:
        """Name the request."""
        shown = "&".join(f"{key}={value}" for key, value in self.query.items())
        by = self.reader.shown or "no header"
        return f"GET {self.resource.path}{'?' * bool(shown)}{shown} with {by}"


_READS: tuple[tuple[Resource, Query], ...] = (
    *((resource, NO_QUERY) for resource in AUTH_READS),
    (TRANSACTIONS, {"limit": 1}), (TRANSACTIONS, {"offset": 1}), (PROOFS, {"limit": 2}),
)  # fmt: skip


def _ask(context: Context, resource: Resource, query: Query, reader: Credential) -> Read:
    answer = context.api("GET", resource.path, credential=reader, query=query or None)
    return Read(resource, query, reader, answer)


@requirement("NA-AUTH-032")
def mixed_reads(context: Context) -> None:
    """GET all routes marked Auth with each token, an invented one and none, in a drawn order."""
    known = tuple(dict.fromkeys((context.target.valid, context.target.second)))
    control = [
        _ask(context, resource, NO_QUERY, reader) for resource in AUTH_READS for reader in known
    ]
    served = [(read.resource.path, read.reader) for read in control if read.answer.ok]
    own = {read.reader: read.address for read in control if read.resource is BALANCE}
    wanted = [(*read, reader) for read in _READS for reader in (*known, ANONYMOUS, INVENTED)]
    source = random.Random(context.target.seed)  # noqa: S311
    reads, refused = list[Read](), list[Read]()
    for workers in (1, 1, AT_ONCE, AT_ONCE):
        with ThreadPoolExecutor(workers) as pool:
            order = source.sample(wanted, len(wanted))
            reads += pool.map(lambda one: _ask(context, *one), order)
    for read in reads:
        if read.reader not in known and read.answer.ok:
            context.fails("NA-AUTH-032", f"{read} is served, among others", read.answer)
        elif read.resource is BALANCE and read.answer.ok and read.address != own[read.reader]:
            why = f"{read}, among others, shows the account {brief(read.address)}"
            context.fails("NA-AUTH-032", why, read.answer)
        elif read.answer.status == REFUSED and (read.resource.path, read.reader) in served:
            refused.append(read)
    if len(refused) >= TRIES:
        # A single one may be a token's that has just been replaced.
        why = f"{len(refused)} of {len(reads)} requests are refused, such as {refused[0]}"
        context.fails("NA-AUTH-032", why, *(read.answer for read in refused[:TRIES]))
    elif served and "NA-AUTH-032" not in context.ruled_on():
        context.holds("NA-AUTH-032", *(read.answer for read in reads[:4]))
