"""Interface 5: two accounts that are used at the same moment."""

from concurrent.futures import ThreadPoolExecutor

from conformance.checks.money import TRIES, read_money
from conformance.checks.node_reads import BALANCE
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

AT_ONCE = 8


@requirement("NA-AUTH-026")
def accounts_at_once(context: Context) -> None:
    """GET the balance with two tokens in turn, several requests at the same moment."""
    tokens = context.target.valid, context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    own = [read_money(context, token).document.get("address") for token in tokens]
    if own[0] == own[1] or not all(isinstance(address, str) for address in own):
        raise Skipped(f"the addresses of the two accounts are {brief(own)}")

    def ask(number: int) -> Answer:
        return context.api("GET", BALANCE.path, credential=tokens[number % 2])

    for _ in range(TRIES):
        with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(ask, range(AT_ONCE)))
        # Some may be refused because they are too many.
        read: list[tuple[Answer, Json, Json]] = [
            (answer, (answer.json_object() or {}).get("address"), own[number % 2])
            for number, answer in enumerate(answers)
            if answer.ok
        ]
        if not read:
            raise Skipped(f"GET /wallet/balance was answered with status {answers[0].status}")
        wrong = [each for each in read if each[1] != each[2]]
        shown = [each[0] for each in wrong or read][:2]
        why = f"{len(wrong)} of {AT_ONCE} balances at the same moment are those of another account"
        context.judge("NA-AUTH-026", not wrong, why, *shown)
