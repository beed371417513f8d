"""The tables of the state (decision 0058).

The state is a map from text keys to canonical JSON. A key is ``table/name``, or ``table`` where a
table has one record. Money is in atoms, times are block times in nanoseconds since 1970, heights
are block heights. Lists are kept in a fixed order, since they are hashed.

Invariant: the sum of ``money`` over all records is zero: what was created (genesis and issuance)
equals what records hold plus what was burned. Every record that holds money overrides ``money``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from meshnode.domain.chain.canonical import Json


@dataclass(frozen=True, slots=True)
class Record:
    """A row. Fields are integers, texts, tuples of these, or JSON values."""

    table: ClassVar[str]

    @property
    def money(self) -> int:
        """Atoms held by this record."""
        return 0


@dataclass(frozen=True, slots=True)
class Account(Record):
    """``account/<public key>``. ``nonce`` is the next to use; ``locked`` backs pending jobs."""

    table: ClassVar[str] = "account"
    available: int = 0
    locked: int = 0
    nonce: int = 0

    @property
    def money(self) -> int:
        """Atoms available and locked."""
        return self.available + self.locked


@dataclass(frozen=True, slots=True)
class Stake(Record):
    """``stake/<public key>``. ``cooling`` lists (amount, available_ns), oldest first."""

    table: ClassVar[str] = "stake"
    amount: int = 0
    duration_days: int = 0
    start_ns: int = 0
    unlock_ns: int = 0
    cooling: tuple[tuple[int, int], ...] = ()

    @property
    def money(self) -> int:
        """Atoms staked or cooling down."""
        return self.amount + sum(amount for amount, _ in self.cooling)


@dataclass(frozen=True, slots=True)
class Validator(Record):
    """``validator/<consensus key>``; never deleted, so that a key is used once.

    ``history`` lists (first height, power). The block at ``emit_at`` announces the next change;
    ``removed_at`` is the first height without power; the bond can be withdrawn once ``release_*``
    have passed.
    """

    table: ClassVar[str] = "validator"
    owner: str
    amount: int
    status: str
    history: tuple[tuple[int, int], ...] = ()
    emit_at: int | None = None
    removed_at: int | None = None
    release_height: int | None = None
    release_time_ns: int | None = None

    @property
    def money(self) -> int:
        """The bond."""
        return self.amount


@dataclass(frozen=True, slots=True)
class Members(Record):
    """``members``: consensus keys whose bonds were not withdrawn, sorted."""

    table: ClassVar[str] = "members"
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Due(Record):
    """``due/<height>``: consensus keys with a change due at that height, sorted."""

    table: ClassVar[str] = "due"
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence(Record):
    """``evidence/<kind>:<address>:<height>``: an offence, punished at ``height``."""

    table: ClassVar[str] = "evidence"
    height: int


@dataclass(frozen=True, slots=True)
class Job(Record):
    """``job/<application id>``: a pending inference request, its price locked by its owner."""

    table: ClassVar[str] = "job"
    owner: str
    provider: str
    model_root: str
    prompt: str
    max_tokens: int
    price: int
    expires: int
    created_height: int


@dataclass(frozen=True, slots=True)
class Jobs(Record):
    """``jobs``: (expires, id) of the pending jobs, sorted."""

    table: ClassVar[str] = "jobs"
    pending: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FinishedJob(Record):
    """``finished/<application id>``: ``status`` is ``completed`` or ``expired``."""

    table: ClassVar[str] = "finished"
    status: str
    owner: str
    provider: str
    model_root: str
    price: int
    provider_paid: int
    refunded: int
    height: int
    output: Json


@dataclass(frozen=True, slots=True)
class FinishedJobs(Record):
    """``finished_jobs``: ids in order of finishing; ``dropped`` counts those no longer kept."""

    table: ClassVar[str] = "finished_jobs"
    ids: tuple[str, ...] = ()
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Lease(Record):
    """``lease``: the one reserved training task."""

    table: ClassVar[str] = "lease"
    task_id: str
    owner: str
    workers: tuple[str, ...]
    parent: str
    round: int
    escrow: int
    expires: int

    @property
    def money(self) -> int:
        """The escrow."""
        return self.escrow


@dataclass(frozen=True, slots=True)
class VerifierReward(Record):
    """``verifier_reward``: paid in the next block to the owners of keys that commit ``height``."""

    table: ClassVar[str] = "verifier_reward"
    height: int
    budget: int
    powers: tuple[tuple[str, int], ...]

    @property
    def money(self) -> int:
        """The budget."""
        return self.budget


@dataclass(frozen=True, slots=True)
class Training(Record):
    """``training``: rounds done, adapter roots, exact losses as hexadecimal floats."""

    table: ClassVar[str] = "training"
    round: int
    model_root: str
    serving_root: str
    validation_loss_hex: str
    serving_loss_hex: str
    last_training_loss_hex: str | None = None
    last_training_evaluation: Json = None


@dataclass(frozen=True, slots=True)
class Proof(Record):
    """``proof/<application id>``: a claim of work. ``votes`` lists (consensus key, approves)."""

    table: ClassVar[str] = "proof"
    owner: str
    work_kind: str
    layer: int
    statement: str
    created_ns: int
    expires: int
    votes: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Proofs(Record):
    """``proofs``: (expires, id) of the open proofs, sorted; totals; atoms paid so far."""

    table: ClassVar[str] = "proofs"
    pending: tuple[tuple[int, str], ...] = ()
    submitted: int = 0
    verified: int = 0
    paid: int = 0


@dataclass(frozen=True, slots=True)
class Claim(Record):
    """``claim/<statement>``: work with an open or paid proof, so that it is paid once."""

    table: ClassVar[str] = "claim"
    proof_id: str
    reward: int


@dataclass(frozen=True, slots=True)
class Clock(Record):
    """``clock``: height and time of the last block."""

    table: ClassVar[str] = "clock"
    height: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Supply(Record):
    """``supply``: atoms created and destroyed, and how many accounts there are."""

    table: ClassVar[str] = "supply"
    initial: int
    issued: int
    burned: int
    accounts: int

    @property
    def money(self) -> int:
        """Atoms destroyed less atoms created, which balances all other records."""
        return self.burned - self.initial - self.issued


@dataclass(frozen=True, slots=True)
class Chain(Record):
    """``chain``: the chain's identity; makes the state root commit to the manifest."""

    table: ClassVar[str] = "chain"
    chain_id: str
    manifest_hash: str
