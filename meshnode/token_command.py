"""``meshnode token``: issue, fund, list, revoke and sweep tokens, and change the operator's.

A running node notices a changed token file on its next request (decision 0005). The node itself
carries out orders that move money, because only a node signs (decision 0085).
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from meshnode.domain.account_address import address_of
from meshnode.domain.amounts import parse_amount, text
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.tokens import CUSTOMER, TokenRecord, parse_scopes
from meshnode.domain.units import DAY_S
from meshnode.services.keystore import (
    ACCOUNTS_FOLDER,
    KEY_FILE,
    TOKEN_FILE,
    Keystore,
    replace_token,
)
from meshnode.services.tokens import TokenStore
from meshnode.services.wallet.orders import (
    DONE,
    FUND,
    STAYS,
    SWEEP,
    OperatorRequest,
    is_served,
    place_order,
    take_answer,
)

ANSWER_WITHIN_S = 15.0
"""Time for a running node to notice an order and to include it, within a block or two."""
LOOK_EVERY_S = 0.05


def run_token_command(
    options: argparse.Namespace, data_dir: Path, passphrase: str = "", operator_token: str = ""
) -> None:
    """Carry out one action and print its outcome. Raises InvalidRequest or StartupError.

    ``passphrase`` opens the node's keys; only ``issue --fund`` and ``sweep`` need it.
    ``operator_token`` is the one that the configuration sets, if it sets one.
    """
    _require_node(data_dir)
    store = TokenStore(data_dir)
    if options.action == "rotate":
        _rotate(data_dir, operator_token)
    elif options.action == "issue":
        _issue(options, store, data_dir, passphrase)
    elif options.action == "revoke":
        print(_describe(store.revoke(options.which)))
    elif options.action == "sweep":
        _sweep(options.which, store, data_dir, passphrase)
    else:
        records = store.list()
        for record in records:
            print(_describe(record))
        if not records:
            print("no tokens have been issued; the operator's own is not listed")


def _rotate(data_dir: Path, configured: str) -> None:
    """Change the operator's token; a running node takes it over with its next request."""
    if configured:
        raise InvalidRequest("token", "is set by MESHNODE_TOKEN or --token; change it there")
    replace_token(data_dir)
    print(f"the operator's token was changed; the new one is in {data_dir / TOKEN_FILE}")


def _require_node(data_dir: Path) -> None:
    """Raise StartupError unless a node has been started in the folder.

    After a mistyped path, no node would accept a token that was issued into a new folder.
    """
    try:
        found = (data_dir / KEY_FILE).exists()
    except OSError as error:
        raise StartupError(f"cannot use the data folder {data_dir}: {error.strerror}") from None
    if not found:
        raise StartupError(
            f"there is no node in {data_dir}: start one there first, or name the folder of yours "
            "with --data-dir"
        )


def _issue(options: argparse.Namespace, store: TokenStore, data_dir: Path, passphrase: str) -> None:
    fund = getattr(options, "fund", None)
    # Every check that can fail runs before a token is issued.
    atoms = 0 if fund is None else parse_amount(fund, "--fund")
    keys = Keystore(data_dir, passphrase) if atoms else None
    scope = getattr(options, "scope", None)
    scopes = parse_scopes(scope) if scope else CUSTOMER
    record, secret = store.issue(options.name, options.days * DAY_S, scopes)
    print(f"{_describe(record)}\nshown this once: {secret}")
    if keys is not None:
        account = keys.account(record.id).public_key
        outcome = _order(data_dir, OperatorRequest(FUND, account, atoms))
        print(f"account {account}: {text(atoms)} {outcome}")
        print(f"address {address_of(account)} (the same account, with a checksum)")


def _sweep(which: str, store: TokenStore, data_dir: Path, passphrase: str) -> None:
    """Move the money of the dead tokens of this id or name into the node's account."""
    records = store.list()
    live = [record for record in records if record.live(time.time())]
    if any(which in (record.id, record.name) for record in live):
        raise InvalidRequest("token", "is in use; revoke it first")
    named = {record.id for record in records if record.name == which}
    # A token that is no longer listed still has a key, which can be found only by the token's id.
    accounts = Keystore(data_dir, passphrase).accounts()
    chosen = [one for one in accounts if one.token_id == which or one.token_id in named]
    if not chosen:
        raise InvalidRequest("token", "no account belongs to this id or name")
    for account in chosen:
        outcome = _order(data_dir, OperatorRequest(SWEEP, account.public_key))
        print(f"{account.token_id}  account {account.public_key}: sweep {outcome}")
        if STAYS in outcome:
            key = data_dir / ACCOUNTS_FOLDER / f"{account.token_id}.json"
            print(f"to have it back: meshnode unstake AMOUNT --key {key}, and sweep again later")


def _order(data_dir: Path, order: OperatorRequest) -> str:
    """Place an order, wait for the node's answer, and describe the outcome in a few words."""
    name = place_order(data_dir, order)
    if not is_served(data_dir):
        return "noted: the node will do it when it starts"
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        answer = take_answer(data_dir, name)
        if answer is not None:
            outcome, separator, stays = answer.partition(STAYS)
            return ("done" if outcome == DONE else f"refused: {outcome}") + separator + stays
        time.sleep(LOOK_EVERY_S)
    return "noted: the node has not done it yet"


def _describe(record: TokenRecord) -> str:
    if record.revoked_at is not None:
        state = f"revoked {_date(record.revoked_at)}"
    elif record.expires_at is None:
        state = "does not expire"
    elif record.live(time.time()):
        state = f"expires {_date(record.expires_at)}"
    else:
        state = f"expired {_date(record.expires_at)}"
    scopes = ",".join(record.scopes)
    return f"{record.id}  {record.name:20}  issued {_date(record.created_at)}  {state}  {scopes}"


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
