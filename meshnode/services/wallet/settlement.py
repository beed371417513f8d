"""Pays on the chain what accounts owe for inference (interface 2.1; decision 0085).

In each interval, one transfer is made from each account to the node's own account. The node bears
the fee: the account pays exactly what it was charged, and the node receives that amount less the
fee. An account that owes no more than the fee is not settled until it owes more.

Invariant: each charge is paid once (:mod:`meshnode.services.signer.signer` explains why).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.errors import MeshnodeError
from meshnode.services.keystore import Keystore
from meshnode.services.ledger.asking import ChainLedger
from meshnode.services.signer.accounts import AccountState
from meshnode.services.signer.signer import Signer
from meshnode.services.signer.submission import TransactionRequest
from meshnode.services.wallet.orders import serve_orders
from meshnode.services.wallet.service import HistoryIndex, Wallet

if TYPE_CHECKING:
    from pathlib import Path

    from meshnode.domain.spending import AccountBook

log = logging.getLogger(__name__)

AT_ONCE = 16
"""The most settlements that wait for a block at one time; the rest of the queue is for clients."""


async def serve_wallet(
    ledger: ChainLedger,
    index: HistoryIndex,
    keys: Keystore,
    signer: Signer,
    data_dir: Path,
    settle_every_s: float,
    *,
    task_status: trio.TaskStatus[Wallet],
) -> None:
    """Serve the wallets of all tokens until cancelled; starts with the :class:`Wallet`."""
    wallet = Wallet(ledger, index, keys, signer)
    settlement = Settlement(wallet, signer.journal.accounts, keys.node_key.public_key)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(settlement.serve, settle_every_s)
        nursery.start_soon(serve_orders, wallet, signer.journal, keys, data_dir)
        task_status.started(wallet)


class Settlement:
    """Turns debts into transfers."""

    def __init__(self, wallet: Wallet, accounts: AccountBook, to: str) -> None:
        self._wallet = wallet
        self._accounts = accounts
        self._to = to

    async def serve(self, every_s: float) -> None:
        """Settle at every interval, until cancelled."""
        while True:
            await trio.sleep(every_s)
            await self.settle()

    async def settle(self) -> None:
        """Settle the debts of all accounts; wait until each transfer is in a block or refused."""
        debtors = self._accounts.debtors(self._wallet.fee + 1)
        for first in range(0, len(debtors), AT_ONCE):
            async with trio.open_nursery() as nursery:
                for account in debtors[first : first + AT_ONCE]:
                    nursery.start_soon(self._settle_account, account)

    async def _settle_account(self, account: str) -> None:
        try:
            await self._wallet.begin(account, partial(self._plan, account)).wait()
        except MeshnodeError as failure:
            # It stays owed, and the next interval tries again.
            log.warning("cannot settle what %s owes: %s", account, failure)

    def _plan(self, account: str, state: AccountState) -> TransactionRequest | None:
        fee, owed = self._wallet.fee, min(self._accounts.owed(account), state.available)
        if owed <= fee:
            return None
        fields: dict[str, Json] = {"to": self._to, "amount": owed - fee}
        return TransactionRequest("transfer", fields, spends=owed, settles=owed)
