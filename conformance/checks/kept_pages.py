"""Interface 4.1: pages of the history that a node may have kept from before."""

from conformance.checks.history import rows_of
from conformance.checks.money import TRIES, eventually, read_money
from conformance.checks.node_reads import TRANSACTIONS
from conformance.checks.payments import fee_of, require_budget
from conformance.checks.wallet import AMOUNT, MEMO
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json

KEPT = "NA-WALLET-071"
# A page that has been read before, and one that has not.
LIMIT, OTHER = 20, 23


@requirement(KEPT)
def history_again(context: Context) -> None:
    """GET a page, send a transfer, GET a page of another length that has it, and the first again.

    Where that has it not, whoever reads one page after the other sees it come and go.
    """
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    account = context.target.valid
    own = read_money(context, account).document.get("address")
    body: Json = {"to": own, "amount": AMOUNT, "memo": MEMO}
    lost = list[tuple[Answer, ...]]()
    for turn in range(TRIES):
        before = _page(context, LIMIT)
        require_budget(context, AMOUNT)
        sent = context.api("POST", "/wallet/send", credential=account, json_body=body)
        if not sent.ok or not before.ok:
            raise Skipped(f"POST /wallet/send was answered with status {sent.status}")
        context.budget.charge(fee_of(sent))
        ident = (sent.json_object() or {}).get("transaction_id")
        seen = [before]

        def arrived(turn: int = turn, ident: Json = ident, seen: list[Answer] = seen) -> bool:
            seen.append(_page(context, OTHER + turn))
            return _has(seen[-1], ident)

        if not eventually(arrived):
            raise Skipped("the history does not begin with the newest transfer")
        again = _page(context, LIMIT)
        if _has(again, ident):
            context.holds(KEPT, seen[-1], again)
            return
        lost.append((sent, seen[-1], again))
    why = (
        f"a page of {OTHER + turn} has the transfer, and one of {LIMIT} that is read later has not"
    )
    context.fails(KEPT, why, *lost[-1])


def _page(context: Context, limit: int) -> Answer:
    query: dict[str, object] = {"limit": limit}
    return context.api("GET", TRANSACTIONS.path, credential=context.target.valid, query=query)


def _has(page: Answer, ident: Json) -> bool:
    return any(row.get("id") == ident for row in rows_of(page.json_object()))
