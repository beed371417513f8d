"""A toy node and its answers. It conforms, and each hook makes it violate one sentence.

A hook sees every HTTP answer before it is encoded, and every gRPC answer as a message. Tests change
only hooks; the toy itself always conforms.
"""

import json
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from conformance import messages
from conformance.judging.toy import openai
from conformance.judging.toy.answers import (
    Asked,
    GrpcHook,
    HttpHook,
    Response,
    Sent,
    day,
    error,
    named_operation,
    no_grpc_hook,
    no_http_hook,
    now,
    read_json,
    same_call,
    same_request,
)
from conformance.judging.toy.calls import HELD, LAYERS, SHAPE, SIGNED, ToyShard, ToyTable, trained
from conformance.judging.toy.money import Account, balance, body_fault, last_of, poor, term_of
from conformance.judging.toy.native import NATIVE, native
from conformance.judging.toy.prompts import inference_fault
from conformance.messagefile import MessageFile
from conformance.target import GRPC_PORT_OFFSET

# Of what is nobody's, and is read only.
READ_ONLY = (
    "/api/training", "/api/network", "/api/block", "/api/model", "/api/validators", "/api/inference"
)  # fmt: skip
TOKEN = "toy-token-0123456789"  # noqa: S105 - the toy protects nothing
SECOND = "toy-second-0123456789"
EXPIRED = "toy-expired-9876543210"
NODE_ID = bytes(range(20))
AUTH = {"/inference", "/wallet/balance", "/wallet/transactions", "/wallet/send", "/wallet/stake",
        "/wallet/unstake", "/peers", "/layers", "/config", "/proofs"}  # fmt: skip
COST, FEE = 0.001, 0.0005
GRADIENT = messages.make(
    "GossipGradientRequest", node_id="ab" * 20, round_id=3, model_hash="a" * 64, batch_size=1,
    layer_gradients={"embedding": b"values"}, signature=SIGNED, ttl=1,
).SerializeToString()  # fmt: skip
NATIVE_SETTINGS: dict[str, Any] = {
    **NATIVE,
    "gradient": MessageFile("gradient.bin", GRADIENT),
    "legacy_gone": ("/api/register",), "legacy_redirected": ("/login",),
    "pipeline": {"format": "float32", "shard": 2, "absent_shard": 4096, "hidden_shape": [1, 2, 8],
                 "last": True, "training": True, "past_entries": 1,
                 "backward_metadata": {"training": "1"}},
}  # fmt: skip
LETTERS = ["the", "toy", "node", "says", "that", "all", "is", "well", "and", "says", "it", "again"]


class ToyNode:
    """The state of the toy, and its answers."""

    def __init__(self) -> None:
        self.http_hook: HttpHook = no_http_hook
        self.grpc_hook: GrpcHook = no_grpc_hook
        # These change requests before they are served, and where the service is found.
        self.rewrite: Callable[[Sent], Sent] = same_request
        self.rewrite_call: Callable[[str, bytes], bytes] = same_call
        self.operation_of: Callable[[str], str | None] = named_operation
        # Set if the answers come from a real node, and the toy is only a layer in front of it.
        self.upstream: Callable[[str, str, bytes, dict[str, str]], Response] | None = None
        self.upstream_rpc: Callable[[str, ToyNode], Any] | None = None
        self._port = 8000
        self.reset()

    def reset(self) -> None:
        """Forget everything that requests have changed."""
        self._moving = threading.Lock()
        self.generated = 10
        self.began, self.started = time.monotonic(), now()
        self.requests = 0
        self.dht, self.pipeline = ToyTable(NODE_ID), ToyShard()
        # The accounts, by their tokens.
        self.tokens = {TOKEN: Account("toy", 1000.0, 5.0), SECOND: Account("second", 1000.0)}
        self.config: dict[str, Any] = {
            "node_id": NODE_ID.hex(),
            "tracker_url": "http://tracker.invalid:8000",
            "training": {"enabled": True, "batch_size": 8, "learning_rate": 0.001,
                         "diloco_steps": 500},
            "resources": {"max_memory_gb": 16.0, "cpu_threads": 4},
        }  # fmt: skip
        self.listen_at(self._port)

    def listen_at(self, port: int) -> None:
        """Show this port for HTTP, and the one that belongs to it for gRPC."""
        self._port = port
        self.config.update(port=port, grpc_port=port + GRPC_PORT_OFFSET)
        self.dht.listen_at(port + GRPC_PORT_OFFSET)

    def answered(self, sent: Sent) -> tuple[Asked, Response]:
        """Serve one request without any hook, and return it parsed, with its answer."""
        parts = urlsplit(sent.target)
        scheme, _, token = sent.header("Authorization").partition(" ")
        given = token if scheme.lower() == "bearer" else None
        try:
            body = read_json(sent.body) if sent.body else None
        except ValueError:
            body, broken = None, True
        else:
            broken = False
        header = sent.header("Authorization") or None
        let_in = given in self.tokens
        asked = Asked(sent.method, parts.path, body, let_in, parts.query, header)
        if self.upstream is not None:
            # Pass the request on to a real node, byte for byte.
            response = self.upstream(sent.method, sent.target, sent.body, sent.headers)
            let_in = response.status != 401
            return replace(asked, authorized=let_in), response
        if broken and parts.path.startswith("/v1/"):
            return asked, openai.refused(400, "the body is not JSON")
        if broken and parts.path.removeprefix("/api/v1") in AUTH and not let_in:
            return asked, error(401, "UNAUTHORIZED", "the token is not valid")
        if broken:
            return asked, error(400, "INVALID_REQUEST", "the body is not JSON")
        method = "GET" if sent.method == "HEAD" else sent.method
        return asked, self.answer(replace(asked, method=method), parse_qs(parts.query), given)

    def valid_headers(self) -> dict[str, str]:
        """Return the headers of a request of the first account."""
        return self.all_headers()[0]

    def all_headers(self) -> list[dict[str, str]]:
        """Return the headers of requests of every account."""
        return [
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            for token in self.tokens
        ]

    def answer(self, asked: Asked, query: dict[str, list[str]], token: str | None) -> Response:
        """Answer one request, without the hook."""
        if asked.path.startswith(READ_ONLY) and asked.method in ("POST", "DELETE"):
            return error(405, "METHOD_NOT_ALLOWED", "there is only GET")
        if asked.path.startswith("/api/training/"):
            return self._training(asked)
        if asked.path.startswith("/v1/"):
            return openai.answer(asked)
        path = asked.path.removeprefix("/api/v1")
        if path != asked.path and path in AUTH and token not in self.tokens:
            return error(401, "UNAUTHORIZED", "the token is not valid")
        if not all(value.isdecimal() for value in query.get("limit", ())):
            return error(400, "INVALID_REQUEST", "limit is no number")
        found = native(asked, {key: values[0] for key, values in query.items()})
        if found is not None:
            return found
        if asked.path == "/api/register":
            return Response(410, {})
        if asked.path == "/login":
            return Response(302, {}, headers={"Location": "/join?from=login"})
        if path == asked.path or path != f"/{path.strip('/')}":
            return error(404, "NOT_FOUND", "no such path")
        handler = getattr(
            self, f"_{asked.method.lower()}_{path.strip('/').replace('/', '_')}", None
        )
        if handler is None:
            return error(404, "NOT_FOUND", "no such path")
        result: Response = handler(asked, query)
        return result

    def _get_status(self, asked: Asked, query: Any) -> Response:
        return Response(json={
            "node_id": self.config["node_id"], "version": "1.0",
            "uptime_seconds": int(time.monotonic() - self.began), "status": "running",
            "role": "validator", "layers": list(HELD), "peer_count": 1,
            "training": {"enabled": self.config["training"]["enabled"], "epoch": 1, "step": 2,
                         "loss": 2.5},
            "resources": {"gpu_memory_used": 0, "gpu_memory_total": 0, "cpu_percent": 3.5,
                          "ram_used": 1024},
        })  # fmt: skip

    def _get_metrics(self, asked: Asked, query: Any) -> Response:
        return Response(json={
            "timestamp": now(),
            "inference": {"requests_total": self.requests, "requests_per_minute": 0.5,
                          "avg_latency_ms": 1.5, "p99_latency_ms": 3,
                          "tokens_generated": self.generated},
            "training": {"steps_total": 1, "steps_per_hour": 2, "gradients_submitted": 3,
                         "gradients_accepted": 3},
            "network": {"bytes_sent": 1, "bytes_received": 2, "active_connections": 1,
                        "rpc_calls": 4},
            "rewards": {"earned_today": 0.5, "earned_total": 1.5, "pending": 0},
        })  # fmt: skip

    def _get_health(self, asked: Asked, query: Any) -> Response:
        checks = {"gpu": "absent", "network": "ok", "storage": "ok", "peers": "ok"}
        return Response(json={"healthy": True, "checks": checks})

    def _get_network(self, asked: Asked, query: Any) -> Response:
        return Response(json={
            "nodes": {"total": 3, "drivers": 1, "workers": 1, "validators": 1},
            "architecture": {"layers": LAYERS, "hidden_dim": SHAPE[-1], "parameters": "1.2M"},
            "capacity": {"total_memory_gb": 48.0, "used_memory_gb": 3.5},
            "training": {"epoch": 1, "global_step": 10, "loss": 2.5},
        })  # fmt: skip

    def _account(self, asked: Asked) -> Account:
        return self.tokens[(asked.authorization or "").partition(" ")[2]]

    def _get_wallet_balance(self, asked: Asked, query: Any) -> Response:
        return Response(json=balance(self._account(asked)))

    def _post_wallet_send(self, asked: Asked, query: Any) -> Response:
        body, account = asked.body, self._account(asked)
        fault = body_fault(body, "to", "memo")
        if fault or not body.get("to"):
            return error(400, "INVALID_REQUEST", fault or "to is required")
        # Nothing but the fee would show of a transfer to oneself, so that a layer can refuse it.
        fee = 0 if body["to"] == account.address else FEE
        cost = body["amount"] + fee
        with self._moving:
            # Of two at the same moment the second sees what the first has left.
            if cost > account.available:
                return poor(cost, account)
            account.available -= cost
        entry = {"id": uuid.uuid4().hex, "type": "send", "amount": -body["amount"],
                 "timestamp": now(), "to": body["to"]}  # fmt: skip
        account.history.insert(0, entry)
        for other in self.tokens.values():
            if other.address == body["to"]:
                other.available += body["amount"]
                if other is not account:
                    other.history.insert(0, {**entry, "amount": body["amount"], "type": "receive"})
        return Response(json={
            "transaction_id": entry["id"], "from": account.address, "to": body["to"],
            "amount": body["amount"], "fee": fee, "memo": body.get("memo", ""),
            "status": "confirmed",
            "timestamp": now(),
        })  # fmt: skip

    def _post_wallet_stake(self, asked: Asked, query: Any) -> Response:
        if fault := body_fault(asked.body):
            return error(400, "INVALID_REQUEST", fault)
        if "duration_days" not in asked.body:
            return error(400, "INVALID_REQUEST", "duration_days is required")
        amount, days = asked.body["amount"], asked.body["duration_days"]
        account = self._account(asked)
        if amount > account.available:
            return poor(amount, account)
        account.available, account.staked = account.available - amount, account.staked + amount
        term = term_of(days)
        account.staking = last_of(account.staking, term)
        return Response(json={
            "success": True, "stake": {"amount": amount, **term},
            "new_balance": {"available": account.available, "staked": account.staked},
        })  # fmt: skip

    def _post_wallet_unstake(self, asked: Asked, query: Any) -> Response:
        if fault := body_fault(asked.body):
            return error(400, "INVALID_REQUEST", fault)
        amount, account = asked.body["amount"], self._account(asked)
        # What is shown is rounded, and may be asked for.
        if amount > round(account.staked, 6):
            return error(400, "INVALID_REQUEST", "less is staked")
        amount = min(amount, account.staked)
        account.staked, account.pending = account.staked - amount, account.pending + amount
        if not round(account.staked, 6):
            account.staking = {}
        unstake = {"amount": amount, "cooldown_days": 7, "available_date": day(7)}
        return Response(json={"success": True, "unstake": unstake})

    def _get_wallet_transactions(self, asked: Asked, query: dict[str, list[str]]) -> Response:
        older = [
            {"id": "t1", "type": "reward", "amount": 1.5, "timestamp": self.started,
             "details": {"proof_id": "p1", "role": "worker"}},
            {"id": "t2", "type": "send", "amount": -0.5, "timestamp": self.started,
             "to": "somebody"},
            {"id": "t3", "type": "fee", "amount": -0.1, "timestamp": self.started},
        ]  # fmt: skip
        entries = [*self._account(asked).history, *older]
        limit, offset = (int(query.get(key, [default])[0]) for key, default in
                         (("limit", "20"), ("offset", "0")))  # fmt: skip
        page = [dict(entry) for entry in entries[offset : offset + limit]]
        return Response(
            json={"transactions": page, "total": len(entries), "limit": limit, "offset": offset}
        )

    def _get_peers(self, asked: Asked, query: Any) -> Response:
        peer = {"id": "p", "address": "192.0.2.1:9000", "role": "driver", "layers": [0, 1],
                "latency_ms": 1.5, "connected_since": self.started}  # fmt: skip
        return Response(json={"peers": [peer], "total": 1})

    def _get_layers(self, asked: Asked, query: Any) -> Response:
        layers = [
            {"index": index, "type": "transformer", "memory_mb": 3, "status": "active"}
            for index in HELD
        ]
        count = {"total_layers": LAYERS, "my_layer_count": len(HELD)}
        return Response(json={"layers": layers, **count})

    def _get_proofs(self, asked: Asked, query: dict[str, list[str]]) -> Response:
        proof = {"id": "p1", "type": "forward", "layer": 1, "timestamp": self.started,
                 "verified": True, "reward": 0.1}  # fmt: skip
        limit = int(query.get("limit", ["20"])[0])
        stats = {"total_submitted": 2, "total_verified": 2, "total_reward": 0.2}
        return Response(json={"proofs": [proof, {**proof, "id": "p2"}][:limit], "stats": stats})

    def _get_config(self, asked: Asked, query: Any) -> Response:
        return Response(json=json.loads(json.dumps(self.config)))

    def _patch_config(self, asked: Asked, query: Any) -> Response:
        sections = asked.body.values() if isinstance(asked.body, dict) else [None]
        if not all(isinstance(inner, dict) for inner in sections):
            return error(400, "INVALID_REQUEST", "a change is a nested object")
        changes = [
            (section, key, value)
            for section, inner in asked.body.items()
            for key, value in inner.items()
        ]
        for section, key, value in changes:
            wanted: dict[str, Any] = {
                "enabled": bool,
                "learning_rate": (int, float),
                "max_memory_gb": (int, float),
            }
            fits = isinstance(value, wanted.get(key, int))
            if not fits or (key != "enabled" and isinstance(value, bool)):
                return error(400, "INVALID_REQUEST", f"{section}.{key} is of the wrong type")
            if value < 0:
                return error(400, "INVALID_REQUEST", f"{section}.{key} is below 0")
        for section, key, value in changes:
            self.config[section][key] = value
        updated = [f"{section}.{key}" for section, key, _ in changes]
        return Response(json={"success": True, "updated": updated, "restart_required": False})

    def _post_inference(self, asked: Asked, query: Any) -> Response:
        fault = inference_fault(asked.body)
        if fault:
            return error(400, "INVALID_REQUEST", fault)
        if self._account(asked).available < COST:
            return poor(COST, self._account(asked))
        self.requests += 1
        body = asked.body
        # Another prompt has another text.
        first = len(body["prompt"]) % len(LETTERS)
        most = min(body.get("max_tokens", 100), len(LETTERS))
        words = [*LETTERS[first:], *LETTERS[:first]][:most]
        text = " ".join(words)
        for stop in body.get("stop", []):
            text = text.split(stop)[0]
        tokens = re.findall(r"\S+\s*", text)
        read = len(body["prompt"].split()) + 1
        usage = {"prompt_tokens": read, "completion_tokens": len(tokens),
                 "total_tokens": read + len(tokens)}  # fmt: skip
        self.generated += len(tokens)
        self._account(asked).available -= COST
        if body.get("stream"):
            events: list[Any] = [{"token": token, "index": i} for i, token in enumerate(tokens)]
            events.append({"token": "[DONE]", "finish_reason": "stop", "usage": usage})
            return Response(events=events)
        return Response(json={
            "id": uuid.uuid4().hex, "text": text, "tokens_generated": len(tokens),
            "finish_reason": "stop", "usage": usage, "cost": {"amount": COST, "currency": "TOY"},
            "timing": {"queue_ms": 0, "inference_ms": 1.5, "total_ms": 1.6},
        })  # fmt: skip

    def _training(self, asked: Asked) -> Response:
        if asked.path == "/api/training/global":
            return Response(json={
                "global_avg_loss": 2.5, "global_min_loss": 2.0, "hash_agreement_rate": 1.0,
                "total_nodes_training": 3, "successful_syncs": 9, "failed_syncs": 1,
                "sync_success_rate": 0.9, "global_steps": 10, "global_tokens": 1000,
                "data_shards_covered": [1, 2], "is_converging": True, "training_verified": True,
                "loss_trend": "improving",
                "local": {"node_id": NODE_ID.hex(), "training_rounds": 1, "current_loss": 2.5,
                          "is_training": self.config["training"]["enabled"]},
                "diloco": {"enabled": True, "inner_step_count": 1, "inner_steps_total": 500,
                           "progress": 0.002, "outer_step_count": 0},
            })  # fmt: skip
        if asked.path == "/api/training/verify":
            metrics = {"loss_trend": "improving", "hash_agreement": "100%", "global_loss": 2.5}
            return Response(json={"is_working": True, "reason": "all is well", "metrics": metrics})
        return error(404, "NOT_FOUND", "no such path")

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        """Answer one gRPC call, without the hook; a string is a status code."""
        if operation.startswith("Pipeline"):
            return self.pipeline.call(operation, request, metadata)
        return self.dht.call(operation, request) if operation.startswith("DHT") else trained(
            operation, request)  # fmt: skip
