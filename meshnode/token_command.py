"""``meshnode token``: issue, fund, list, revoke and sweep, beside a running node or without one.

The node notices a change of the token file with its next request (decisions/0005), and carries out
what moves money (decisions/0085): only a node signs.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from meshnode.datadir import make_private
from meshnode.domain.amounts import parse_amount, text
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.tokens import TokenRecord
from meshnode.services.keystore import Keystore
from meshnode.services.tokens import TokenStore
from meshnode.services.wallet.orders import (
    DONE,
    FUND,
    SWEEP,
    Order,
    is_served,
    place_order,
    take_answer,
)

SECONDS_A_DAY = 86_400
ANSWER_WITHIN_S = 15.0
"""For a running node to carry an order out: a look, and a block or two."""
LOOK_EVERY_S = 0.05


def run_token_command(options: argparse.Namespace, data_dir: Path, passphrase: str = "") -> None:
    """Carry out one action and print its outcome. InvalidRequest or StartupError says why not.

    ``passphrase`` is that of the node's keys; only ``issue --fund`` and ``sweep`` need it.
    """
    try:
        make_private(data_dir)
    except OSError as error:
        raise StartupError(f"cannot use the data folder {data_dir}: {error.strerror}") from None
    store = TokenStore(data_dir)
    if options.action == "issue":
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


def _issue(options: argparse.Namespace, store: TokenStore, data_dir: Path, passphrase: str) -> None:
    fund = getattr(options, "fund", None)
    # All that can be refused is, before there is a token.
    atoms = 0 if fund is None else parse_amount(fund, "--fund")
    keys = Keystore(data_dir, passphrase) if atoms else None
    record, secret = store.issue(options.name, options.days * SECONDS_A_DAY)
    print(f"{_describe(record)}\nshown this once: {secret}")
    if keys is not None:
        account = keys.account(record.id).public_key
        outcome = _order(data_dir, Order(FUND, account, atoms))
        print(f"account {account}: {text(atoms)} {outcome}")


def _sweep(which: str, store: TokenStore, data_dir: Path, passphrase: str) -> None:
    """Bring the money of tokens that no longer count into the node's account."""
    records = store.list()
    live = [record for record in records if record.live(time.time())]
    if any(which in (record.id, record.name) for record in live):
        raise InvalidRequest("token", "is in use; revoke it first")
    named = {record.id for record in records if record.name == which}
    # A token that is no longer listed still has its key; then only the id finds it.
    accounts = Keystore(data_dir, passphrase).accounts()
    chosen = [one for one in accounts if one.token_id == which or one.token_id in named]
    if not chosen:
        raise InvalidRequest("token", "no account belongs to this id or name")
    for account in chosen:
        outcome = _order(data_dir, Order(SWEEP, account.public_key))
        print(f"{account.token_id}  account {account.public_key}: sweep {outcome}")


def _order(data_dir: Path, order: Order) -> str:
    """Place an order; what has become of it, in a few words."""
    name = place_order(data_dir, order)
    if not is_served(data_dir):
        return "noted: the node will do it when it starts"
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        answer = take_answer(data_dir, name)
        if answer is not None:
            return "done" if answer == DONE else f"refused: {answer}"
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
    return f"{record.id}  {record.name:20}  issued {_date(record.created_at)}  {state}"


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
