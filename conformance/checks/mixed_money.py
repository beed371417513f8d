"""Interface 2.1, 3, 4.1 and 7.1: transfers, stakes and charges of two accounts, in a drawn order.

Each step is compared with what both accounts had just before it, whatever came before that. As in
``money``, a step counts only on balances that stood still, and a difference is a violation only if
it shows three times. A node may pay its operator, so the first account may always get more by the
fee of a step.
"""

import time

from conformance.checks.history import newest
from conformance.checks.money import (
    EXACT,
    TRIES,
    Comparison,
    Money,
    eventually,
    read_money,
    still,
)
from conformance.checks.money_steps import Accounts, Moved, Sent, Step
from conformance.context import Context
from conformance.editions import FIFTH, SIXTH
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

# A chain may take seconds for each step; then fewer steps do, and fewer pairs of them.
LONG_ENOUGH_S, PAIRS_S = 8.0, 4.5
IN_VAIN_S = 30.0


def _gaps(moved: Moved, had: list[Money], have: list[Money]) -> list[str]:
    """Return in what the balances differ from what a step may have made of them."""
    found = list[str]()
    for name, before, after, (least, most) in zip(
        ("first", "second"), had, have, moved.available, strict=True
    ):
        more = after.available - before.available
        if not least - EXACT <= more <= most + EXACT:
            found.append(f"the {name} account has {more:+.6g} available")
    staked = [have[0].staked - had[0].staked, have[1].staked - had[1].staked]
    if abs(staked[0]) > EXACT:
        found.append(f"the first account has {staked[0]:+.6g} staked")
    if moved.staked is not None and abs(staked[1] - moved.staked) > EXACT:
        found.append(f"the second account has {staked[1]:+.6g} staked")
    now = {"available": have[1].available, "staked": have[1].staked}
    for key, value in moved.told.items():
        if abs(now[key] - value) > EXACT:
            found.append(f"new_balance says {value:g} {key}, the balance {now[key]:g}")
    return found


def _settled(
    context: Context, accounts: Accounts, had: list[Money], seen: list[list[Money]]
) -> list[float]:
    """Return how much more is pending; what is taken may be so for a moment."""
    more: list[float] = []

    def is_over() -> bool:
        if more:
            seen.append([read_money(context, one) for one in accounts.of])
        more[:] = [have.pending - one.pending for one, have in zip(had, seen[-1], strict=True)]
        return max(map(abs, more)) <= EXACT

    eventually(is_over, accounts.patience_s)
    return more


def _follow(context: Context, accounts: Accounts, step: Step, compared: Comparison) -> bool:
    """Make one step; return whether it could be made, and note what it has changed."""
    had = still(context, *accounts.of)
    moved = step(had) if had is not None else None
    if had is None or moved is None:
        return had is None
    seen: list[list[Money]] = []

    def arrived() -> bool:
        seen.append([read_money(context, one) for one in accounts.of])
        return not _gaps(moved, had, seen[-1])

    began = time.monotonic()
    held, took_s = eventually(arrived, accounts.patience_s), time.monotonic() - began
    (accounts.settled_s if held else accounts.waited_s).append(took_s)
    gaps = _gaps(moved, had, seen[-1])
    shown = [*(one.answer for one in had), *moved.answers, *(one.answer for one in seen[-1])]
    compared.note("NA-WALLET-052", not gaps, f"after {moved.what} {'; '.join(gaps)}", *shown)
    if moved.settled and context.edition >= SIXTH:
        more = _settled(context, accounts, had, seen)
        why = f"after {moved.what} {more[0]:+g} and {more[1]:+g} is pending"
        compared.note("NA-WALLET-083", max(map(abs, more)) <= EXACT, why, *shown)
    return True


def _judge_history(context: Context, accounts: Accounts) -> None:
    """Look for each transfer among the newest entries of whoever has sent it."""
    for at, account in enumerate(accounts.of):
        answer, document, rows = newest(context, account)
        total = (document or {}).get("total")
        for sent in (one for one in accounts.sent if one.sender == at):
            listed = [row for row in rows if row.get("id") == sent.ident]
            if not isinstance(sent.ident, str) or (not listed and total != len(rows)):
                # It may be on a page between the first and the last.
                continue
            if sent.to == accounts.addresses[at]:
                # What goes to the account itself may be listed as it comes and as it goes.
                held = bool(listed) and all(row.get("to") in (sent.to, None) for row in listed)
            else:
                held = [_is_that(row, sent) for row in listed] == [True]
            why = f"a transfer of {sent.amount:g} to {brief(sent.to)} is listed as"
            why = f"{why} {brief(listed, 160)}"
            context.judge("NA-WALLET-053", held, why, sent.answer, answer)


def _is_that(row: dict[str, Json], sent: Sent) -> bool:
    amount = row.get("amount")
    # Whether the entry includes the fee is not said.
    fits = is_number(amount) and any(
        abs(amount + cost) <= EXACT for cost in (sent.amount, sent.amount + sent.fee)
    )
    return fits and row.get("to") == sent.to and row.get("type") == "send"


@requirement(
    "NA-WALLET-052",
    "NA-WALLET-053",
    "NA-WALLET-080",
    "NA-WALLET-083",
    "NA-WALLET-091",
    "NA-WALLET-092",
    "NA-WALLET-013",
    "NA-ERR-022",
    "NA-QUERY-030",
    "NA-QUERY-036",
    "NA-QUERY-037",
)
def mixed_money(context: Context) -> None:
    """POST transfers, stakes, generations and bad requests of two accounts in a drawn order."""
    accounts, began = Accounts(context), time.monotonic()
    before: Step | None = None
    for number, step in enumerate(accounts.steps()):
        pairs = number >= accounts.drawn
        if pairs and context.edition < FIFTH:
            break
        compared = Comparison(context)
        for at in range(TRIES + 1):
            if at and pairs and before is not None and context.edition >= SIXTH:
                # What one step changes of the next one, it changes each time.
                _follow(context, accounts, before, Comparison(context))
            if not _follow(context, accounts, step, compared) or compared.clean:
                break
        compared.conclude()
        before = step
        # What was waited for in vain, the other steps need not pay for.
        in_vain_s = min(IN_VAIN_S, sum(accounts.waited_s))
        if time.monotonic() - began - in_vain_s > (PAIRS_S if pairs else LONG_ENOUGH_S):
            break
    _judge_history(context, accounts)
