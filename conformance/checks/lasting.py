"""Interface 2.1: a last look at what every check before has seen, too."""

from conformance.checks.node_reads import BALANCE, STATUS
from conformance.checks.reading import fetch
from conformance.context import Context
from conformance.findings import Skipped
from conformance.registry import requirement


@requirement("NA-SANE-040", "NA-SANE-041")
def lasting_names(context: Context) -> None:
    """GET the node status and both balances, and POST two generations, after all the others."""
    fetch(context, STATUS)
    for account in (context.target.valid, context.target.second):
        context.api("GET", BALANCE.path, credential=account)
        # Every answer of the run is compared with those before it.
        answer = context.infer({"prompt": "Hello", "max_tokens": 1}, credential=account)
        if not answer.ok:
            raise Skipped(f"POST /inference was answered with status {answer.status}")
