"""Interface 2.2 and 4.2: a last look at what every check before has read of the native API."""

from contextlib import suppress

from conformance.checks.native import READABLE, native_get
from conformance.checks.native_documents import numbers_of, read
from conformance.context import Context
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Unanswered
from conformance.passive.chain import BEHIND, NETWORK, NONCE, OVER_STAYS, PAGES, SAME, TOTAL
from conformance.passive.committed import DOCUMENTS, IDS
from conformance.passive.forms import FORM, SERVED
from conformance.registry import requirement

PAGE, BLOCKS = 20, 3
# So many readings in a row of each resource, unless it is longer than this.
AGAIN, LONG_BYTES = 5, 100_000
IDENTIFIED = (
    "/api/model", "/api/model/checkpoint.json", "/api/inference", "/api/validators", "/healthz",
)  # fmt: skip


@requirement(SAME, OVER_STAYS, NONCE, TOTAL, BEHIND, FORM, SERVED, *IDS)
def native_lasting(context: Context) -> None:
    """GET pages, blocks of them, an account and a request, each beside what was read before."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    # The chain and the genesis may be named in all of these.
    for path in (*DOCUMENTS, *IDENTIFIED, *DOCUMENTS):
        native_get(context, path)
    for path, query in READABLE.values() if context.edition >= SIXTH else ():
        _read_again(context, path, query)
    bounds: dict[str, object] = {}
    for _ in range(2):
        for path, key in PAGES.items():
            # The second page is one with a bound.
            bound = {"before": bounds[path]} if path in bounds else {}
            _, document = read(context, path, {"limit": PAGE, **bound})
            numbers = numbers_of(context, f"{path} {key}", key, document)
            bounds |= {path: max(numbers) + 1} if numbers else {}
            for number in numbers[:BLOCKS] if key == "height" else ():
                native_get(context, f"/api/block/{number}")
        native_get(context, NETWORK)
        if context.target.public_key:
            native_get(context, "/api/account", {"public_key": context.target.public_key})
        if context.target.request_id:
            native_get(context, "/api/inference/request", {"id": context.target.request_id})


def _read_again(context: Context, path: str, query: dict[str, object]) -> None:
    """Read a resource several times; a checkpoint may be too long to be read in full."""
    with suppress(Unanswered):
        for _ in range(AGAIN):
            if len(native_get(context, path, query).body) > LONG_BYTES:
                return
