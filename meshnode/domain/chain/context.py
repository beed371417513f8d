"""The inputs of a rule: the profile, the state, the block's height and time, and the model.

A rule reads nothing else: no clock, no randomness, no files. The model is a port, so that a
validator can compute with the real one and a test can replace it.
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
    """The outcome of repeating a training step: root, exact losses, and the receipts' bodies."""

    result_root: str
    loss_hex: str
    validation_loss_hex: str
    receipts: tuple[dict[str, Json], ...]


class ModelPort(Protocol):
    """The model under its execution profile: the same answers on every node, to the last bit.

    A :class:`Rejected` means that the request itself can never be executed, on any node. Any other
    failure (out of memory, a missing file) must be a different exception: it stops this node,
    because a guess would fork it from the others.
    """

    def check_request(self, prompt: str, max_tokens: int) -> None:
        """Raise InvalidPrompt if the request does not fit the model's context."""

    def answer(self, job_id: str, job: Job) -> dict[str, Json]:
        """Regenerate a job's answer, whose digest ``respond`` has to contain."""

    def train(self, lease: Lease) -> TrainingReplay:
        """Repeat the training step of a reserved task."""

    def describe_task(self, round_number: int, model_root: str) -> dict[str, Json]:
        """Return ``input_ids`` and ``weights`` for the ``/task`` query."""


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
        """The same context over a further layer of changes."""
        return Context(self.profile, self.view.layer(), self.model)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A verified transaction of a kind that this network accepts."""

    id: ApplicationId
    kind: str
    sender: AccountKey
    nonce: int
    body: dict[str, Json]

    @classmethod
    def of(cls, envelope: Envelope, kind: str, nonce: int) -> Transaction:
        """Make a transaction from an envelope whose common fields were checked."""
        return cls(envelope.id, kind, envelope.signer, nonce, envelope.body)
