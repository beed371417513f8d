"""The native API's resources as values (interface 2.2; decision 0076). Pure functions.

Money is written as decimal strings of atoms, because browsers have no exact integers of that size;
the public network's exceptions (``params`` and ``lease``) are kept. Hashes of blocks and
transactions are uppercase hex, roots and ids lowercase, as on the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meshnode.domain.chain.blocks import ACCEPTED
from meshnode.domain.chain.canonical import Json, JsonLimits, parse
from meshnode.domain.chain.comet.times import format_time
from meshnode.domain.chain.envelope import decode_transaction
from meshnode.domain.chain.errors import Rejected

if TYPE_CHECKING:
    from meshnode.domain.chain.blocks import TransactionResult
    from meshnode.domain.chain.profile import NetworkProfile
    from meshnode.services.index.entries import AcceptedUpdate
    from meshnode.services.ledger.handle import Readiness
    from meshnode.services.ledger.records import StoredBlock

Object = dict[str, Any]

OBSERVATION = (
    "One full node's view of its chain: no inclusion proof. Compare the block hash at this height "
    "with other nodes of the network."
)


def money_as_text(value: Object, names: Sequence[str]) -> Object:
    """A copy of ``value`` in which the members listed in ``names`` are decimal strings."""
    return {
        name: str(member) if name in names and type(member) is int else member
        for name, member in value.items()
    }


def network_view(
    summary: Object, block: StoredBlock | None, readiness: Readiness, more: Object
) -> Object:
    """``/api/network`` and ``/healthz``. ``block`` is the block that ``summary`` belongs to."""
    return {
        **money_as_text(summary, ("issued", "burned", "initial_supply")),
        **more,
        "ready": readiness.ready,
        "stalled": readiness.stalled,
        "catching_up": readiness.catching_up,
        "reason": readiness.reason,
        "seconds_since_block": round(readiness.seconds_since_block, 1),
        "latest_block_height": 0 if block is None else block.height,
        "latest_block_hash": "" if block is None else block.hash.hex().upper(),
        "latest_block_time": None if block is None else format_time(block.time_ns),
        "observation": OBSERVATION,
    }


def block_view(block: StoredBlock, profile: NetworkProfile) -> Object:
    """One block with its transactions and their results."""
    header = block.header
    return {
        "height": block.height,
        "hash": block.hash.hex().upper(),
        "time": format_time(block.time_ns),
        "previous_hash": header.last_block_id.hash.hex().upper(),
        "app_hash": header.app_hash.hex(),
        # A header contains the state root after the previous block.
        "app_state_height": block.height - 1,
        "transactions": [
            _transaction_view(raw, result, profile)
            for raw, result in zip(block.transactions, block.results, strict=True)
        ],
    }


def _transaction_view(raw: bytes, result: TransactionResult, profile: NetworkProfile) -> Object:
    body, sender = _read(raw, result, profile)
    return {
        "hash": result.hash,
        "id": result.id,
        "kind": None if body is None else body.get("kind"),
        "sender": sender,
        "body": None if body is None else money_as_text(body, ("amount", "price")),
        "code": result.code,
        "log": result.log,
    }


def _read(
    raw: bytes, result: TransactionResult, profile: NetworkProfile
) -> tuple[Object | None, str | None]:
    """The transaction's body and sender; None for both if it is malformed or wrongly signed."""
    size, depth = profile.params.max_tx_bytes, profile.limits.transaction_depth
    try:
        if result.code != ACCEPTED:
            envelope = decode_transaction(raw, size, depth)
            return envelope.body, envelope.signer
        # The signature was verified when the block was executed.
        value = parse(raw, JsonLimits(size, depth, fractions=False))
    except Rejected:
        return None, None
    body = value.get("body") if isinstance(value, dict) else None
    return (body, result.sender) if isinstance(body, dict) else (None, None)


def training_view(record: AcceptedUpdate) -> Object:
    """One accepted update."""
    return {
        "round": record.round,
        "height": record.height,
        "block_hash": record.block_hash,
        "time": format_time(record.time_ns),
        "transaction_hash": record.transaction_hash,
        "task_id": record.task_id,
        "model_root": record.model_root,
        "loss": loss_number(record.loss_hex),
        "loss_hex": record.loss_hex,
        "workers": list(record.workers),
    }


def model_view(summary: Object, facts: Object, more: Object) -> Object:
    """``/api/model``: the network's model, and the losses of its latest adapters."""
    return {
        **facts,
        **more,
        **{name: summary[name] for name in ("chain_id", "height", "round")},
        **{name: summary[name] for name in ("model_root", "serving_root")},
        "last_training_loss": loss_number(summary["last_training_loss_hex"]),
        "validation_loss": loss_number(summary["validation_loss_hex"]),
        "serving_validation_loss": loss_number(summary["serving_loss_hex"]),
        "last_training_evaluation": summary["last_training_evaluation"],
        "metric": "mean next-token cross-entropy in nats; lower is better",
    }


def loss_number(loss_hex: Json) -> float | None:
    """The nearest double of an exact loss."""
    return float.fromhex(loss_hex) if isinstance(loss_hex, str) else None


def request_view(job: Object) -> Object:
    """``/api/inference/request``."""
    return money_as_text(job, ("price", "provider_paid", "refunded"))


def account_view(account: Object) -> Object:
    """``/api/account``."""
    return money_as_text(account, ("balance", "locked", "total"))


def validators_view(page: Object) -> Object:
    """``/api/validators``."""
    return {**page, "validators": [money_as_text(one, ("bond",)) for one in page["validators"]]}
