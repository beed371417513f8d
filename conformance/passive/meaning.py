"""What the names of fields mean, in one resource: interface 2.1.

A count, a size or a duration is not negative; an identifier, an address or a kind is not empty; a
part is not above its whole. The tables name the fields of each resource of which the document says
such a thing by its words. What it leaves open is not here: the units, the kinds that exist, whether
a latency is known.
"""

from collections.abc import Iterable

from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_number

# The requirements, for the node API and for the training-verification routes.
NEGATIVE, EMPTY, PART, WRITTEN = "NA-SANE-004", "NA-SANE-014", "NA-SANE-015", "NA-SANE-049"
TRAINING = {
    NEGATIVE: "TR-RULE-011", EMPTY: "TR-RULE-012", PART: "TR-RULE-013", WRITTEN: "TR-RULE-018",
}  # fmt: skip

NOT_NEGATIVE: dict[str, tuple[str, ...]] = {
    "status": (
        "uptime_seconds", "peer_count", "training.epoch", "training.step",
        "resources.gpu_memory_used", "resources.gpu_memory_total", "resources.cpu_percent",
        "resources.ram_used", "layers[]",
    ),
    "metrics": (
        "inference.requests_total", "inference.requests_per_minute", "inference.avg_latency_ms",
        "inference.p99_latency_ms", "inference.tokens_generated", "training.steps_total",
        "training.steps_per_hour", "training.gradients_submitted", "training.gradients_accepted",
        "network.bytes_sent", "network.bytes_received", "network.active_connections",
        "network.rpc_calls", "rewards.earned_today", "rewards.earned_total", "rewards.pending",
    ),
    "network": (
        "nodes.total", "nodes.drivers", "nodes.workers", "nodes.validators",
        "architecture.layers", "architecture.hidden_dim", "capacity.total_memory_gb",
        "capacity.used_memory_gb", "training.epoch", "training.global_step",
    ),
    "balance": (
        "balances.available", "balances.staked", "balances.pending", "balances.total",
        "staking.amount", "staking.duration_days", "staking.multiplier",
    ),
    "transactions": ("total", "limit", "offset"),
    "transfer": ("amount", "fee"),
    "stake": (
        "stake.amount", "stake.duration_days", "stake.multiplier", "new_balance.available",
        "new_balance.staked",
    ),
    "unstake": ("unstake.amount", "unstake.cooldown_days"),
    "peers": ("total", "peers[].layers[]"),
    "layers": ("total_layers", "my_layer_count", "layers[].index", "layers[].memory_mb"),
    "config": (
        "port", "grpc_port", "training.batch_size", "training.learning_rate",
        "training.diloco_steps", "resources.max_memory_gb", "resources.cpu_threads",
    ),
    "proofs": (
        "proofs[].layer", "proofs[].reward", "stats.total_submitted", "stats.total_verified",
        "stats.total_reward",
    ),
    "inference": (
        "tokens_generated", "usage.prompt_tokens", "usage.completion_tokens",
        "usage.total_tokens", "cost.amount", "timing.queue_ms", "timing.inference_ms",
        "timing.total_ms",
    ),
    "sse-final": ("usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens"),
    "training-global": (
        "hash_agreement_rate", "total_nodes_training", "successful_syncs", "failed_syncs",
        "sync_success_rate", "global_steps", "global_tokens", "data_shards_covered[]",
        "local.training_rounds", "diloco.inner_step_count", "diloco.inner_steps_total",
        "diloco.progress", "diloco.outer_step_count",
    ),
}  # fmt: skip
NOT_EMPTY: dict[str, tuple[str, ...]] = {
    "status": ("node_id", "version", "status", "role"),
    "metrics": ("timestamp",),
    "balance": ("address",),
    "transactions": (
        "transactions[].id", "transactions[].type", "transactions[type=send].to",
        "transactions[type=reward].details.proof_id", "transactions[type=reward].details.role",
    ),
    "transfer": ("transaction_id", "from", "to", "status"),
    "peers": ("peers[].id", "peers[].address", "peers[].role"),
    "layers": ("layers[].type", "layers[].status"),
    "config": ("node_id",),
    "proofs": ("proofs[].id", "proofs[].type"),
    "inference": ("id", "finish_reason", "cost.currency"),
    "sse-final": ("finish_reason",),
    "training-global": ("loss_trend", "local.node_id"),
    "training-verify": ("reason", "action", "metrics.loss_trend", "metrics.hash_agreement"),
}  # fmt: skip
# The part, and the whole.
PARTS: dict[str, tuple[tuple[str, str], ...]] = {
    "status": (("resources.gpu_memory_used", "resources.gpu_memory_total"),),
    # Not the two counts of gradients: a node may accept those of others.
    "metrics": (("rewards.earned_today", "rewards.earned_total"),),
    "network": (
        ("nodes.drivers", "nodes.total"), ("nodes.workers", "nodes.total"),
        ("nodes.validators", "nodes.total"),
        ("capacity.used_memory_gb", "capacity.total_memory_gb"),
    ),
    # Whether what is pending is in the total is not said.
    "balance": (
        ("balances.available", "balances.total"), ("balances.staked", "balances.total"),
        ("staking.amount", "balances.staked"),
    ),
    "layers": (("my_layer_count", "total_layers"),),
    "proofs": (("stats.total_verified", "stats.total_submitted"),),
    "inference": (
        ("usage.prompt_tokens", "usage.total_tokens"),
        ("usage.completion_tokens", "usage.total_tokens"),
    ),
    "training-global": (("diloco.inner_step_count", "diloco.inner_steps_total"),),
}  # fmt: skip
_ROLES = ("worker", "validator", "driver")
# The words that the document shows, where a node may have others beside them.
WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "status": {"status": ("running",), "role": _ROLES},
    "health": {f"checks.{name}": ("ok",) for name in ("gpu", "network", "storage", "peers")},
    "transactions": {"transactions[].type": ("reward", "send")},
    "transfer": {"status": ("confirmed",)},
    "peers": {"peers[].role": _ROLES},
    "layers": {"layers[].type": ("transformer",), "layers[].status": ("active",)},
    "proofs": {"proofs[].type": ("forward",)},
    "inference": {"finish_reason": ("stop",)},
    "sse-final": {"finish_reason": ("stop",)},
    "training-global": {"loss_trend": ("improving",)},
    "training-verify": {"metrics.loss_trend": ("improving",)},
}
# A count of a round that has begun may be above this one, once it has been changed.
CHANGED_MEANWHILE = "diloco.inner_steps_total"
# Figures may be rounded for display.
SLACK = 1e-6


def ids_for(resource: str) -> tuple[str, ...]:
    """Return the requirements on which the meaning of a resource may rule."""
    tables: tuple[tuple[str, dict[str, tuple[object, ...]]], ...] = (
        (NEGATIVE, dict(NOT_NEGATIVE)), (EMPTY, dict(NOT_EMPTY)), (PART, dict(PARTS)),
        (WRITTEN, {name: tuple(table) for name, table in WORDS.items()}),
    )  # fmt: skip
    return tuple(_ident(ident, resource) for ident, table in tables if resource in table)


def _ident(ident: str, resource: str) -> str:
    return TRAINING[ident] if resource.startswith("training") else ident


def values(document: Json, path: str) -> list[Json]:
    """Return the values at a path, whose last step may be every entry of an array of scalars."""
    found = lookup(document, path.removesuffix("[]"))
    if not path.endswith("[]"):
        return found
    return [entry for value in found if isinstance(value, list) for entry in value]


def judge_meaning(
    findings: Findings, resource: str, document: Json, answer: Answer, *, changed: bool = False
) -> None:
    """Rule on what the names of the fields of one resource mean.

    ``changed`` says that the steps of a round have been changed in this run.
    """
    numbers = [(p, v) for p in NOT_NEGATIVE.get(resource, ()) for v in values(document, p)]
    numbers = [(path, value) for path, value in numbers if is_number(value)]
    negative = {path: value for path, value in numbers if value < 0}
    _judge(findings, _ident(NEGATIVE, resource), numbers, f"negative: {brief(negative)}",
           not negative, answer)  # fmt: skip
    texts = [(p, v) for p in NOT_EMPTY.get(resource, ()) for v in values(document, p)]
    texts = [(path, value) for path, value in texts if isinstance(value, str)]
    empty = sorted({path for path, value in texts if not value.strip()})
    _judge(findings, _ident(EMPTY, resource), texts, f"empty: {', '.join(empty)}",
           not empty, answer)  # fmt: skip
    known, odd = [], {}
    for path, words in WORDS.get(resource, {}).items():
        for value in values(document, path):
            if isinstance(value, str) and value.casefold() in words:
                known.append(value)
                if value not in words:
                    odd[path] = value
    _judge(findings, _ident(WRITTEN, resource), known, f"in other letters: {brief(odd)}",
           not odd, answer)  # fmt: skip
    pairs, above = [], []
    for part, whole in PARTS.get(resource, ()):
        for less, more in zip(values(document, part), values(document, whole), strict=False):
            fits = is_number(less) and is_number(more)
            if fits and not (changed and whole == CHANGED_MEANWHILE and less > more):
                pairs.append((part, whole))
                if less > more + SLACK * max(1.0, abs(more)):
                    above.append(f"{part} is {less} of {whole} {more}")
    _judge(findings, _ident(PART, resource), pairs, "; ".join(above), not above, answer)


def _judge(
    findings: Findings, ident: str, looked_at: Iterable[object], why: str, held: bool,
    answer: Answer,
) -> None:  # fmt: skip
    if looked_at:
        findings.judge(ident, held, why, answer)
