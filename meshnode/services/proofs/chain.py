"""What the proofs ask of the chain (decisions/0064, 0098).

Invariant: nothing is remembered here, so that a node that was restarted, or whose chain went back,
sees what is so now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from meshnode.domain.chain.canonical import Json
from meshnode.domain.proofs.judging import Claimed
from meshnode.services.work.submission import Chain, Submitter, ask

if TYPE_CHECKING:
    from meshnode.domain.chain.envelope import ApplicationId
    from meshnode.domain.chain.genesis import Genesis
    from meshnode.domain.identity import NodeKey
    from meshnode.services.ledger.records import StoredBlock

PER_PAGE = 100


class Ledger(Chain, Protocol):
    """The ledger's handle, as far as proofs go."""

    @property
    def genesis(self) -> Genesis:
        """How the chain began, with its values."""

    async def block(self, height: int) -> StoredBlock | None:
        """A committed block."""


@dataclass(frozen=True, slots=True)
class Member:
    """A validator."""

    owner: str
    """Public key of its account."""
    power: int


@dataclass(frozen=True, slots=True)
class OpenProof:
    """An open proof, when it was taken up, and who has voted."""

    claimed: Claimed
    height: int
    voters: frozenset[str]
    """Consensus keys."""


class ChainView:
    """The chain, asked anew each time. All methods raise Unavailable while there is none."""

    def __init__(self, find: Callable[[], Ledger], key: NodeKey) -> None:
        """``find`` gives the ledger, or raises Unavailable; ``key`` signs."""
        self._find = find
        self._key = key
        self._submitter: tuple[Ledger, Submitter] | None = None

    @property
    def account(self) -> str:
        """Public key of this node."""
        return self._key.public_key

    @property
    def chain_id(self) -> str:
        """The chain's name."""
        return self._find().chain_id

    @property
    def height(self) -> int:
        """Of the last committed block."""
        return self._find().height

    async def wait_beyond(self, height: int) -> int:
        """Wait for a higher block."""
        return await self._find().wait_beyond(height)

    async def open_proofs(self) -> dict[str, OpenProof]:
        """All that are open, by id; the chain bounds how many."""
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
        """Whether an account has the penalty for a proof at stake."""
        ledger = self._find()
        stake = await ask(ledger, "/stake", {"public_key": account})
        return bool(stake["amount"] >= ledger.genesis.profile.proving.penalty)

    async def claim(self, statement: str) -> tuple[str, str]:
        """``none``, ``open`` or ``verified``, and the id of the proof that has the claim."""
        answer = await ask(self._find(), "/claim", {"statement": statement})
        return answer["status"], answer["proof_id"]

    async def block_hash(self, height: int) -> bytes | None:
        """Of a committed block; None if it is not here."""
        block = await self._find().block(height)
        return None if block is None else block.hash

    async def send(self, kind: str, fields: dict[str, Json]) -> ApplicationId:
        """Have a transaction of this node's account committed. Raises Refused."""
        ledger = self._find()
        if self._submitter is None or self._submitter[0] is not ledger:
            self._submitter = (ledger, Submitter(ledger, self._key))
        return await self._submitter[1].send(kind, fields)


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
