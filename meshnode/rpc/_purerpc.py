"""Typed access to purerpc, which has no type annotations: the parts that the node uses.

The node uses purerpc's protocol connection (settings, header blocks and statuses, built on h2), its
operation signatures, and the plugin that generates the service code. This package replaces
purerpc's server, channel, streams and buffers, which have most of its known faults (decision 0020).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, cast

# Imported first, so that the import of purerpc works on h2 4.4.
from meshnode.rpc import _h2_compat, _header_memory
from meshnode.rpc.errors import Code
from meshnode.rpc.limits import RpcLimits

import h2.settings  # isort: skip
import purerpc  # isort: skip
from purerpc.grpclib.config import GRPCConfiguration  # isort: skip
from purerpc.grpclib.connection import GRPCConnection  # isort: skip

if TYPE_CHECKING:
    from h2.connection import H2Connection

Cardinality: Any = purerpc.Cardinality
USER_AGENT = "meshnode"
CONNECTION_WINDOW = 2**31 - 1 - 2**16
"""Added to the initial window, which makes it as large as HTTP/2 allows, to a byte. Stream windows
and the byte count limit memory instead, so that a stalled call does not hold up others on its
connection."""

MAX_STREAMS = 512
"""h2 accepts at least this many streams at a time, and ends the connection of a peer with more than
it accepts."""


class Signature(Protocol):
    """``purerpc.RPCSignature``: the cardinality and message types of an operation."""

    cardinality: Any
    request_type: Any
    response_type: Any


def signature(cardinality: Any, request_type: Any, response_type: Any) -> Signature:
    """Create a ``purerpc.RPCSignature``."""
    return cast("Signature", purerpc.RPCSignature(cardinality, request_type, response_type))


class _Connection(GRPCConnection):  # type: ignore[misc]
    """purerpc's connection with this node's windows and limits."""

    def __init__(self, config: Any, limits: RpcLimits) -> None:
        self._limits = limits
        super().__init__(config)
        # In Latin-1 every byte is a character, so no header block can end the connection.
        self.h2_connection.config.header_encoding = "latin-1"
        # This node's headers are well-formed; only the peer's need checks.
        self.h2_connection.config.normalize_outbound_headers = False
        self.h2_connection.config.validate_outbound_headers = False
        self.h2_connection.encoder = _header_memory.RememberingEncoder()
        decoder = _header_memory.RememberingDecoder()
        decoder.max_header_list_size = self.h2_connection.decoder.max_header_list_size
        decoder.max_allowed_table_size = self.h2_connection.decoder.max_allowed_table_size
        self.h2_connection.decoder = decoder
        _h2_compat.keep_streams_after_goaway(self.h2_connection)
        _h2_compat.ignore_unknown_settings(self.h2_connection)
        _h2_compat.bound_header_blocks(self.h2_connection)

    def _set_h2_connection_local_settings(self) -> None:
        codes = h2.settings.SettingCodes
        initial = {
            codes.MAX_CONCURRENT_STREAMS: self._limits.calls_per_connection,
            codes.INITIAL_WINDOW_SIZE: self._limits.stream_window,
            codes.MAX_FRAME_SIZE: self._limits.frame_bytes,
            codes.MAX_HEADER_LIST_SIZE: self.MAX_HEADER_LIST_SIZE,
            codes.ENABLE_PUSH: 0,
        }
        connection = self.h2_connection
        client = self.config.client_side
        connection.local_settings = h2.settings.Settings(client=client, initial_values=initial)
        connection.max_inbound_frame_size = self._limits.frame_bytes

    def initiate_connection(self) -> None:
        self.h2_connection.initiate_connection()
        self.h2_connection.increment_flow_control_window(CONNECTION_WINDOW)
        # This node refuses streams above the advertised number itself.
        streams = max(MAX_STREAMS, 2 * self._limits.calls_per_connection)
        _h2_compat.allow_streams(self.h2_connection, streams)


class GrpcConnection(Protocol):
    """The part of purerpc's connection that the adapter uses; methods only write to its buffer."""

    h2_connection: H2Connection

    def initiate_connection(self) -> None:
        """Write the preface and the settings."""

    def data_to_send(self) -> bytes:
        """Return the bytes written since the last call, and clear the buffer."""

    def start_request(
        self,
        stream_id: int,
        scheme: str,
        service_name: str,
        method_name: str,
        message_type: str,
        authority: str,
        timeout: timedelta,
        *,
        custom_metadata: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Write the head of a request."""

    def start_response(self, stream_id: int) -> None:
        """Write the head of a response."""

    def end_response(
        self, stream_id: int, status: Any, custom_metadata: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Write the trailers."""

    def respond_status(
        self, stream_id: int, status: Any, *, custom_metadata: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Write a response that consists of a status only."""


def grpc_connection(*, client_side: bool, limits: RpcLimits) -> GrpcConnection:
    """Make a connection that has not written anything yet."""
    config = GRPCConfiguration(
        client_side=client_side,
        user_agent=USER_AGENT if client_side else None,
        message_accept_encoding=["identity"],
        max_message_length=limits.message_bytes,
    )
    return cast("GrpcConnection", _Connection(config, limits))


def status(code: Code, message: str) -> Any:
    """A ``purerpc.Status``."""
    return purerpc.Status(purerpc.StatusCode(int(code)), message)
