"""Interface 2.1: a last look at what every check before has seen, too."""

import time

from conformance.checks.counting import counted
from conformance.checks.money import eventually, read_money
from conformance.checks.node_reads import BALANCE, METRICS, STATUS
from conformance.checks.payments import fee_of, require_budget
from conformance.checks.reading import fetch
from conformance.checks.wallet import AMOUNT, MEMO
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH
from conformance.findings import Skipped
from conformance.passive.memory import APART_S
from conformance.registry import requirement
from conformance.strictjson import Json

COUNTED, TOKENS = "NA-COUNT-009", "NA-COUNT-010"


@requirement(
    "NA-SANE-040", "NA-SANE-041", "NA-SANE-046", "NA-INF-060",
    COUNTED, TOKENS,
)  # fmt: skip
def lasting_names(context: Context) -> None:
    """GET the node status and both balances, and POST two generations, after all the others."""
    fetch(context, STATUS)
    if context.edition >= FIFTH:
        # The first metrics of the run, if no other check has read them.
        fetch(context, METRICS)
    for account in (context.target.valid, context.target.second):
        context.api("GET", BALANCE.path, credential=account)
        # Every answer of the run is compared with those before it.
        answer = context.infer({"prompt": "Hello", "max_tokens": 1}, credential=account)
        if not answer.ok:
            raise Skipped(f"POST /inference was answered with status {answer.status}")
    if context.edition >= FOURTH:
        _send_again(context)
    if context.edition >= FIFTH:
        _judge_counted(context)


def _judge_counted(context: Context) -> None:
    """Rule on the requests that are counted, from the first metrics of the run on.

    Others may use the target too, which only adds.
    """
    memory = context.service.heard.memory
    if memory.begun is None:
        return
    total, before, first = memory.begun
    served = memory.generations - before
    eventually(lambda: counted(context)[0] - total >= served)
    now, _, last = counted(context)
    why = f"{served} generations were served, and requests_total went from {total:g} to {now:g}"
    context.judge(COUNTED, now - total >= served, why, first, last)
    if memory.made_before is not None:
        begun, made = memory.made_before[0], memory.tokens - memory.made_before[1]
        eventually(lambda: counted(context)[1] - begun >= made)
        _, tokens, last = counted(context)
        why = f"the results had {made:g} tokens, tokens_generated went from {begun:g} to {tokens:g}"
        context.judge(TOKENS, tokens - begun >= made, why, first, last)


def _send_again(context: Context) -> None:
    """Send the account a little of its own, seconds after another transfer of the run."""
    account = context.target.valid
    address = read_money(context, account).document.get("address")
    body: Json = {"to": address, "amount": AMOUNT, "memo": MEMO}
    for pause_s in (APART_S + 0.1, 0) if not context.service.heard.memory.sent else (0,):
        require_budget(context, AMOUNT)
        answer = context.api("POST", "/wallet/send", credential=account, json_body=body)
        if not answer.ok:
            raise Skipped(f"POST /wallet/send was answered with status {answer.status}")
        context.budget.charge(fee_of(answer))
        time.sleep(pause_s)
