"""What accounts owe for inference, paid on the chain (document, 2.1; decisions/0085).

One transfer an account and interval, to the node's own account. The node bears its fee: the account
pays exactly what it was charged, and the node receives that less the fee. An account that owes no
more than the fee waits until it does.

Invariant: what leaves an account for a charge leaves once, see
:mod:`meshnode.services.wallet.sending`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.errors import MeshnodeError
from meshnode.services.keystore import Keystore
from meshnode.services.wallet.journal import Journal
from meshnode.services.wallet.orders import serve_orders
from meshnode.services.wallet.sending import Draft, Facts, Ledger, Sender, Work
from meshnode.services.wallet.service import Index, Wallet

if TYPE_CHECKING:
    from pathlib import Path

    from meshnode.domain.spending import Book

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Settlements that wait for a block together; leaves the most of the queue to clients."""


async def serve_wallet(
    ledger: Ledger,
    index: Index,
    keys: Keystore,
    data_dir: Path,
    settle_every_s: float,
    *,
    task_status: trio.TaskStatus[Wallet],
) -> None:
    """Serve the wallets of all tokens until cancelled; gives a :class:`Wallet`.

    First follows what an earlier run left open. Raises StartupError when the journal is damaged.
    """
    journal = Journal(data_dir, ledger.chain_id)
    sender = Sender(ledger, journal, keys)
    wallet = Wallet(ledger, index, keys, journal, sender)
    settlement = Settlement(wallet, journal.book, keys.node_key.public_key)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.serve)
        for flight in journal.book.flights():
            nursery.start_soon(sender.resolve, flight.account)
        nursery.start_soon(wallet.serve_works)
        nursery.start_soon(settlement.serve, settle_every_s)
        nursery.start_soon(serve_orders, wallet, journal, keys, data_dir)
        task_status.started(wallet)


class Settlement:
    """Turns what is owed into transfers."""

    def __init__(self, wallet: Wallet, book: Book, to: str) -> None:
        self._wallet = wallet
        self._book = book
        self._to = to

    async def serve(self, every_s: float) -> None:
        """Settle at every interval, until cancelled."""
        while True:
            await trio.sleep(every_s)
            await self.settle()

    async def settle(self) -> None:
        """Settle what every account owes; returns when all of it is in blocks or was refused."""
        debtors = self._book.debtors(self._wallet.fee + 1)
        for first in range(0, len(debtors), AT_ONCE):
            async with trio.open_nursery() as nursery:
                for account in debtors[first : first + AT_ONCE]:
                    nursery.start_soon(self._settle_account, account)

    async def _settle_account(self, account: str) -> None:
        work = Work(account, partial(self._plan, account))
        try:
            self._wallet.begin(work)
            await work.wait()
        except MeshnodeError as failure:
            # It stays owed, and the next interval tries again.
            log.warning("cannot settle what %s owes: %s", account, failure)

    def _plan(self, account: str, facts: Facts) -> Draft | None:
        fee, owed = self._wallet.fee, min(self._book.owed(account), facts.available)
        if owed <= fee:
            return None
        fields: dict[str, Json] = {"to": self._to, "amount": owed - fee}
        return Draft("transfer", fields, spends=owed, settles=owed)
