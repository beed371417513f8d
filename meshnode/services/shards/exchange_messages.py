"""Commands of a pipeline's driver inside PipelineForward messages (decision 0222).

The command is the message's ``hidden_states``, the answer to it that of the answer. So it is signed
as a message that steps is (decision 0137), counts once, and comes from the holder's driver alone.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from meshnode.domain.errors import InvalidRequest
from meshnode.rpc.message_limits import limits_of
from meshnode.wire import node_pb2 as pb
from meshnode.wire.scan import Malformed, TooMany, scan

SERVING = frozenset({"facts", "serve"})
"""The actions of commands that are about what is served (decision 0246)."""
PLACE_OF_COMMANDS, PLACE_OF_SERVING = "exchange", "serving"
"""The place of a command, which no step can have: the signature tells them apart. What is about
serving comes from any member that drives, and makes it nobody's driver (decision 0247)."""


def place_of(action: str) -> str:
    """The place of a command with this action."""
    return PLACE_OF_SERVING if action in SERVING else PLACE_OF_COMMANDS


def command_in(data: bytes) -> pb.LayerCommand:
    """A command, bounded. Raises InvalidRequest."""
    try:
        scan(data, pb.LayerCommand, limits_of(pb.LayerCommand))
        return pb.LayerCommand.FromString(data)
    except (Malformed, TooMany, DecodeError) as error:
        raise InvalidRequest("hidden_states", "is not a command") from error


def answer_in(data: bytes) -> pb.LayerAnswer:
    """A holder's answer, bounded. Raises InvalidRequest."""
    try:
        scan(data, pb.LayerAnswer, limits_of(pb.LayerAnswer))
        return pb.LayerAnswer.FromString(data)
    except (Malformed, TooMany, DecodeError) as error:
        raise InvalidRequest("hidden_states", "is not an answer to a command") from error
