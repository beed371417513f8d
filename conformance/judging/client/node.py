"""The toy client: a node that joins, generates over its peer, and passes gradients on.

It holds the first layer of a model of two, and its peer the second. What it does is done when the
world's time says so, in the thread of whoever waits for it; only its server has threads.
"""

import contextlib
import hashlib
import math
import struct
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc

from conformance import messages
from conformance.judging.client.http2 import PingingConnection
from conformance.judging.client.manners import Manners
from conformance.judging.client.world import World
from conformance.messages import SERVICE
from conformance.peer.peer import Outcome
from conformance.target import GRPC_PORT_OFFSET

# Seconds between two beats; the second one follows soon, as when a node joins.
BEAT_S, SECOND_BEAT_S = 10.0, 3.0
LAYER = 1
BACKWARD = "PipelineBackward"
FIRST_ONLY = ("GetCheckpoint", "GetWeights", "DHTStore", "DHTFindValue")
SIGNED = "signed by a peer of the toy"
# The ID of the peer, and the version and the hash of the model.
MAKER = bytes(range(20))
MODEL = {"version": 3, "model_hash": "a" * 64}
NO_PORT = 70_000


class Refused(Exception):
    """A call ended with a status other than OK."""

    def __init__(self, code: str) -> None:
        """`code` is its name."""
        super().__init__(code)
        self.code = code


@dataclass
class Known:
    """A node that the toy has heard of: its HTTP address, and whether it has only been named."""

    host: str
    port: int
    named: bool = True


@dataclass
class ToyClient:
    """A context manager: inside, it serves and can be made to act."""

    peer: Known
    world: World
    manners: Manners = field(default_factory=Manners)

    def __enter__(self) -> "ToyClient":
        """Serve on a free port."""
        self._pool = ThreadPoolExecutor(8)
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
        self._server = grpc.server(self._pool, handlers=[_Rpc(self)], options=options)
        self.grpc_port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.peer.named = False
        self._known: list[Known] = [self.peer]
        self._next_beat = self.world.now()
        self._line: PingingConnection | None = None
        self._pinged: list[float] = []
        # Where passes came from, by their IDs, and where the latest one did.
        self._sender_urls: dict[tuple[str, str], str] = {}
        self._latest_url = ""
        # The gradients that have come.
        self._gossiped: set[bytes] = set()
        self._going: list[dict[str, Any]] = []
        self.answers_pings: Callable[[], bool] = lambda: True
        self._beats = 0
        return self

    def __exit__(self, *error_info: object) -> None:
        """Stop."""
        if self._line is not None:
            self._line.close()
        self._server.stop(0).wait()
        self._pool.shutdown()

    @property
    def connections(self) -> int:
        """How many connections to its peer are open."""
        return int(self._line is not None and not self._line.closed)

    # -- what is due ----------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due now."""
        if self.world.now() >= self._next_beat:
            self._next_beat = self.world.now() + (BEAT_S if self._beats else SECOND_BEAT_S)
            self._beat()
        self._pass_back()
        self._keep_alive()

    def _beat(self) -> None:
        self._beats += 1
        for operation, fields in (
            ("DHTPing", {}),
            ("DHTFindNode", {"target_id": self._id()[: self.manners.target_bytes]}),
            ("DHTStore", {"key": _key("layer 0"), "value": f"127.0.0.1:{self._http_port}"}),
            ("DHTFindValue", {"key": _key("layer 1")}),
            ("GetCheckpoint", {"model_hash": "a" * 64, "min_version": 1}),
            ("GetWeights", {"shard_range": "0-1"}),
        ):
            sender = {"sender": self._me()} if operation.startswith("DHT") else {}
            if self._beats > 1 and operation in FIRST_ONLY:
                continue
            try:
                answer = self._patiently(self.peer, operation, {**sender, **fields})
            except Refused:
                continue
            if operation == "DHTFindNode":
                self._hear_of(answer.nodes)

    def _hear_of(self, nodes: Any) -> None:
        for node in nodes:
            if any(known.port == node.port for known in self._known):
                continue
            known = Known(node.ip, node.port)
            self._known.append(known)
            known.named = not self._try(known, "DHTPing", {"sender": self._me()})
            if known.named and self.manners.asks_who_is_named:
                self._try(known, "GetShardInfo", {})

    def _try(self, known: Known, operation: str, fields: dict[str, Any]) -> bool:
        try:
            self._call(known, operation, fields)
        except Refused:
            return False
        return True

    def _keep_alive(self) -> None:
        every, timeout = self.manners.ping_every_s, self.manners.ping_timeout_s
        now = self.world.now()
        if self._line is None or self._line.closed:
            if self.manners.port_offset != GRPC_PORT_OFFSET:
                return
            self._line = PingingConnection(self.peer.host, self.peer.port + GRPC_PORT_OFFSET)
            self._last_ping, self._unanswered = now, None
            return
        if self._unanswered is not None:
            if timeout is not None and now - self._unanswered >= timeout:
                self._line.close()
            return
        if every is not None and now - self._last_ping >= every:
            answered = self.answers_pings()
            self._line.ping(answered=answered)
            self._last_ping = now
            self._unanswered = None if answered else now

    _last_ping = 0.0
    _unanswered: float | None = None

    # -- who it is ------------------------------------------------------------------------------

    @property
    def _http_port(self) -> int:
        return int(self.grpc_port) - GRPC_PORT_OFFSET

    def _id(self) -> bytes:
        changing = "" if self.manners.same_id else str(self._beats)
        digest = hashlib.sha1(b"the toy client" + changing.encode()).digest()  # noqa: S324
        return digest[: self.manners.id_bytes]

    def _me(self) -> Any:
        port = self._http_port if self.manners.reachable else 1
        port = port if self.manners.names_port else NO_PORT
        return messages.make("DHTNodeInfo", node_id=self._id(), ip="127.0.0.1", port=port)

    # -- calls ----------------------------------------------------------------------------------

    def _call(
        self, known: Known, operation: str, fields: dict[str, Any], deadline_s: float | None = None
    ) -> Any:
        # The document does not show every message.
        asked, answered = messages.OPERATIONS.get(operation, ("", ""))
        body = messages.make(asked, **fields).SerializeToString() if asked else b""
        body = self.manners.rewrite(operation, body)
        limit = self.manners.max_receive
        options = [
            ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
            ("grpc.http2.bdp_probe", 0), ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", limit),
        ]  # fmt: skip
        to_http = self.manners.passes_to_http and operation == "GossipGradient"
        address = f"{known.host}:{known.port + (0 if to_http else self.manners.port_offset)}"
        with grpc.insecure_channel(address, options=options) as channel:
            timeout_s = deadline_s or self.manners.deadline_s
            try:
                # The machine may be busy; the toy's own time stands still while it waits.
                data = channel.unary_unary(f"/{SERVICE}/{operation}")(
                    body, timeout=None if timeout_s is None else timeout_s * 10
                )
            except grpc.RpcError as error:
                raise Refused(error.code().name) from None
        return messages.parse(answered, data) if answered else data

    def _patiently(
        self, known: Known, operation: str, fields: dict[str, Any], deadline: float | None = None
    ) -> Any:
        """Make a call, and do about its failure what the document says."""
        manners, pause = self.manners, self.manners.pause_s
        deadline = deadline or manners.deadline_s
        for attempt in range(1, manners.attempts + 1):
            try:
                return self._call(known, operation, fields, deadline)
            except Refused as refused:
                last = attempt == manners.attempts
                if last or refused.code not in manners.repeats:
                    raise
                if refused.code in manners.pauses_for:
                    self.world.sleep(pause)
                    pause = min(2 * pause, manners.longest_pause_s)
                if refused.code == "DEADLINE_EXCEEDED" and deadline and manners.raises_deadline:
                    deadline *= 2
            if manners.new_request_id and "request_id" in fields:
                fields = {**fields, "request_id": uuid.uuid4().hex}
        raise AssertionError("unreachable")

    # -- a generation ---------------------------------------------------------------------------

    def infer(self) -> Outcome:
        """Generate one token over the peer, as for a client of its own."""
        shape = list(self.manners.shape)
        count = math.prod(shape)
        fields = {
            "session_id": uuid.uuid4().hex,
            "request_id": uuid.uuid4().hex,
            "hidden_states": struct.pack(f"<{count}f", *(at % 5 - 2 for at in range(count))),
            "hidden_shape": shape,
            "attention_mask": b"\1\1",
            "position_ids": struct.pack("<2q", 0, 1),
            "past_key_values": [b""],
            "training_labels": struct.pack("<2q", 1, 1),
            "use_cache": True,
            "source_shard": 1,
            "target_shard": LAYER,
            "sender_url": self._own_url(),
        }
        try:
            answer = self._patiently(self.peer, "PipelineForward", fields)
        except Refused:
            return Outcome(503)
        self._try(self.peer, "PipelineBackward", {
            "session_id": fields["session_id"], "request_id": fields["request_id"],
            "grad_output": answer.hidden_states, "grad_shape": shape, "target_shard": LAYER,
        })  # fmt: skip
        return Outcome(200 if answer.success and self._is_believed(answer) else 502)

    def _own_url(self) -> str:
        own = f"127.0.0.1:{self.grpc_port}"
        return own if self.manners.sender_url == "own" else self.manners.sender_url

    def _is_believed(self, answer: Any) -> bool:
        count = math.prod(answer.hidden_shape)
        if len(answer.hidden_states) != 4 * count:
            return not self.manners.checks_shapes
        values = struct.unpack(f"<{count}f", answer.hidden_states)
        return all(map(math.isfinite, values)) or not self.manners.checks_numbers

    # -- its server -----------------------------------------------------------------------------

    def serve(self, operation: str, request: Any) -> dict[str, Any] | str:
        """Answer a call: fields, or the name of a status."""
        if operation == "DHTPing":
            return {"responder": self._me()}
        if operation == "GetCheckpointInfo":
            return dict(MODEL)
        if operation == "GossipGradient":
            return self._take_gradient(request)
        if operation == "PipelineForward":
            named = self._named(request.session_id, request.request_id)
            self._sender_urls[named] = self._latest_url = request.sender_url
            return {
                "request_id": request.request_id, "success": True,
                "hidden_states": request.hidden_states, "hidden_shape": list(request.hidden_shape),
            }  # fmt: skip
        if operation == "PipelineBackward":
            return self._take_gradients_back(request)
        return "UNIMPLEMENTED"

    def _named(self, session_id: str, request_id: str) -> tuple[str, str]:
        """Return the name under which a pass is kept."""
        return ("" if self.manners.forgets_sessions else session_id, request_id)

    def _take_gradient(self, request: Any) -> dict[str, Any]:
        usual = request.layer_gradients and request.model_hash == MODEL["model_hash"]
        usual = usual and request.round_id == MODEL["version"] and not request.signature
        content = request.SerializeToString(deterministic=True)
        again = content in self._gossiped
        self._gossiped.add(content)
        accepted = bool(usual) or request.signature == SIGNED
        goes = accepted or self.manners.passes_refused
        if goes and (self.manners.passes_again or not again):
            self._pass_on(request)
        told = {"accepted": accepted, "current_round": MODEL["version"]}
        return told if accepted else {**told, "reason": "of another model, or not signed"}

    def _pass_on(self, request: Any) -> None:
        """Send a gradient to all that the toy knows but the node that it is of."""
        going = type(request)()
        going.CopyFrom(request)
        going.ttl = max(going.ttl - self.manners.ttl_step, self.manners.ttl_least)
        going.batch_size += self.manners.changes_gossip
        fields = {item.name: value for item, value in going.ListFields()}
        for known in self._known:
            back = known is self.peer and request.node_id == MAKER.hex()
            goes = request.ttl >= self.manners.passes_from_ttl and not known.named
            if goes and (self.manners.passes_back or not back):
                for _ in range(self.manners.gossip_attempts):
                    if self._try(known, "GossipGradient", fields):
                        break

    def _take_gradients_back(self, request: Any) -> dict[str, Any]:
        if not self._sender_urls.get(self._named(request.session_id, request.request_id)):
            return {"success": False, "error_message": "no such session"}
        if self.manners.passes_gradients:
            fields = {item.name: value for item, value in request.ListFields()}
            if not self.manners.back_unchanged:
                # Those of its layers are others than what came: here, the same values turned round.
                fields["grad_output"] = request.grad_output[::-1]
            self._going += [fields] * (2 if self.manners.passes_twice else 1)
        return {"success": True}

    def _pass_back(self) -> None:
        """Send gradients on to where their passes came from."""
        going, self._going = self._going, []
        for fields in going:
            own = self._sender_urls[self._named(fields["session_id"], fields["request_id"])]
            url = self._latest_url if self.manners.passes_to_latest else own
            scheme, _, address = url.rpartition("//")
            host, _, port = address.rpartition(":")
            if self.manners.back_shape:
                fields = {**fields, "grad_shape": list(self.manners.back_shape)}
            offset = 0 if scheme and not self.manners.back_to_http else GRPC_PORT_OFFSET
            with contextlib.suppress(Refused):
                sender = Known(host, int(port) - offset)
                self._patiently(sender, BACKWARD, fields, self.manners.back_deadline_s)


def _key(name: str) -> bytes:
    return hashlib.sha1(name.encode()).digest()  # noqa: S324 - the document's digest


class _Rpc(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Serves the toy's operations."""

    def __init__(self, toy: ToyClient) -> None:
        self._toy = toy

    def service(self, call: Any) -> Any:
        """Return the handler of one call."""
        operation = str(call.method).rpartition("/")[2]
        if operation not in messages.OPERATIONS:
            return None

        def unary(data: bytes, context: Any) -> bytes:
            asked, answered = messages.OPERATIONS[operation]
            answer = self._toy.serve(operation, messages.parse(asked, data))
            if isinstance(answer, str):
                context.abort(grpc.StatusCode[answer], "by the toy")
                return b""
            return bytes(messages.make(answered, **answer).SerializeToString())

        return grpc.unary_unary_rpc_method_handler(unary)
