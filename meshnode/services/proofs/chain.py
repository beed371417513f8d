"""What the proofs ask of the chain (decisions 0064, 0098).

Invariant: nothing is cached here, so a node that was restarted, or whose chain started over, sees
the current state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshnode.domain.chain.canonical import Json
from meshnode.domain.proofs.judging import Claimed
from meshnode.services.ledger.asking import ChainLedger, ask

if TYPE_CHECKING:
    from meshnode.domain.chain.envelope import ApplicationId
    from meshnode.services.signer.signer import Signer

PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Member:
    """A validator."""

    owner: str
    """Public key of its account."""
    power: int


@dataclass(frozen=True, slots=True)
class OpenProof:
    """An open proof: when the chain accepted it, and who has voted."""

    claimed: Claimed
    height: int
    voters: frozenset[str]
    """Consensus keys."""


class ChainView:
    """The chain, asked anew each time. All methods raise Unavailable while there is no chain."""

    def __init__(
        self, find: Callable[[], ChainLedger], find_signer: Callable[[], Signer], account: str
    ) -> None:
        """``find`` and ``find_signer`` may raise Unavailable; ``account`` is this node's."""
        self._find = find
        self._find_signer = find_signer
        self.account = account
        """Public key of this node."""

    @property
    def chain_id(self) -> str:
        """The chain's name."""
        return self._find().chain_id

    @property
    def height(self) -> int:
        """The height of the last committed block."""
        return self._find().height

    async def wait_beyond(self, height: int) -> int:
        """Wait for a higher block."""
        return await self._find().wait_beyond(height)

    async def open_proofs(self) -> dict[str, OpenProof]:
        """All open proofs, by id; the chain bounds their number."""
        ledger = self._find()
        lasts = ledger.genesis.profile.proving.open_blocks
        answer = await ask(ledger, "/proofs")
        return {entry["id"]: _open_proof(entry, lasts) for entry in answer["open"]}

    async def members(self) -> dict[str, Member]:
        """All validators that have power now, by consensus key."""
        ledger, found, after = self._find(), dict[str, Member](), ""
        while True:
            options: dict[str, Json] = {"limit": PER_PAGE, "after": after}
            answer = await ask(ledger, "/validators", options)
            for entry in answer["validators"]:
                found[entry["public_key"]] = Member(entry["owner"], entry["power"])
            if answer["next_after"] is None:
                return found
            after = answer["next_after"]

    async def has_stake(self, account: str) -> bool:
        """Whether an account's stake covers the penalty for a proof."""
        ledger = self._find()
        stake = await ask(ledger, "/stake", {"public_key": account})
        return bool(stake["amount"] >= ledger.genesis.profile.proving.penalty)

    async def claim(self, statement: str) -> tuple[str, str]:
        """A claim's state, ``none``, ``open`` or ``verified``, and the id of its proof."""
        answer = await ask(self._find(), "/claim", {"statement": statement})
        return answer["status"], answer["proof_id"]

    async def block_hash(self, height: int) -> bytes | None:
        """The hash of a committed block; None if this node does not have it."""
        block = await self._find().block(height)
        return None if block is None else block.hash

    async def send(self, kind: str, fields: dict[str, Json]) -> ApplicationId:
        """Commit a transaction of this node's account. Raises TransactionRefused."""
        return await self._find_signer().send(kind, fields)


def _open_proof(entry: dict[str, Any], lasts: int) -> OpenProof:
    claimed = Claimed(
        proof_id=entry["id"],
        owner=entry["owner"],
        work_kind=entry["work_kind"],
        layer=entry["layer"],
        statement=entry["statement"],
        created_ns=entry["created_ns"],
        expires=entry["expires"],
    )
    voters = frozenset(str(key) for key, _ in entry["votes"])
    return OpenProof(claimed, entry["expires"] - lasts, voters)
