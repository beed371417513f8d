"""Interface 4.1 and 5: what holds for the account of one token holds for that of another one.

The checks of one account run once more with the second token. What only two accounts show is left
out, since the first one is the operator's.
"""

from conformance.checks.again import run_again, told_of
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.verdict import Finding

AGAIN = (
    "shape-transactions", "shape-proofs", "pages-whole", "mixed-pages",
    "history-walked", "inference-result", "inference-stop", "inference-stops-exactly",
    "inference-stream", "inference-counted", "wallet-send", "wallet-stake", "wallet-unstake",
    "wallet-poor", "wallet-afterwards", "money-sent", "money-staked", "money-bodies", "memo-kept",
    "history-later",
)  # fmt: skip


@requirement("NA-AUTH-036")
def mixed_accounts(context: Context) -> None:
    """Run the checks of one account once more, with the second token."""
    if context.edition < FIFTH:
        # What it finds is scored by other requirements, too.
        raise Skipped("later editions ask for it")
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    target, wrong = context.target.of_second(), list[Finding]()
    for name in AGAIN:
        wrong += run_again(context, name, "with the second token", target)
    why = told_of(wrong)
    context.judge("NA-AUTH-036", not why, why)
