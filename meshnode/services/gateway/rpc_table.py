"""The methods that ``/rpc`` accepts, with their parameters (interface 4.2 rules 1-3).

The tables are the allowlist (decision 0079). A request becomes a :class:`Call` with the dataclass
of its method, whose fields are parsed one by one. The engine gets the call and never the request,
so nothing that is not in the tables can reach it. Pure functions.

Refusals are worded as the public network's gateway words them, where it has such a refusal.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshnode.domain.chain.canonical import Json, JsonLimits
from meshnode.domain.chain.errors import Rejected

REQUEST_BYTES = 32_768
REQUEST_LIMITS = JsonLimits(REQUEST_BYTES, depth=4, tokens=1000)
"""An envelope with ``params`` is two levels deep and has twenty tokens; more are allowed so that an
invalid ``id`` is refused by its own rule, not by the parser."""
QUERY_BYTES = 4096
VALIDATORS_PER_PAGE = 100
DEFAULT_PER_PAGE = 30
"""The same default as in CometBFT."""

Argument = bool | int | str | bytes | None
RpcId = int | str | None


class InvalidRpc(Rejected):
    """Invalid RPC envelope."""


class MethodNotPublic(InvalidRpc):
    """RPC method is not public."""


class UnsupportedParameter(InvalidRpc):
    """Unsupported RPC parameter."""


class QueryNotPublic(InvalidRpc):
    """Only supported current-state queries are public."""


class InvalidParameter(InvalidRpc):
    """Invalid RPC parameter."""


class TooManyPerPage(InvalidRpc):
    """At most 100 validators per page."""


class InvalidTransactionEncoding(InvalidRpc):
    """Transaction must be base64 of a signed envelope."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: the function that parses it, and its default."""

    read: Callable[[Json], Argument]
    default: Argument = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class StatusCall:
    """``status``."""


@dataclass(frozen=True, slots=True)
class BlockCall:
    """``block``: the latest block if there is no ``height``."""

    height: int | None


@dataclass(frozen=True, slots=True)
class CommitCall:
    """``commit``: the latest commit if there is no ``height``."""

    height: int | None


@dataclass(frozen=True, slots=True)
class ValidatorsCall:
    """``validators``: of the latest block if there is no ``height``. Pages count from 1."""

    height: int | None
    page: int
    per_page: int


@dataclass(frozen=True, slots=True)
class QueryCall:
    """``abci_query`` of the current state, without a proof."""

    path: str
    data: bytes
    height: int
    prove: bool


@dataclass(frozen=True, slots=True)
class BroadcastSyncCall:
    """``broadcast_tx_sync``: answered when the transaction has been checked."""

    tx: bytes


@dataclass(frozen=True, slots=True)
class BroadcastCommitCall:
    """``broadcast_tx_commit``: answered when the transaction is in a block."""

    tx: bytes


MethodCall = (
    StatusCall
    | BlockCall
    | CommitCall
    | ValidatorsCall
    | QueryCall
    | BroadcastSyncCall
    | BroadcastCommitCall
)


@dataclass(frozen=True, slots=True)
class Call:
    """One permitted call."""

    method: str
    id: RpcId
    arguments: MethodCall


def parse_call(value: Json) -> Call:
    """The call in a decoded request. Raises :class:`InvalidRpc` if it is not permitted."""
    # One object: arrays, that is, batches, are not supported.
    if not isinstance(value, dict) or not set(value) <= {"jsonrpc", "id", "method", "params"}:
        raise InvalidRpc
    if value.get("jsonrpc", "2.0") != "2.0":
        raise InvalidRpc
    identifier = _rpc_id(value.get("id"))
    method, params = value.get("method"), value.get("params", {})
    # Parameters by name only: a list means something else in every version of a method.
    if not isinstance(method, str) or method not in METHODS or not isinstance(params, dict):
        raise MethodNotPublic
    table = METHODS[method]
    if not set(params) <= set(table):
        raise UnsupportedParameter
    arguments = {name: _argument(table, params, name) for name in table}
    # Each parameter's parser returns the type of the field with the same name.
    return Call(method, identifier, _CALLS[method](**arguments))  # type: ignore[arg-type]


def _argument(table: Mapping[str, Parameter], params: dict[str, Json], name: str) -> Argument:
    parameter = table[name]
    if name in params and params[name] is not None:
        return parameter.read(params[name])
    if parameter.required:
        raise InvalidParameter
    return parameter.default


def _rpc_id(value: Json) -> RpcId:
    if value is None or type(value) is int or isinstance(value, str):
        return value
    # CometBFT cuts off what is behind the point, and answers with the integer.
    if isinstance(value, float) and abs(value) < 2**63:
        return int(value)
    raise InvalidRpc


def _integer(low: int, high: int = 2**63 - 1) -> Callable[[Json], int]:
    def read(value: Json) -> int:
        # CometBFT writes 64-bit integers as strings, and reads both.
        if isinstance(value, str) and re.fullmatch(r"(?:0|[1-9][0-9]{0,18})", value):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise InvalidParameter
        return value

    return read


def _per_page(value: Json) -> int:
    number = _integer(1)(value)
    if number > VALIDATORS_PER_PAGE:
        raise TooManyPerPage
    return number


def _current_height(value: Json) -> int:
    # The ledger keeps no older states.
    if value not in (0, "0") or value is False:
        raise QueryNotPublic
    return 0


def _no_proof(value: Json) -> bool:
    if value is not False:
        raise QueryNotPublic
    return False


def _path(value: Json) -> str:
    if not isinstance(value, str) or value not in PUBLIC_QUERIES:
        raise QueryNotPublic
    return value


def _query_data(value: Json) -> bytes:
    if not isinstance(value, str) or not re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", value):
        raise InvalidParameter
    if len(value) > 2 * QUERY_BYTES:
        raise InvalidParameter
    return bytes.fromhex(value)


def _transaction(value: Json) -> bytes:
    if not isinstance(value, str):
        raise InvalidTransactionEncoding
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidTransactionEncoding from None
    return raw


PUBLIC_QUERIES = frozenset(
    {
        "/summary",
        "/account",
        "/validators",
        "/manifest",
        "/task",
        "/jobs",
        "/job",
        # Queries that exist only on this network.
        "/stake",
        "/proofs",
    }
)

_HEIGHT = {"height": Parameter(_integer(1))}
_TX = {"tx": Parameter(_transaction, required=True)}

METHODS: Mapping[str, Mapping[str, Parameter]] = {
    "status": {},
    "block": _HEIGHT,
    "commit": _HEIGHT,
    "validators": {
        **_HEIGHT,
        "page": Parameter(_integer(1, 1_000_000), 1),
        "per_page": Parameter(_per_page, DEFAULT_PER_PAGE),
    },
    "abci_query": {
        "path": Parameter(_path, required=True),
        "data": Parameter(_query_data, b""),
        "height": Parameter(_current_height, 0),
        "prove": Parameter(_no_proof, False),
    },
    "broadcast_tx_sync": _TX,
    "broadcast_tx_commit": _TX,
}

_CALLS: Mapping[str, type[MethodCall]] = {
    "status": StatusCall,
    "block": BlockCall,
    "commit": CommitCall,
    "validators": ValidatorsCall,
    "abci_query": QueryCall,
    "broadcast_tx_sync": BroadcastSyncCall,
    "broadcast_tx_commit": BroadcastCommitCall,
}
