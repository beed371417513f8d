"""The fault layer: a proxy to a real node, whose answers the hooks change like those of the toy.

It parses each answer of the node (JSON, events, fields of messages), passes it to one hook, and
serialises it again. An answer that no hook changes keeps its meaning.
"""

import copy
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import grpc

from conformance import messages
from conformance.grpcwire import CHANNEL_OPTIONS
from conformance.judging.completion import complete
from conformance.judging.toy.answers import Response
from conformance.judging.toy.money import Account
from conformance.judging.toy.node import ToyNode
from conformance.sse import read

DEADLINE_S = 60
# Operations that a node can do only a few times are done once; later calls get the same answer.
UNSTAKE, BALANCE = "/api/v1/wallet/unstake", "/api/v1/wallet/balance"
ONCE = {("POST", UNSTAKE)}
# What says where a request ends, and to whom it goes.
FRAMING = ("host", "content-length", "transfer-encoding")
HOP_BY_HOP = {"content-length", "transfer-encoding", "connection", "date", "server", "content-type"}


class Layer(ToyNode):
    """A toy whose answers are those of a real node."""

    def __init__(self, url: str, address: str) -> None:
        """`url` is the node's HTTP address, `address` its gRPC address."""
        super().__init__()
        parts = urlsplit(url)
        self._real = parts.hostname or "", parts.port or 80
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        # How often the remembered answer to an unstake was given again.
        self._again = 0
        self._remembered: dict[tuple[str, str], Response] = {}
        self.upstream = self._http
        self.upstream_rpc = self._rpc

    def know_tokens(self, *tokens: str) -> None:
        """Tell the layer the tokens of the node's accounts, for requests of its own."""
        self.tokens = {token: Account("", 0.0) for token in tokens}

    def close(self) -> None:
        """Close the channel to the node."""
        self._channel.close()

    # -- HTTP -------------------------------------------------------------------------------

    def _is_for(self, headers: dict[str, str]) -> bool:
        """Whether a request is of the account whose answers are remembered, or of any."""
        shown = headers.get("Authorization", "")
        return not self.remembers_for or shown == f"Bearer {self.remembers_for}"

    def _http(self, method: str, target: str, sent: bytes, headers: dict[str, str]) -> Response:
        known = self._remembered.get((method, target))
        allowed = method == "GET" or self._is_for(headers)
        if known is not None and allowed:
            self._again += 1 if (method, target) in ONCE else 0
            return copy.deepcopy(known)
        connection = http.client.HTTPConnection(*self._real, timeout=DEADLINE_S)
        # The length is that of the body, which may have been rewritten.
        kept = {k: v for k, v in headers.items() if k.lower() not in FRAMING}
        try:
            connection.request(method, target, sent or None, kept)
            answer = connection.getresponse()
            response = _parsed(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()
        complete(method, target, headers.get("Authorization"), response)
        if target == BALANCE and self._is_for(headers):
            self._unstaked_again(response)
        if (method, target) in ONCE and response.status == 200:
            self._remembered[method, target] = copy.deepcopy(response)
        return response

    def _unstaked_again(self, response: Response) -> None:
        """Show the effect of the unstakes that the node has not been asked for."""
        first = self._remembered.get(("POST", UNSTAKE))
        if first is None or response.status != 200:
            return
        amount = self._again * first.json["unstake"]["amount"]
        for key in ("staked", "total"):
            response.json["balances"][key] = round(response.json["balances"][key] - amount, 6)
        staking = response.json["staking"]
        staking["amount"] = min(staking["amount"], response.json["balances"]["staked"])

    remembers_for = ""

    def freeze(self, target: str) -> None:
        """From now on, answer this GET with its current answer."""
        self._remembered["GET", target] = self._http("GET", target, b"", {})

    # -- gRPC -------------------------------------------------------------------------------

    def _rpc(self, operation: str, node: ToyNode) -> Any:
        path = f"/{messages.SERVICE}/{operation}"
        if operation == "StreamInference":
            call = self._channel.stream_stream(path)

            def stream(requests: Any, context: Any) -> Any:
                _ended(node.grpc_hook(operation, None, {}), context)
                try:
                    yield from call(requests, timeout=DEADLINE_S)
                except grpc.RpcError as error:
                    context.abort(error.code(), error.details() or "")

            return grpc.stream_stream_rpc_method_handler(stream)

        def unary(data: bytes, context: Any) -> bytes:
            return self._unary(operation, data, context)

        return grpc.unary_unary_rpc_method_handler(unary)

    def _unary(self, operation: str, data: bytes, context: Any) -> bytes:
        answer: Any
        data = self.rewrite_call(operation, data)
        try:
            body = self._channel.unary_unary(f"/{messages.SERVICE}/{operation}")(
                data, timeout=DEADLINE_S
            )
            details = ""
        except grpc.RpcError as error:
            body, details = error.code().name, error.details() or ""
        request, answer = None, body
        if operation in messages.OPERATIONS:
            request_name, response_name = messages.OPERATIONS[operation]
            try:
                request = messages.parse(request_name, data)
                if isinstance(body, bytes):
                    answer = _fields(messages.parse(response_name, body))
            except messages.BadMessage:
                request = None
        elif isinstance(body, bytes):
            answer = {}
        answer = self._hooked(operation, request, answer)
        if isinstance(answer, str):
            context.abort(grpc.StatusCode[answer], details or "by a hook")
        if isinstance(answer, bytes):
            return answer
        if operation not in messages.OPERATIONS:
            return bytes(body)
        made: bytes = messages.make(messages.OPERATIONS[operation][1], **answer).SerializeToString()
        return made

    def _hooked(self, operation: str, request: Any, answer: Any) -> Any:
        if isinstance(answer, str) or (operation in messages.OPERATIONS and request is None):
            # Hooks change answers; an error status can only become another status, unless the
            # hook says that it answers itself.
            try:
                changed = self.grpc_hook(operation, request, {})
            except (KeyError, AttributeError):
                return answer
            itself = getattr(self.grpc_hook, "answers_itself", False)
            return changed if itself or isinstance(changed, str) else answer
        return self.grpc_hook(operation, request, answer)


def _ended(answer: Any, context: Any) -> None:
    if isinstance(answer, str):
        context.abort(grpc.StatusCode[answer], "by a hook")


def _fields(message: Any) -> dict[str, Any]:
    found = {}
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and not field.is_repeated:
            if message.HasField(field.name):
                found[field.name] = getattr(message, field.name)
        else:
            value = getattr(message, field.name)
            found[field.name] = list(value) if field.is_repeated else value
    return found


def _parsed(status: int, headers: list[tuple[str, str]], body: bytes) -> Response:
    kind = next((value for key, value in headers if key.lower() == "content-type"), "")
    # Header names are spelled as the hooks spell them.
    rest = {key.title(): value for key, value in headers if key.lower() not in HOP_BY_HOP}
    response = Response(status, headers=rest)
    if kind.startswith("text/event-stream"):
        response.events = [
            event.data if event.fault else event.value for event in read(body).events
        ]
        return response
    if kind.startswith("application/json"):
        response.json = json.loads(body)
    else:
        # An artifact's address is its digest, so its bytes must not change.
        response.raw, response.headers["Content-Type"] = body, kind
    return response
