"""What a rule may look at: the profile, the state, the block's height and time, and the model.

Nothing else: no clock, no randomness, no files. Work that needs the model is a port, because a
validator has to do it and a test must be able to stand in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import AccountKey, ApplicationId, Envelope
from meshnode.domain.chain.profile import NetworkProfile
from meshnode.domain.chain.records import Chain, Clock, Job, Lease
from meshnode.domain.chain.view import View


@dataclass(frozen=True, slots=True)
class TrainingReplay:
    """What a training step gives when it is repeated: roots, exact losses, the receipts' bodies."""

    result_root: str
    loss_hex: str
    validation_loss_hex: str
    receipts: tuple[dict[str, Json], ...]


class ModelPort(Protocol):
    """The model under its execution profile: the same answers on every node, to the last bit.

    A :class:`Rejected` says that the request itself can never be executed, and every node says the
    same. Anything else that goes wrong (out of memory, a missing file) must be another exception:
    it stops this node, because a guess would part it from the others.
    """

    def check_request(self, prompt: str, max_tokens: int) -> None:
        """Refuse with InvalidPrompt what does not fit the model's context."""

    def answer(self, job_id: str, job: Job) -> dict[str, Json]:
        """Generate the answer to a job again; what ``respond`` commits to by its digest."""

    def train(self, lease: Lease) -> TrainingReplay:
        """Repeat the training step of a reserved task."""

    def describe_task(self, round_number: int, model_root: str) -> dict[str, Json]:
        """``input_ids`` and ``weights`` for the ``/task`` query."""


@dataclass(frozen=True, slots=True)
class Context:
    """One block, or one transaction of it, in progress."""

    profile: NetworkProfile
    view: View
    model: ModelPort

    @property
    def height(self) -> int:
        """Height of the block in progress."""
        return self.view.get(Clock).height

    @property
    def time_ns(self) -> int:
        """Time of the block in progress."""
        return self.view.get(Clock).time_ns

    @property
    def chain_id(self) -> str:
        """The chain's name."""
        return self.view.get(Chain).chain_id

    def layer(self) -> Context:
        """The same over a further layer of changes."""
        return Context(self.profile, self.view.layer(), self.model)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A verified transaction of a kind in force."""

    id: ApplicationId
    kind: str
    sender: AccountKey
    nonce: int
    body: dict[str, Json]

    @classmethod
    def of(cls, envelope: Envelope, kind: str, nonce: int) -> Transaction:
        """From an envelope whose general fields were checked."""
        return cls(envelope.id, kind, envelope.signer, nonce, envelope.body)
