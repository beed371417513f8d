"""Orders from the command line to the node: fund or sweep an account (decision 0085).

Terms: an *order* is a file in ``orders/`` of the data folder. Only the operator can write there, by
running ``meshnode token``. A running node carries an order out within a second; otherwise the node
does so when it is started. The node writes its answer to a file beside it.

Invariant: an order is carried out once: its transaction names it in the journal, and its file is
removed only after the outcome is written.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from meshnode.datadir import write_private
from meshnode.domain.amounts import text
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import account_key
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import (
    InvalidRequest,
    MeshnodeError,
    RateLimited,
    StartupError,
    Unavailable,
)
from meshnode.domain.shortage import shortage_in
from meshnode.domain.spending import OrderEnd, Outcome
from meshnode.services.signer.accounts import AccountState
from meshnode.services.signer.submission import TransactionRequest

if TYPE_CHECKING:
    from meshnode.services.keystore import Keystore
    from meshnode.services.signer.journal import Journal
    from meshnode.services.wallet.service import Wallet

log = logging.getLogger(__name__)

FOLDER = "orders"
LOCK_FILE = "lock"
LOOK_EVERY_S = 0.25
FUND, SWEEP = "fund", "sweep"
DONE = "committed"
ENDS: dict[str | None, str] = {
    None: "there is nothing to move",
    Outcome.COMMITTED: DONE,
    Outcome.UNSEEN: "a block that is not here may hold it: look at the account",
}
"""What the answer says, by the outcome in the journal."""
STAYS = "; staked or cooling down, and left there: "
"""Text between the outcome of a sweep and an amount."""

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """``fund``: pay ``atoms`` from the node's account; ``sweep``: pay everything into it."""

    kind: str
    account: str
    atoms: int = 0


def place_order(data_dir: Path, order: OperatorRequest) -> str:
    """Write an order and return its id. Raises StartupError if it cannot be written."""
    name = secrets.token_hex(16)
    folder = data_dir / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        write_private(folder / f"{name}.json", json.dumps(asdict(order)).encode())
    except OSError as error:
        raise StartupError(f"cannot write {folder}: {error.strerror}") from None
    return name


def take_answer(data_dir: Path, name: str) -> str | None:
    """Read and remove the answer: ``committed`` or why not. None while there is no answer."""
    path = data_dir / FOLDER / f"{name}.done"
    try:
        outcome = path.read_text("utf-8")
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    return outcome


def is_served(data_dir: Path) -> bool:
    """Whether a running node is carrying out the orders of this folder."""
    try:
        with (data_dir / FOLDER / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


async def serve_orders(wallet: Wallet, journal: Journal, keys: Keystore, data_dir: Path) -> None:
    """Carry out orders until cancelled."""
    folder = data_dir / FOLDER
    clerk = _Clerk(wallet, journal, keys, folder)
    with _serving(folder):
        await clerk.forget_answered()
        while True:
            for path in clerk.waiting():
                await clerk.carry_out(path)
            await trio.sleep(LOOK_EVERY_S)


@contextmanager
def _serving(folder: Path) -> Iterator[None]:
    """Hold the lock that shows commands that a node is running. Only their check can delay it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartupError(f"cannot use {folder}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class _Clerk:
    def __init__(self, wallet: Wallet, journal: Journal, keys: Keystore, folder: Path) -> None:
        self._wallet = wallet
        self._journal = journal
        self._node = keys.node_key.public_key
        self._folder = folder
        self._trouble = ""

    def waiting(self) -> list[Path]:
        """The orders that are to be carried out. None while the folder cannot be read."""
        try:
            found = sorted(self._folder.glob("*.json"))
        except OSError as error:
            self._note_trouble(error)
            return []
        if not found:
            self._trouble = ""
        return found

    def _note_trouble(self, error: OSError) -> None:
        """Log a trouble of the folder once, although it is met several times a second."""
        reason = error.strerror or str(error)
        if reason != self._trouble:
            self._trouble = reason
            log.error("cannot read the orders of the operator: %s; they wait", reason)

    async def carry_out(self, path: Path) -> None:
        """Carry out an order and write its answer. Its file stays while the ledger is not ready."""
        name = path.stem
        try:
            order = _read_order(path)
            self._trouble = ""
            account = self._node if order.kind == FUND else order.account
            seen: list[AccountState] = []
            plan = partial(self._plan, name, order, seen)
            await self._wallet.begin(account, plan, order=name).wait()
            outcome = ENDS[self._journal.accounts.order(name)]
            if order.kind == SWEEP:
                outcome += _what_stays(seen)
        except OSError as error:
            self._note_trouble(error)
            return
        except (Unavailable, RateLimited):
            return
        except MeshnodeError as failure:
            if shortage_in(failure):
                return
            outcome = str(failure)
        log.info("order %s: %s", name, outcome)
        try:
            write_private(path.with_suffix(".done"), outcome.encode())
            os.unlink(path)
        except OSError as error:
            log.error("cannot answer an order: %s", error.strerror)
            return
        await self._forget(name)

    async def forget_answered(self) -> None:
        """Forget the outcomes of orders whose files are gone: they cannot be requested again."""
        for name in self._journal.accounts.orders():
            if not (self._folder / f"{name}.json").exists():
                await self._forget(name)

    async def _forget(self, name: str) -> None:
        if self._journal.accounts.order(name) is None:
            return
        try:
            await self._journal.append(OrderEnd(name, ""))
        except Unavailable:
            # It is forgotten at the next start.
            return

    def _plan(
        self, name: str, order: OperatorRequest, seen: list[AccountState], state: AccountState
    ) -> TransactionRequest | None:
        seen.append(state)
        # Check only now that nothing is pending: an earlier run may have carried the order out.
        if self._journal.accounts.order(name) is not None:
            return None
        if order.kind == FUND:
            return self._fund(order, state)
        return self._sweep(order.account, state)

    def _fund(self, order: OperatorRequest, state: AccountState) -> TransactionRequest:
        spends = order.atoms + self._wallet.fee
        free = max(0, state.available - self._journal.accounts.claimed(self._node))
        if free < spends:
            reason = f"the node's account has {text(free)}, {text(spends)} are needed"
            raise InvalidRequest(None, reason)
        fields: dict[str, Json] = {"to": order.account, "amount": order.atoms}
        return TransactionRequest("transfer", fields, spends=spends)

    def _sweep(self, account: str, state: AccountState) -> TransactionRequest | None:
        """Pay everything, debts included, except what running generations hold."""
        accounts, fee = self._journal.accounts, self._wallet.fee
        owed = accounts.owed(account)
        spends = state.available - (accounts.claimed(account) - owed)
        if spends <= fee:
            return None
        fields: dict[str, Json] = {"to": self._node, "amount": spends - fee}
        return TransactionRequest("transfer", fields, spends=spends, settles=min(owed, spends))


def _what_stays(seen: Sequence[AccountState]) -> str:
    """Text about the amount that a sweep leaves: stakes cannot be transferred."""
    stays = seen[-1].staked + seen[-1].cooling if seen else 0
    return f"{STAYS}{text(stays)}" if stays else ""


def _read_order(path: Path) -> OperatorRequest:
    """Read an order's file. OSError if it cannot be read, StartupError if it is not an order."""
    data = path.read_bytes()
    try:
        order = OperatorRequest(**json.loads(data))
        right = order.kind in (FUND, SWEEP) and type(order.atoms) is int
        if not right or not _ID.fullmatch(path.stem) or order.atoms < (order.kind == FUND):
            raise ValueError(order.kind)
        account_key(order.account)
    except (ValueError, TypeError, RecursionError, Rejected):
        raise StartupError("this is not an order") from None
    return order
