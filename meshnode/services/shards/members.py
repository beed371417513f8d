"""Who may train this node's layers: the signatures of messages that train (decision 0137).

Terms: a *member* is a peer that has signed with the key of its node id, and that holds the layers
which its part needs: the first one for a driver, the next one for a holder that sends gradients
back. ``domain.training.steps`` decides whose turn it is.

Invariants: no weights are updated by a message that no member has signed for this node; whatever is
refused changes nothing; both signatures cover everything that an update is computed from.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from meshnode.domain.training.message import sign, signer_of
from meshnode.domain.training.position import MAX_CHARS, PLACE
from meshnode.domain.training.steps import (
    GradientStatement,
    NotTheDriver,
    StepRounds,
    StepStatement,
    Turn,
)
from meshnode.rpc.errors import CallRefused, Code
from meshnode.services.shards.decoding import ADD_UP, EXCHANGE, STEP, TRAINING
from meshnode.services.shards.exchange_messages import PLACE_OF_COMMANDS, PLACE_OF_SERVING
from meshnode.services.shards.messages import MAX_DIMENSIONS, bounded, off_loop
from meshnode.services.shards.stepping import GRADIENT_SQUARE

if TYPE_CHECKING:
    from meshnode.domain.identity import NodeKey
    from meshnode.rpc.caller import Caller
    from meshnode.wire import node_pb2 as pb

MEMBER, SIGNATURE = "training-member", "training-signature"
"""Metadata of a message that trains: the signer's node id, and the signature."""
ROUND, NUMBER = "training-round", "training-number"
"""Metadata beside them in forward messages. A holder answers with its round if it was another."""
NO_ROUND = "none"
"""Stands for a round that is not known yet, since metadata must not be empty."""
ROUND_BYTES = 16
_NUMBER_CHARS = 16


class LayerPeer(Protocol):
    """A peer in a :class:`LayerHolders`."""

    @property
    def node_id(self) -> str:
        """40 hex characters."""


class LayerHolders(Protocol):
    """The peers that hold layers of this node's model."""

    def holders(self, layer: int) -> Sequence[LayerPeer]:
        """The peers with this layer."""


class TrainingMembers:
    """Verifies messages of members, and signs those of this node."""

    def __init__(self, key: NodeKey, book: LayerHolders) -> None:
        """``book`` knows who holds which layers."""
        self._key = key
        self._book = book
        self.rounds = StepRounds(lambda: secrets.token_hex(ROUND_BYTES))

    @property
    def node_id(self) -> str:
        """This node's id."""
        return self._key.node_id

    async def admit(self, message: pb.PipelineForwardRequest, caller: Caller) -> str:
        """The node id of the member that signed a message that trains; empty if nobody did.

        Raises CallRefused for a message that steps and was signed by no member or while another
        member drives, RoundOver, and RateLimited.
        """
        wanted = caller.metadata.get(TRAINING)
        if wanted not in (STEP, EXCHANGE) and SIGNATURE not in caller.metadata:
            return ""
        statement = self._statement(message, caller.metadata)
        require_holder(self._book, statement.driver, 0)
        now, drives = trio.current_time(), statement.place != PLACE_OF_SERVING
        try:
            # Checked first, because this costs no verification of a signature.
            self.rounds.check(statement.driver, statement.turn, now, drives=drives)
            size = len(message.hidden_states) + len(message.training_labels)
            await require_signature(caller.metadata, statement.driver, size, statement.encode)
            self.rounds.take(statement.driver, statement.turn, now, drives=drives)
        except NotTheDriver as refusal:
            raise CallRefused(Code.FAILED_PRECONDITION, str(refusal)) from None
        return statement.driver

    async def admit_gradient(
        self, message: pb.PipelineBackwardRequest, metadata: Mapping[str, str], layer: int
    ) -> None:
        """Raise CallRefused unless a member that holds ``layer`` has signed these gradients."""
        member = metadata.get(MEMBER, "")
        require_holder(self._book, member, layer)
        statement = gradient_statement(message, member, metadata.get(GRADIENT_SQUARE, ""))
        await require_signature(metadata, member, len(message.grad_output), statement.encode)

    def signed(
        self,
        message: pb.PipelineForwardRequest,
        holder: str,
        turn: Turn,
        *,
        update: bool,
        place: str = "",
        mode: str = ADD_UP,
    ) -> dict[str, str]:
        """The metadata of a message that this node sends to ``holder`` as its driver.

        ``mode`` is what the message is for, if it does not ``update``.
        """
        driver = self._key.node_id
        statement = step_statement(message, driver, holder, turn, update=update, place=place)
        return {
            TRAINING: STEP if update else mode,
            MEMBER: driver,
            **({PLACE: place} if place else {}),
            **turn_metadata(turn),
            SIGNATURE: sign(self._key.seed, statement.encode()),
        }

    def signed_gradient(self, message: pb.PipelineBackwardRequest, square: str) -> dict[str, str]:
        """The metadata of gradients that this node sends back; ``square`` is "" without a step."""
        statement = gradient_statement(message, self._key.node_id, square)
        told = {GRADIENT_SQUARE: square} if square else {}
        return {
            **told,
            MEMBER: self._key.node_id,
            SIGNATURE: sign(self._key.seed, statement.encode()),
        }

    def _statement(
        self, message: pb.PipelineForwardRequest, metadata: Mapping[str, str]
    ) -> StepStatement:
        update = metadata.get(TRAINING) == STEP
        driver, turn = metadata.get(MEMBER, ""), turn_in(metadata)
        place = metadata.get(PLACE, "")[: MAX_CHARS + 1]
        of_command = place in (PLACE_OF_COMMANDS, PLACE_OF_SERVING)
        if metadata.get(TRAINING) == EXCHANGE and not of_command:
            raise CallRefused(Code.PERMISSION_DENIED, "only a command is signed as one")
        own = self._key.node_id
        return step_statement(message, driver, own, turn, update=update, place=place)


def turn_metadata(turn: Turn) -> dict[str, str]:
    """A turn, as metadata."""
    return {ROUND: turn.round_id or NO_ROUND, NUMBER: str(turn.number)}


def turn_in(metadata: Mapping[str, str]) -> Turn:
    """The turn in metadata; that of no round if there is none."""
    number = metadata.get(NUMBER, "")
    if not (number.isascii() and number.isdigit() and len(number) <= _NUMBER_CHARS):
        return Turn()
    round_id = metadata.get(ROUND, "")
    return Turn("" if round_id == NO_ROUND else round_id, int(number))


def require_holder(book: LayerHolders, node_id: str, layer: int) -> None:
    """Raise CallRefused unless a peer with this id holds the layer of this node's model."""
    if all(peer.node_id != node_id for peer in book.holders(layer)):
        raise CallRefused(
            Code.PERMISSION_DENIED,
            f"only a peer that holds layer {layer} of this model may train this node so",
        )


async def require_signature(
    metadata: Mapping[str, str], node_id: str, size: int, encode: Callable[[], bytes]
) -> None:
    """Raise CallRefused unless the key of ``node_id`` signed what ``encode`` gives.

    It hashes ``size`` bytes.
    """
    signature = metadata.get(SIGNATURE, "")
    if await off_loop(size, lambda: signer_of(signature, encode())) != node_id:
        raise CallRefused(Code.PERMISSION_DENIED, f"{SIGNATURE} is not that of {MEMBER}'s key")


def gradient_statement(
    message: pb.PipelineBackwardRequest, sender: str, square: str
) -> GradientStatement:
    """What ``sender`` signs of a message with gradients."""
    return GradientStatement(
        sender=sender,
        session_id=message.session_id,
        request_id=message.request_id,
        target_shard=message.target_shard,
        shape=bounded(message.grad_shape, MAX_DIMENSIONS),
        gradients=message.grad_output,
        square=square,
    )


def step_statement(
    message: pb.PipelineForwardRequest,
    driver: str,
    holder: str,
    turn: Turn,
    *,
    update: bool,
    place: str = "",
) -> StepStatement:
    """What ``driver`` signs of a message that trains."""
    return StepStatement(
        driver=driver,
        holder=holder,
        turn=turn,
        update=update,
        session_id=message.session_id,
        request_id=message.request_id,
        source_shard=message.source_shard,
        target_shard=message.target_shard,
        sender_url=message.sender_url,
        shape=bounded(message.hidden_shape, MAX_DIMENSIONS),
        states=message.hidden_states,
        labels=message.training_labels,
        place=place,
    )
