"""JSON Schemas of the node API's bodies (document, sections 2.1, 4.1, 6 and 7.1).

The document's tables in another notation: same names, same types. Answers are closed, since the
node makes them; requests are open where unknown keys are ignored.
"""

from __future__ import annotations

from typing import Any

from meshnode.domain.addresses import NODE_URLS_OR_EMPTY
from meshnode.domain.inference_rules import (
    MAX_COUNT,
    MAX_SEED,
    MAX_STOP_CHARS,
    MAX_STOP_STRINGS,
    MAX_TEMPERATURE,
)

Json = dict[str, Any]

STRING: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
BOOL: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
AMOUNT: Json = {"type": "number", "minimum": 0}
TIMESTAMP: Json = {"type": "string", "format": "date-time", "pattern": "Z$"}
ROLE: Json = {"type": "string", "enum": ["driver", "worker", "validator"]}
SHARE: Json = {"type": "number", "minimum": 0, "maximum": 1}
TREND: Json = {"type": "string", "enum": ["unknown", "improving", "stable", "worsening"]}
PORT: Json = {"type": "integer", "minimum": 1, "maximum": 65535}


def ref(name: str) -> Json:
    """A reference to a schema of this module."""
    return {"$ref": f"#/components/schemas/{name}"}


def closed(**properties: Json) -> Json:
    """An object with exactly these keys."""
    return {**optional(**properties), "required": list(properties)}


def extended(schema: Json, **more: Json) -> Json:
    """``schema``, and further keys that an answer may have."""
    return {**schema, "properties": {**schema["properties"], **more}}


def optional(**properties: Json) -> Json:
    """An object with some of these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def array(items: Json, **limits: int) -> Json:
    """An array of ``items``."""
    return {"type": "array", "items": items, **limits}


def integer(low: int, high: int, **more: Any) -> Json:
    """An integer in a range."""
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def above_zero(high: float) -> Json:
    """A number above zero."""
    return {"type": "number", "exclusiveMinimum": 0, "maximum": high}


_TRAINING_CONFIG = {
    "enabled": BOOL,
    "batch_size": integer(1, 65536),
    "learning_rate": above_zero(1),
    "diloco_steps": integer(1, 1_000_000),
}
_RESOURCES_CONFIG = {
    "max_memory_gb": above_zero(65536),
    "cpu_threads": integer(1, 1024),
}
_TRACKER_URL: Json = {
    "type": "string",
    "pattern": NODE_URLS_OR_EMPTY,
    "description": "http://HOST:PORT of a node to join through, or several with commas in between; "
    "empty for none.",
}
_TOKEN: Json = {
    "type": "string",
    "description": "Text of one token. Empty while a character or a stop string is incomplete.",
}
DATE: Json = {"type": "string", "format": "date"}
ACCOUNT: Json = {
    "type": "string",
    "pattern": "^0[23][0-9a-f]{64}$",
    "description": "A compressed secp256k1 public key.",
}
APPLICATION_ID: Json = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
PAYMENT: Json = {
    "type": "number",
    "minimum": 1e-6,
    "maximum": 1152921504606.846976,
    "description": "Whole units, with at most six decimals.",
}
STAKE: Json = closed(
    amount=AMOUNT,
    duration_days=COUNT,
    start_date=DATE,
    unlock_date=DATE,
    multiplier={"type": "number", "minimum": 1},
)

SCHEMAS: Json = {
    "NodeStatus": closed(
        node_id=STRING,
        version=STRING,
        uptime_seconds=COUNT,
        status={"type": "string", "enum": ["running", "draining"]},
        role=ROLE,
        layers=array(COUNT),
        peer_count=COUNT,
        training=closed(enabled=BOOL, epoch=COUNT, step=COUNT, loss=NUMBER),
        resources=closed(
            gpu_memory_used=COUNT,
            gpu_memory_total=COUNT,
            cpu_percent={"type": "number", "minimum": 0, "maximum": 100},
            ram_used=COUNT,
        ),
    ),
    "Metrics": extended(
        closed(
            timestamp=TIMESTAMP,
            inference=closed(
                requests_total=COUNT,
                requests_per_minute=AMOUNT,
                avg_latency_ms=AMOUNT,
                p99_latency_ms=AMOUNT,
                tokens_generated=COUNT,
            ),
            training=closed(
                steps_total=COUNT,
                steps_per_hour=COUNT,
                gradients_submitted=COUNT,
                gradients_accepted=COUNT,
            ),
            network=closed(
                bytes_sent=COUNT, bytes_received=COUNT, active_connections=COUNT, rpc_calls=COUNT
            ),
            rewards=closed(earned_today=AMOUNT, earned_total=AMOUNT, pending=AMOUNT),
        ),
        # Of a node that drives layers of others (decisions/0039).
        pipeline=closed(
            generations=COUNT,
            failovers=COUNT,
            hop_queue_ms=AMOUNT,
            hop_compute_ms=AMOUNT,
            hop_network_ms=AMOUNT,
            hop_network_p99_ms=AMOUNT,
        ),
    ),
    "Health": closed(
        healthy=BOOL, checks=closed(gpu=STRING, network=STRING, storage=STRING, peers=STRING)
    ),
    "InferenceRequest": {
        "type": "object",
        "required": ["prompt"],
        "properties": {
            "prompt": {"type": "string", "minLength": 1},
            "max_tokens": integer(1, MAX_COUNT, default=100),
            "temperature": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_TEMPERATURE,
                "default": 1.0,
                "description": "0 always takes the most probable token.",
            },
            "top_p": {"type": "number", "minimum": 0, "maximum": 1, "default": 1.0},
            "top_k": integer(0, MAX_COUNT, default=50, description="0 switches the limit off."),
            "stream": {"type": "boolean", "default": False},
            "stop": array(
                {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS},
                maxItems=MAX_STOP_STRINGS,
            )
            | {"default": []},
            "seed": integer(0, MAX_SEED, description="Makes sampling repeatable."),
        },
    },
    "Usage": closed(prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT),
    "FinishReason": {"type": "string", "enum": ["stop", "length"]},
    "InferenceResult": closed(
        id=STRING,
        text=STRING,
        tokens_generated=COUNT,
        finish_reason=ref("FinishReason"),
        usage=ref("Usage"),
        cost=closed(amount=AMOUNT, currency=STRING),
        timing=closed(queue_ms=AMOUNT, inference_ms=AMOUNT, total_ms=AMOUNT),
    ),
    "TokenEvent": closed(token=_TOKEN, index=COUNT),
    "FinalEvent": closed(
        token={"const": "[DONE]"}, finish_reason=ref("FinishReason"), usage=ref("Usage")
    ),
    "InferenceEvent": {
        "type": "object",
        "description": (
            "One event of a stream, when stream is true: a token, the end, or an error that broke "
            "the stream off."
        ),
        "required": ["data"],
        "properties": {
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"oneOf": [ref("TokenEvent"), ref("FinalEvent"), ref("Error")]},
            }
        },
    },
    "Peers": closed(
        peers=array(
            closed(
                id={"type": "string", "pattern": "^[0-9a-f]{40}$"},
                address=STRING,
                role=ROLE,
                layers=array(COUNT),
                latency_ms=AMOUNT,
                connected_since=TIMESTAMP,
            )
        ),
        total=COUNT,
    ),
    "Network": closed(
        nodes=closed(total=COUNT, drivers=COUNT, workers=COUNT, validators=COUNT),
        architecture=closed(layers=COUNT, hidden_dim=COUNT, parameters=STRING),
        capacity=closed(total_memory_gb=AMOUNT, used_memory_gb=AMOUNT),
        training=closed(epoch=COUNT, global_step=COUNT, loss=NUMBER),
    ),
    "GlobalTraining": closed(
        global_avg_loss=NUMBER,
        global_min_loss=NUMBER,
        hash_agreement_rate=SHARE,
        total_nodes_training=COUNT,
        successful_syncs=COUNT,
        failed_syncs=COUNT,
        sync_success_rate=SHARE,
        global_steps=COUNT,
        global_tokens=COUNT,
        data_shards_covered=array(COUNT),
        is_converging=BOOL,
        training_verified=BOOL,
        loss_trend=TREND,
        local=closed(node_id=STRING, training_rounds=COUNT, current_loss=NUMBER, is_training=BOOL),
        diloco=closed(
            enabled=BOOL,
            inner_step_count=COUNT,
            inner_steps_total=COUNT,
            progress=SHARE,
            outer_step_count=COUNT,
        ),
    ),
    "QuickVerification": {
        "oneOf": [
            closed(
                is_working={"const": True},
                reason=STRING,
                metrics=closed(loss_trend=TREND, hash_agreement=STRING, global_loss=NUMBER),
            ),
            closed(is_working={"const": False}, reason=STRING, action=STRING),
        ]
    },
    "Layers": closed(
        layers=array(
            closed(
                index=COUNT,
                type={"const": "transformer"},
                memory_mb=COUNT,
                status={"const": "active"},
            )
        ),
        total_layers=COUNT,
        my_layer_count=COUNT,
    ),
    "Configuration": closed(
        node_id=STRING,
        port=PORT,
        grpc_port=PORT,
        tracker_url=_TRACKER_URL,
        training=closed(**_TRAINING_CONFIG),
        resources=closed(**_RESOURCES_CONFIG),
    ),
    "ConfigurationPatch": optional(
        tracker_url=_TRACKER_URL,
        training=optional(**_TRAINING_CONFIG),
        resources=optional(**_RESOURCES_CONFIG),
    ),
    "ConfigurationChanged": closed(
        success={"const": True}, updated=array(STRING), restart_required=BOOL
    ),
    "Balance": closed(
        address=ACCOUNT,
        balances=closed(available=AMOUNT, staked=AMOUNT, pending=AMOUNT, total=AMOUNT),
        staking=STAKE,
    ),
    "SendRequest": {
        "type": "object",
        "required": ["to", "amount"],
        "properties": {
            "to": ACCOUNT,
            "amount": PAYMENT,
            "memo": {
                "type": "string",
                "maxLength": 256,
                "default": "",
                "description": "Repeated in the answer; not published.",
            },
        },
    },
    "TransferResult": closed(
        **{
            "transaction_id": APPLICATION_ID,
            "from": ACCOUNT,
            "to": ACCOUNT,
            "amount": AMOUNT,
            "fee": AMOUNT,
            "memo": STRING,
            "status": {
                "enum": ["confirmed", "pending"],
                "description": "pending: signed, and not in a block yet. Do not send it again.",
            },
            "timestamp": TIMESTAMP,
        }
    ),
    "ProofEntry": closed(
        id=APPLICATION_ID,
        type={"type": "string", "enum": ["forward", "backward", "training", "data"]},
        layer=COUNT,
        timestamp=TIMESTAMP,
        verified=BOOL,
        reward=AMOUNT,
    ),
    "Proofs": closed(
        proofs=array(ref("ProofEntry")),
        stats=closed(total_submitted=COUNT, total_verified=COUNT, total_reward=AMOUNT),
    ),
    "TransactionEntry": {
        "type": "object",
        "required": ["id", "type", "amount", "timestamp"],
        "properties": {
            "id": STRING,
            "type": {"type": "string", "description": "send, receive, fee, reward, stake, …"},
            "amount": {"type": "number", "description": "Negative when it leaves the account."},
            "timestamp": TIMESTAMP,
            "to": ACCOUNT,
            "from": ACCOUNT,
            "details": closed(proof_id=STRING, role=STRING),
        },
        "additionalProperties": False,
    },
    "Transactions": closed(
        transactions=array(ref("TransactionEntry")),
        total=COUNT,
        limit=integer(1, 100),
        offset=COUNT,
    ),
    "StakeRequest": {
        "type": "object",
        "required": ["amount", "duration_days"],
        "properties": {"amount": PAYMENT, "duration_days": integer(1, 36_500)},
    },
    "StakeResult": closed(
        success={"const": True},
        stake=STAKE,
        new_balance=closed(available=AMOUNT, staked=AMOUNT),
    ),
    "UnstakeRequest": {
        "type": "object",
        "required": ["amount"],
        "properties": {"amount": PAYMENT},
    },
    "UnstakeResult": closed(
        success={"const": True},
        unstake=closed(amount=AMOUNT, cooldown_days=COUNT, available_date=DATE),
    ),
    "OpenapiDocument": {"type": "object", "required": ["openapi", "info", "paths"]},
    "Error": closed(
        error={
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": STRING,
                "message": STRING,
                "details": {
                    "type": "object",
                    "description": (
                        "field and reason of an INVALID_REQUEST, retry_after seconds of a "
                        "RATE_LIMITED, required and available of an INSUFFICIENT_BALANCE, "
                        "unlock_date of a FUNDS_LOCKED."
                    ),
                },
            },
            "additionalProperties": False,
        }
    ),
}
