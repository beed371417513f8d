"""Faults of relations, effects and refusals that are made by hooks."""

import time

LINES, MADE = [], {}
BOX = {}


def add(i, q, w, *hooks):
    assert i not in MADE, i
    LINES.append([i, q, w])
    MADE[i] = {"hooks": list(hooks)}


def put(path, val):
    """Sets a value; val is a value or a function of (old, body)."""
    p = path.split(".")

    def fn(b, c=None):
        x = b
        for k in p[:-1]:
            x = x.get(k)
            if not isinstance(x, dict):
                return
        if p[-1] in x:
            x[p[-1]] = val(x[p[-1]], b) if callable(val) else val

    return fn


def each(lst, key, val):
    def fn(b, c=None):
        for i, e in enumerate(b.get(lst) or ()):
            if key in e:
                e[key] = val(e[key], e) if callable(val) else val

    return fn


def calm(b, c=None):
    pass


# --- status, metrics, lists
add(
    "rel-uptime-falls",
    "NA-SANE-001",
    "uptime_seconds counts down",
    ("status", put("uptime_seconds", lambda v, b: 1000000 - v)),
)
add(
    "rel-uptime-stands",
    "NA-SANE-023",
    "uptime_seconds is always 77",
    ("status", put("uptime_seconds", 77)),
)
add(
    "rel-uptime-milliseconds",
    "NA-SANE-016",
    "uptime_seconds counts milliseconds",
    ("status", put("uptime_seconds", lambda v, b: int(time.monotonic() * 1000) % 10**9)),
)
add(
    "rel-uptime-unix",
    "NA-SANE-016",
    "uptime_seconds runs twice as fast as the time",
    ("status", put("uptime_seconds", lambda v, b: int(time.monotonic() * 2.0))),
)
add(
    "rel-node-id-per-reading",
    "NA-SANE-002",
    "node_id of the status is new at each reading",
    ("status", put("node_id", lambda v, b: "%040x" % time.monotonic_ns())),
)
add(
    "rel-node-id-config-upper",
    "NA-SANE-003",
    "node_id of the configuration is in capital letters",
    ("config", put("node_id", lambda v, b: v.upper())),
)
add(
    "rel-node-id-config-short",
    "NA-SANE-003",
    "node_id of the configuration is shortened",
    ("config", put("node_id", lambda v, b: v[:12])),
)
add(
    "rel-node-id-local-differs",
    "TR-RULE-015",
    "local.node_id of the training verification is the host's name",
    ("tglobal", put("local.node_id", "localhost")),
)
add(
    "rel-status-enabled-inverted",
    "NA-SANE-017",
    "training.enabled of the status is the contrary of the configuration",
    ("status", put("training.enabled", lambda v, b: not v)),
)
add(
    "rel-status-layers-twice",
    "GEN-007",
    "the first layer is twice in the status",
    ("status", put("layers", lambda v, b: v + v[:1])),
)
add(
    "rel-status-layers-one-based",
    "NA-SANE-025",
    "layers of the status are counted from 1",
    ("status", put("layers", lambda v, b: [x + 1 for x in v])),
)
add(
    "rel-layer-count-total",
    "NA-SANE-005",
    "my_layer_count is the number of all layers",
    ("layers", put("my_layer_count", lambda v, b: b["total_layers"])),
)
add(
    "rel-layer-count-minus-one",
    "NA-SANE-005",
    "my_layer_count is one too low",
    ("layers", put("my_layer_count", lambda v, b: v - 1)),
)
add(
    "rel-layer-index-one-based",
    "NA-SANE-006",
    "indices in the layer list are counted from 1",
    ("layers", each("layers", "index", lambda v, e: v + 1)),
)
add(
    "rel-layer-listed-twice",
    "NA-SANE-006",
    "a layer is listed twice",
    ("layers", lambda b, c: b["layers"].append(dict(b["layers"][0]))),
)
add(
    "rel-layer-list-short",
    "NA-SANE-019",
    "the layer list lacks its last entry",
    ("layers", lambda b, c: b["layers"].pop() and None),
)
add(
    "rel-total-layers-held",
    "NA-SANE-021",
    "total_layers is the number of layers that the node holds",
    ("layers", put("total_layers", lambda v, b: b["my_layer_count"] + 1)),
)
add(
    "rel-architecture-layers-off",
    "NA-SANE-021",
    "architecture.layers is one too high",
    ("network", put("architecture.layers", lambda v, b: v + 1)),
)
add(
    "rel-peers-total-plus-self",
    "NA-SANE-007",
    "total of the peers counts the node itself",
    ("peers", put("total", lambda v, b: v + 1)),
)
add("rel-peers-total-zero", "NA-SANE-007", "total of the peers is 0", ("peers", put("total", 0)))
add(
    "rel-peer-address-no-port",
    "NA-SANE-008",
    "addresses of peers have no port",
    ("peers", each("peers", "address", lambda v, e: v.rsplit(":", 1)[0])),
)
add(
    "rel-peer-address-url",
    "NA-SANE-008",
    "addresses of peers are URLs",
    ("peers", each("peers", "address", lambda v, e: "http://" + v + "/")),
)
add(
    "rel-peer-id-empty", "NA-SANE-014", "ids of peers are empty", ("peers", each("peers", "id", ""))
)
add(
    "rel-peer-latency-negative",
    "NA-SANE-004",
    "latencies of peers are -1",
    ("peers", each("peers", "latency_ms", -1)),
)
add(
    "rel-peer-since-future",
    "GEN-019",
    "connected_since of peers is years ahead",
    ("peers", each("peers", "connected_since", "2039-01-01T00:00:00+00:00")),
)
add(
    "rel-layer-memory-negative",
    "NA-SANE-004",
    "memory_mb of layers is -1",
    ("layers", each("layers", "memory_mb", -1)),
)
add(
    "rel-gpu-used-above-total",
    "NA-SANE-015",
    "used and total GPU memory are exchanged",
    (
        "status",
        lambda b, c: b["resources"].update(
            gpu_memory_used=b["resources"]["gpu_memory_total"],
            gpu_memory_total=b["resources"]["gpu_memory_used"],
        ),
    ),
)
add(
    "rel-capacity-used-in-mb",
    "NA-SANE-015",
    "used_memory_gb is in megabytes",
    ("network", put("capacity.used_memory_gb", lambda v, b: v * 1024)),
)
add(
    "rel-network-drivers-above-total",
    "NA-SANE-015",
    "nodes.total is smaller than nodes.drivers",
    ("network", put("nodes.total", 1)),
)
add(
    "rel-nodes-negative",
    "NA-SANE-004",
    "nodes.validators is -1",
    ("network", put("nodes.validators", -1)),
)
add(
    "rel-metrics-p99-negative",
    "NA-SANE-012",
    "p99_latency_ms is below zero",
    ("metrics", put("inference.p99_latency_ms", -1.0)),
)
add(
    "rel-metrics-bytes-overflow",
    "NA-SANE-004",
    "bytes_sent is below zero, as after an overflow",
    ("metrics", put("network.bytes_sent", lambda v, b: v - 2**31)),
)
add(
    "rel-metrics-accepted-above-submitted",
    "NA-SANE-015",
    "more gradients are accepted than submitted",
    (
        "metrics",
        put("training.gradients_accepted", lambda v, b: b["training"]["gradients_submitted"] + 5),
    ),
)
add(
    "rel-metrics-earned-today-above-total",
    "NA-SANE-015",
    "earned_today is above earned_total",
    ("metrics", put("rewards.earned_today", lambda v, b: b["rewards"]["earned_total"] * 2)),
)
add(
    "rel-version-empty", "GEN-014", "version of the status is empty", ("status", put("version", ""))
)
add(
    "rel-config-grpc-port-off",
    "GEN-001",
    "grpc_port of the configuration is port plus 1",
    ("config", put("grpc_port", lambda v, b: b["port"] + 1)),
)
add(
    "rel-config-grpc-port-default",
    "GEN-001",
    "grpc_port of the configuration is 50051",
    ("config", put("grpc_port", 50051)),
)
add(
    "rel-config-port-default",
    "GEN-001",
    "port of the configuration is always 8000, grpc_port is the real one",
    ("config", put("port", 8000)),
)
# --- proofs, balance
add(
    "rel-proofs-reward-double",
    "NA-SANE-024",
    "total_reward is twice the sum of the rewards",
    ("proofs", put("stats.total_reward", lambda v, b: v * 2)),
)
add(
    "rel-proofs-verified-above-submitted",
    "NA-SANE-015",
    "total_verified is above total_submitted",
    ("proofs", put("stats.total_verified", lambda v, b: b["stats"]["total_submitted"] + 1)),
)
add(
    "rel-proofs-verified-none",
    "NA-SANE-018",
    "total_verified is 0",
    ("proofs", put("stats.total_verified", 0)),
)
add(
    "rel-proofs-layer-negative",
    "NA-SANE-004",
    "layer of proofs is -1",
    ("proofs", each("proofs", "layer", -1)),
)
add(
    "rel-balance-total-half",
    "NA-SANE-015",
    "balances.total is below what is available",
    ("balance", put("balances.total", lambda v, b: b["balances"]["available"] / 2)),
)
add(
    "rel-balance-duration-rest",
    "NA-WALLET-009",
    "staking.duration_days of the balance is the number of days that remain",
    ("balance", put("staking.duration_days", lambda v, b: v - 3)),
)
add(
    "rel-balance-unlock-plus-day",
    "NA-WALLET-009",
    "staking.unlock_date of the balance is the year's end",
    ("balance", put("staking.unlock_date", "2031-12-31")),
)
add(
    "rel-balance-staked-in-atoms",
    "NA-WALLET-014",
    "balances.staked is in millionths",
    ("balance", put("balances.staked", lambda v, b: v * 1000000)),
)
add(
    "rel-balance-available-with-staked",
    "NA-WALLET-015",
    "balances.available includes what is staked",
    ("balance", put("balances.available", lambda v, b: v + b["balances"]["staked"])),
)
# --- inference
add(
    "rel-inf-total-is-completion",
    "NA-INF-022",
    "total_tokens is completion_tokens",
    ("inference", put("usage.total_tokens", lambda v, b: b["usage"]["completion_tokens"])),
)
add(
    "rel-inf-total-plus-one",
    "NA-INF-022",
    "total_tokens is one too high",
    ("inference", put("usage.total_tokens", lambda v, b: v + 1)),
)
add(
    "rel-inf-completion-with-prompt",
    "NA-INF-023",
    "completion_tokens includes the prompt, and total_tokens too",
    (
        "inference",
        lambda b, c: b["usage"].update(
            completion_tokens=b["usage"]["completion_tokens"] + 2,
            total_tokens=b["usage"]["total_tokens"] + 2,
        ),
    ),
)
add(
    "rel-inf-tokens-are-letters",
    "NA-INF-023",
    "tokens_generated is the number of letters",
    ("inference", put("tokens_generated", lambda v, b: len(b["text"]) + 1)),
)
add(
    "rel-inf-total-ms-half",
    "NA-INF-024",
    "timing.total_ms is half of inference_ms",
    ("inference", put("timing.total_ms", lambda v, b: b["timing"]["inference_ms"] / 2)),
)
add(
    "rel-inf-total-seconds",
    "NA-INF-024",
    "timing.total_ms is in seconds",
    ("inference", put("timing.total_ms", lambda v, b: v / 1000)),
)
add(
    "rel-inf-total-microseconds",
    "NA-INF-034",
    "all of timing is in microseconds",
    ("inference", lambda b, c: b["timing"].update({k: v * 1000 for k, v in b["timing"].items()})),
)
add(
    "rel-inf-queue-negative",
    "NA-INF-024",
    "timing.queue_ms is -1",
    ("inference", put("timing.queue_ms", -1)),
)
add(
    "rel-inf-id-constant",
    "NA-INF-026",
    "the id of every result is the same",
    ("inference", put("id", "gen-1")),
)
add(
    "rel-inf-currency-empty",
    "NA-INF-025",
    "the currency is empty",
    ("inference", put("cost.currency", "")),
)
add(
    "rel-inf-currency-usd",
    "NA-SEEN-004",
    "the currency is USD",
    ("inference", put("cost.currency", "USD")),
)
add(
    "rel-sse-total-is-completion",
    "NA-SSE-010",
    "total_tokens of a stream is completion_tokens",
    ("sse_final", put("usage.total_tokens", lambda v, b: b["usage"]["completion_tokens"])),
)
add(
    "rel-sse-total-plus-one",
    "NA-SSE-010",
    "total_tokens of a stream is one too high",
    ("sse_final", put("usage.total_tokens", lambda v, b: v + 1)),
)
add(
    "rel-sse-completion-is-total",
    "NA-SSE-009",
    "completion_tokens of a stream includes the prompt and more",
    (
        "sse_final",
        lambda b, c: b["usage"].update(
            completion_tokens=b["usage"]["total_tokens"] + 1,
            total_tokens=b["usage"]["total_tokens"] + 1 + b["usage"]["prompt_tokens"],
        ),
    ),
)
add(
    "rel-sse-done-word",
    "NA-SSE-006",
    "the token of the final event is empty",
    ("sse_final", put("token", "")),
)
add(
    "rel-sse-done-lower",
    "NA-SSE-006",
    "the token of the final event is [done]",
    ("sse_final", put("token", "[done]")),
)
# --- training
add(
    "rel-sync-rate-percent",
    "TR-RULE-003",
    "sync_success_rate is a percentage",
    ("tglobal", put("sync_success_rate", 95.0)),
)
add(
    "rel-sync-rate-failures",
    "TR-RULE-004",
    "sync_success_rate is the share of failures",
    ("tglobal", put("sync_success_rate", 0.05)),
)
add(
    "rel-sync-rate-one",
    "TR-RULE-004",
    "sync_success_rate is always 1",
    ("tglobal", put("sync_success_rate", 1.0)),
)
add(
    "rel-min-loss-above-avg",
    "TR-RULE-005",
    "global_min_loss is above global_avg_loss",
    ("tglobal", put("global_min_loss", lambda v, b: b["global_avg_loss"] + 0.5)),
)
add(
    "rel-agreement-percent",
    "TR-RULE-002",
    "hash_agreement_rate is a percentage",
    ("tglobal", put("hash_agreement_rate", 100.0)),
)
add(
    "rel-inner-above-total",
    "TR-RULE-013",
    "inner_step_count goes on beyond inner_steps_total",
    (
        "tglobal",
        put("diloco.inner_step_count", lambda v, b: v + b["diloco"]["inner_steps_total"] + 1),
    ),
)
add(
    "rel-failed-syncs-negative",
    "TR-RULE-011",
    "failed_syncs is below zero",
    ("tglobal", put("failed_syncs", -1)),
)
add(
    "rel-shards-negative",
    "TR-RULE-011",
    "a covered data shard is -1",
    ("tglobal", put("data_shards_covered", [-1, 0])),
)
add(
    "rel-trend-empty",
    "TR-RULE-012",
    "loss_trend is empty",
    ("tglobal", put("loss_trend", "")),
    ("tverify", put("metrics.loss_trend", "")),
)
add(
    "rel-verify-trend-differs",
    "TR-RULE-014",
    "loss_trend of the quick verification is another",
    ("tverify", put("metrics.loss_trend", "worsening")),
)
add(
    "rel-verify-agreement-differs",
    "TR-RULE-014",
    "hash_agreement of the quick verification is another share",
    ("tverify", put("metrics.hash_agreement", "87.5%")),
)
add(
    "rel-verify-agreement-fraction",
    "TR-RULE-006",
    "hash_agreement of the quick verification is a fraction",
    ("tverify", put("metrics.hash_agreement", "1.0")),
)
add(
    "rel-verify-agreement-one-percent",
    "TR-RULE-014",
    "hash_agreement is the fraction with a percent sign",
    ("tverify", put("metrics.hash_agreement", "1%")),
)
add(
    "rel-verify-reason-empty",
    "TR-RULE-010",
    "reason of the quick verification is empty",
    ("tverify", put("reason", "")),
)
add(
    "rel-verify-working-anyway",
    "TR-RULE-001",
    "is_working is true while three of four hashes agree",
    (
        "tglobal",
        lambda b, c: b.update(
            hash_agreement_rate=0.75, is_converging=False, training_verified=False
        ),
    ),
    ("tverify", put("metrics.hash_agreement", "75.0%")),
)
add(
    "rel-verify-not-working-no-action",
    "TR-VERIFY-013",
    "is_working is false and no action is named",
    ("tverify", lambda b, c: {"is_working": False, "reason": "the models differ"}),
    ("tglobal", lambda b, c: b.update(hash_agreement_rate=0.75, is_converging=False)),
)
# --- wallet results
add(
    "rel-send-amount-with-fee",
    "NA-WALLET-001",
    "amount of a transfer result includes the fee",
    ("send", put("amount", lambda v, b: round(v + b["fee"], 6))),
)
add(
    "rel-send-to-sender",
    "NA-WALLET-001",
    "to of a transfer result is the sender",
    ("send", put("to", lambda v, b: b["from"] + "")),
)
add(
    "rel-send-to-lower",
    "NA-WALLET-001",
    "to of a transfer result is shortened",
    ("send", put("to", lambda v, b: v[:10] + "...")),
)
add(
    "rel-send-memo-empty",
    "NA-WALLET-001",
    "memo of a transfer result is empty",
    ("send", put("memo", "")),
)
add(
    "rel-send-memo-cut",
    "NA-WALLET-001",
    "memo of a transfer result is cut to 8 characters",
    ("send", put("memo", lambda v, b: v[:8])),
)
add(
    "rel-send-memo-ascii",
    "NA-WALLET-001",
    "memo of a transfer result loses letters that are not ASCII",
    ("send", put("memo", lambda v, b: v.encode("ascii", "ignore").decode())),
)
add(
    "rel-send-memo-trimmed",
    "NA-WALLET-001",
    "memo of a transfer result loses its white space",
    ("send", put("memo", lambda v, b: "".join(v.split()))),
)
add(
    "rel-send-from-node",
    "NA-WALLET-013",
    "from of a transfer result is the id of the node",
    ("send", put("from", "node-wallet")),
)
add(
    "rel-send-from-is-to",
    "NA-WALLET-013",
    "from of a transfer result is the recipient",
    ("send", put("from", lambda v, b: b["to"])),
)
add(
    "rel-send-fee-zero",
    "NA-WALLET-010",
    "fee of a transfer result is 0 although one is taken",
    ("send", put("fee", 0)),
)
add(
    "rel-send-fee-atoms",
    "NA-WALLET-010",
    "fee of a transfer result is in millionths",
    ("send", put("fee", lambda v, b: v * 1000000)),
)
add(
    "rel-send-id-short",
    "NA-WALLET-006",
    "transaction_id of a transfer result is shortened",
    ("send", put("transaction_id", lambda v, b: v[:12])),
)
add(
    "rel-send-id-empty",
    "NA-SANE-014",
    "transaction_id of a transfer result is empty",
    ("send", put("transaction_id", "")),
)
add(
    "rel-send-time-far",
    "GEN-019",
    "timestamp of a transfer result is 1970",
    ("send", put("timestamp", "1970-01-01T00:00:00+00:00")),
)
add(
    "rel-stake-success-false",
    "NA-STAKE-001",
    "a stake that was made is answered with success false",
    ("stake", put("success", False)),
    ("stake", put("stake", None)),
)
add(
    "rel-unstake-available-year",
    "ST-005",
    "available_date is a year late",
    ("unstake", put("unstake.available_date", lambda v, b: str(int(v[:4]) + 1) + v[4:])),
)
# --- changes of the configuration
add(
    "rel-updated-sections",
    "NA-PATCH-101",
    "updated names sections instead of dotted paths",
    ("patch", put("updated", lambda v, b: sorted({x.split(".")[0] for x in v}))),
)
add(
    "rel-updated-leaf-names",
    "NA-PATCH-101",
    "updated names keys without their section",
    ("patch", put("updated", lambda v, b: [x.split(".")[-1] for x in v])),
)
add(
    "rel-updated-slashes",
    "NA-PATCH-101",
    "updated writes paths with slashes",
    ("patch", put("updated", lambda v, b: [x.replace(".", "/") for x in v])),
)
add("rel-updated-empty", "NA-PATCH-101", "updated is always empty", ("patch", put("updated", [])))
add(
    "rel-updated-first-only",
    "NA-PATCH-101",
    "updated names only the first key",
    ("patch", put("updated", lambda v, b: v[:1])),
)
add(
    "rel-updated-all-keys",
    "NA-PATCH-102",
    "updated names all keys there are",
    (
        "patch",
        put(
            "updated",
            [
                "tracker_url",
                "training.enabled",
                "training.batch_size",
                "training.learning_rate",
                "training.diloco_steps",
                "resources.max_memory_gb",
                "resources.cpu_threads",
            ],
        ),
    ),
)
add(
    "rel-updated-whole-section",
    "NA-PATCH-102",
    "updated names all keys of the section",
    (
        "patch",
        put(
            "updated",
            lambda v, b: (
                v
                + [
                    x
                    for x in ("training.enabled", "training.batch_size", "training.learning_rate")
                    if x not in v
                ]
            ),
        ),
    ),
)
add(
    "rel-restart-not-said",
    "NA-PATCH-104",
    "a change that needs a restart says that it needs none",
    ("patch", put("restart_required", False)),
)
# --- gRPC
add(
    "rel-info-version-behind",
    "GR-CKPT-004",
    "GetCheckpointInfo has an older version than GetCheckpoint",
    ("g:GetCheckpointInfo", put("version", lambda v, b: v - 1)),
)
add(
    "rel-info-hash-differs",
    "GR-CKPT-004",
    "GetCheckpointInfo has another hash than GetCheckpoint",
    ("g:GetCheckpointInfo", put("model_hash", lambda v, b: v[::-1])),
)
add(
    "rel-info-hash-short",
    "GR-CKPT-004",
    "the hash of GetCheckpointInfo is shortened",
    ("g:GetCheckpointInfo", put("model_hash", lambda v, b: v[:16])),
)
add(
    "rel-info-no-params",
    "GR-CKPT-011",
    "params of GetCheckpointInfo is 0",
    ("g:GetCheckpointInfo", put("params", 0)),
)
add(
    "rel-ckpt-size-zero",
    "GR-CKPT-010",
    "total_size of a checkpoint is 0",
    ("g:GetCheckpoint", put("total_size", 0)),
)
add(
    "rel-ckpt-no-data",
    "GR-CKPT-005",
    "a checkpoint has no data",
    ("g:GetCheckpoint", put("checkpoint_data", b"")),
)
add(
    "rel-ckpt-version-negative",
    "GR-SANE-001",
    "version of a checkpoint is -1",
    ("g:GetCheckpoint", put("version", -1)),
)
add(
    "rel-ckpt-success-unset",
    "GR-CKPT-003",
    "a checkpoint is returned with success false, and no reason",
    ("g:GetCheckpoint", put("success", False)),
)
add(
    "rel-gossip-round-negative",
    "GR-SANE-001",
    "current_round is -1",
    ("g:GossipGradient", put("current_round", -1)),
)
add(
    "rel-gossip-round-plus-ttl",
    "GR-GOSSIP-003",
    "current_round is another at each call",
    (
        "g:GossipGradient",
        put(
            "current_round",
            lambda v, b: (
                v
                + BOX.setdefault("r", [0])[0] * 0
                + (BOX.update(k=BOX.get("k", 0) + 1) or BOX["k"])
            ),
        ),
    ),
)
add(
    "rel-fwd-final-unset",
    "PL-FWD-005",
    "is_final of the last shard is false",
    ("g:PipelineForward", put("is_final", False)),
)
add(
    "rel-fwd-logits-shape-two",
    "PL-FWD-007",
    "logits_shape lacks the batch",
    ("g:PipelineForward", put("logits_shape", lambda v, b: [v[0] * 1 + 1, v[2]])),
)
add(
    "rel-fwd-logits-half",
    "PL-FWD-007",
    "logits have half the bytes that their shape gives",
    ("g:PipelineForward", put("logits", lambda v, b: v[: len(v) // 2])),
)
add(
    "rel-fwd-logits-no-shape",
    "PL-FWD-007",
    "logits have no shape",
    ("g:PipelineForward", put("logits_shape", [])),
)
add(
    "rel-fwd-logits-none",
    "PL-FWD-004",
    "the last shard answers with no logits",
    (
        "g:PipelineForward",
        lambda b, c: b.pop("logits", None) and b.pop("logits_shape", None) and None,
    ),
)
add(
    "rel-fwd-shape-negative",
    "GR-SANE-001",
    "the batch in logits_shape is -1",
    ("g:PipelineForward", put("logits_shape", lambda v, b: [-1] + list(v[1:]))),
)
add(
    "rel-fwd-loss-none",
    "PL-FWD-008",
    "a forward pass of training returns no loss",
    ("g:PipelineForward", lambda b, c: b.pop("loss", None) and None),
)
add(
    "rel-weights-empty",
    "GR-WEIGHT-001",
    "weights have no data",
    ("g:GetWeights", put("weights_data", b"")),
)


# --- errors
def err(st, fn):
    def h(b, f):
        if f.status == st:
            return fn(b)

    return h


add(
    "ref-402-required-missing",
    "NA-ERR-010",
    "a 402 has no required",
    ("error", err(402, lambda b: b["error"]["details"].pop("required") and None)),
)
add(
    "ref-402-available-missing",
    "NA-ERR-011",
    "a 402 has no available",
    ("error", err(402, lambda b: b["error"]["details"].pop("available", 0) and None)),
)
add(
    "ref-402-details-missing",
    "NA-ERR-010",
    "a 402 has no details",
    ("error", err(402, lambda b: b["error"].pop("details") and None)),
)
add(
    "ref-402-required-string",
    "NA-ERR-010",
    "required and available of a 402 are strings",
    (
        "error",
        err(
            402,
            lambda b: b["error"]["details"].update(
                {k: str(v) for k, v in b["error"]["details"].items()}
            ),
        ),
    ),
)
add(
    "ref-402-required-is-shortfall",
    "NA-ERR-020",
    "required of a 402 is what is missing",
    (
        "error",
        err(
            402,
            lambda b: b["error"]["details"].update(
                required=b["error"]["details"]["required"] - b["error"]["details"]["available"]
            ),
        ),
    ),
)
add(
    "ref-402-swapped",
    "NA-ERR-019",
    "required and available of a 402 are exchanged",
    (
        "error",
        err(
            402,
            lambda b: b["error"]["details"].update(
                required=b["error"]["details"]["available"],
                available=b["error"]["details"]["required"],
            ),
        ),
    ),
)
add(
    "ref-402-available-zero",
    "NA-ERR-020",
    "available of a 402 is always 0",
    ("error", err(402, lambda b: b["error"]["details"].update(available=0))),
)
add(
    "ref-402-atoms",
    "NA-ERR-020",
    "required and available of a 402 are in millionths",
    (
        "error",
        err(
            402,
            lambda b: b["error"]["details"].update(
                {k: v * 1000000 for k, v in b["error"]["details"].items()}
            ),
        ),
    ),
)
add(
    "ref-402-code",
    "NA-ERR-009",
    "the code of a 402 is PAYMENT_REQUIRED",
    ("error", err(402, lambda b: b["error"].update(code="PAYMENT_REQUIRED"))),
)
add(
    "ref-402-details-array",
    "NA-ERR-004",
    "details of a 402 is an array",
    ("error", err(402, lambda b: b["error"].update(details=list(b["error"]["details"].values())))),
)
add(
    "ref-401-details",
    "NA-ERR-005",
    "a 401 has details",
    ("error", err(401, lambda b: b["error"].update(details={"hint": "sign in again"}))),
)
add(
    "ref-401-message-missing",
    "NA-ERR-003",
    "a 401 has no message",
    ("error", err(401, lambda b: b["error"].pop("message") and None)),
)
add(
    "ref-401-flat",
    "NA-ERR-001",
    "the body of a 401 is code and message without error",
    ("error", err(401, lambda b: dict(b["error"]))),
)
add(
    "ref-401-text",
    "NA-ERR-001",
    "error of a 401 is a text",
    ("error", err(401, lambda b: {"error": "unauthorized"})),
)
add(
    "ref-401-detail-key",
    "NA-ERR-001",
    "the body of a 401 has the key detail only",
    ("error", err(401, lambda b: {"detail": "Not authenticated"})),
)
add(
    "ref-429-code",
    "NA-ERR-006",
    "the code of a 429 is TOO_MANY_REQUESTS",
    ("error", err(429, lambda b: b["error"].update(code="TOO_MANY_REQUESTS"))),
)
add(
    "ref-429-retry-missing",
    "NA-ERR-007",
    "a 429 has no retry_after",
    ("error", err(429, lambda b: b["error"].pop("details", None) and None)),
)
add(
    "ref-429-retry-string",
    "NA-ERR-007",
    "retry_after of a 429 is a text with its unit",
    ("error", err(429, lambda b: b["error"].update(details={"retry_after": "1s"}))),
)
add(
    "ref-400-no-code",
    "NA-ERR-018",
    "a refusal of a bad body has no code",
    ("error", err(400, lambda b: b["error"].pop("code") and None)),
)
add(
    "ref-400-flat",
    "NA-ERR-012",
    "a refusal of a bad body is code and message without error",
    ("error", err(400, lambda b: dict(b["error"]))),
)
add(
    "ref-400-traceback",
    "NA-ERR-014",
    "a refusal shows a traceback",
    (
        "error",
        err(
            400,
            lambda b: b["error"].update(
                message='Traceback (most recent call last):\n  File "/srv/node/api.py", line 214, in handle\nValueError: bad'
            ),
        ),
    ),
)
add(
    "ref-400-html",
    "NA-ERR-018",
    "a refusal of a bad body is a page of HTML",
    (
        "out:*",
        lambda o, c: (
            (setattr(o, "text", "<h1>400 Bad Request</h1>"), setattr(o, "ctype", "text/html"))
            and None
            if o.status == 400
            else None
        ),
    ),
)
add(
    "ref-404-plain",
    "NA-ERR-012",
    "a path that does not exist is answered with plain text",
    (
        "out:*",
        lambda o, c: (
            (setattr(o, "text", "404: Not Found"), setattr(o, "ctype", "text/plain")) and None
            if o.status == 404 and o.route == "none"
            else None
        ),
    ),
)
# --- JSON
add(
    "fld-json-nan-loss",
    "GEN-010",
    "loss of the status is NaN",
    ("status", put("training.loss", float("nan"))),
)
add(
    "fld-json-infinity-latency",
    "GEN-010",
    "avg_latency_ms of the metrics is Infinity",
    ("metrics", put("inference.avg_latency_ms", float("inf"))),
)
add(
    "fld-json-native-nan",
    "NT-RULE-017",
    "the native model has NaN in its JSON",
    ("n_model", lambda b, c: b.update(drift=float("nan"))),
)
add(
    "fld-json-duplicate-key",
    "GEN-011",
    "an object of the status has a key twice",
    (
        "out:status",
        lambda o, c: setattr(
            o, "text", __import__("json").dumps(o.data)[:-1] + ', "version": "0"}'
        ),
    ),
)
add(
    "fld-json-trailing-comma",
    "GEN-010",
    "the JSON of the balance has a comma before its last brace",
    ("out:balance", lambda o, c: setattr(o, "text", __import__("json").dumps(o.data)[:-1] + ",}")),
)
add(
    "fld-json-single-quotes",
    "GEN-010",
    "the JSON of the peers is written as Python writes it",
    ("out:peers", lambda o, c: setattr(o, "text", str(o.data))),
)
add(
    "fld-json-wrapped",
    "NA-ROUTE-001",
    "the answers of the node API are inside an object data",
    ("out:status", lambda o, c: setattr(o, "data", {"data": o.data})),
    ("out:metrics", lambda o, c: setattr(o, "data", {"data": o.data})),
    ("out:balance", lambda o, c: setattr(o, "data", {"data": o.data})),
)
