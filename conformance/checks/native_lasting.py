"""Interface 2.2 and 4.2: a last look at what every check before has read of the native API."""

from conformance.checks.native import native_get
from conformance.checks.native_documents import numbers_of, read
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.passive.chain import BEHIND, NETWORK, NONCE, OVER_STAYS, PAGES, SAME, TOTAL
from conformance.passive.committed import DOCUMENTS, IDS
from conformance.passive.forms import FORM, SERVED
from conformance.registry import requirement

PAGE, BLOCKS = 20, 3
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
