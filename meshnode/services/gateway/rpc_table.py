"""What ``/rpc`` takes: the methods, their parameters, and nothing else (document, 4.2 rules 1-3).

The two tables are the allowlist (decision 0079). A request becomes a :class:`Call` whose arguments
were each made anew by their parameter's reader; the engine sees the call and never the request, so
what is not in the tables cannot reach it. Pure functions.

Where the public network's gateway has a wording for a refusal, that wording is used.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from meshnode.domain.chain.canonical import Json, JsonLimits
from meshnode.domain.chain.errors import Rejected

REQUEST_BYTES = 32_768
REQUEST_LIMITS = JsonLimits(REQUEST_BYTES, depth=4)
"""An envelope with ``params`` is two deep; the rest is for a client's ``id``, which is then refused
by its own rule rather than by the parser."""
MAX_ID_CHARS = 128
QUERY_BYTES = 4096
VALIDATORS_PER_PAGE = 100
DEFAULT_PER_PAGE = 30
"""As in CometBFT."""

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
    """One parameter: how it is read, and what it is when it is absent."""

    read: Callable[[Json], Argument]
    default: Argument = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One permitted call."""

    method: str
    id: RpcId
    arguments: Mapping[str, Argument] = field(default_factory=dict)


def parse_call(value: Json) -> Call:
    """The call that a decoded request asks for; an :class:`InvalidRpc` for any other."""
    # One object: batches and notifications by array are not served.
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
    return Call(method, identifier, {name: _argument(table, params, name) for name in table})


def _argument(table: Mapping[str, Parameter], params: dict[str, Json], name: str) -> Argument:
    parameter = table[name]
    if name in params and params[name] is not None:
        return parameter.read(params[name])
    if parameter.required:
        raise InvalidParameter
    return parameter.default


def _rpc_id(value: Json) -> RpcId:
    # It is echoed, so it is bounded; a fraction would come back spelled differently.
    if value is None or type(value) is int:
        return value
    if isinstance(value, str) and len(value) <= MAX_ID_CHARS:
        return value
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
        # Of this network's own kinds.
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
