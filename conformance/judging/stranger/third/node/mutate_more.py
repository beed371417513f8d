"""More faults that are seen in one answer only: of the node API, and of its errors."""

from datetime import datetime
from email.utils import format_datetime
from html import escape

import core
from mutate import _epoch, _only, _set, const, gone, null, text


def _moment(value):
    return datetime.fromisoformat(value.replace("Z", "+00:00"))


def _renamed(old, new):
    """Another name for a key of the object at a dotted path."""

    def run(body):
        node = body
        for part in old.split(".")[:-1]:
            node = node[part]
        if old.split(".")[-1] in node:
            node[new] = node.pop(old.split(".")[-1])
        return body

    return run


def _wrapped(key):
    return lambda body: {key: body}


def _if(test, change):
    return lambda body: change(body) if test(body) else body


def _history(kind, change):
    """A change of the history's entries of one type."""

    def run(body):
        for entry in body["transactions"]:
            if entry["type"] == kind:
                change(entry)
        return body

    return run


def _swapped(one, two):
    def run(body):
        body[one], body[two] = body[two], body[one]
        return body

    return run


def _code(code, change):
    return _if(lambda body: body["error"]["code"] == code, change)


def _each(value, owner):
    return {key: word == "ok" for key, word in value.items()}


def _american(value, owner):
    year, month, day = value.split("-")
    return "%s-%d-%d" % (year, int(month), int(day))


def _listed(value, owner):
    return {path: core.CONFIG[path.split(".")[0]][path.split(".")[1]] for path in value}


TABLE = {
    # status, metrics, health
    "fld2-status-version-null": ("status", _set("version", null)),
    "fld2-status-layers-strings": ("status", _set("layers", lambda v, o: [str(n) for n in v])),
    "fld2-status-role-array": ("status", _set("role", lambda v, o: [v])),
    "fld2-status-peers-listed": (
        "status",
        _set("peer_count", lambda v, o: [peer["id"] for peer in core.peers()]),
    ),
    "fld2-status-cpu-text": ("status", _set("resources.cpu_percent", lambda v, o: "%.1f%%" % v)),
    "fld2-status-gpu-gib": ("status", _set("resources.gpu_memory_used", lambda v, o: round(v / 2**30, 2))),
    "fld2-metrics-time-epoch": ("metrics", _set("timestamp", _epoch)),
    "fld2-metrics-steps-hour-fraction": ("metrics", _set("training.steps_per_hour", lambda v, o: v + 0.4)),
    "fld2-metrics-earned-text": ("metrics", _set("rewards.earned_total", lambda v, o: "%.6f" % v)),
    "fld2-metrics-rpc-camel": ("metrics", _renamed("network.rpc_calls", "rpcCalls")),
    "fld2-metrics-connections-gone": ("metrics", _set("network.active_connections", gone)),
    "fld2-health-healthy-int": ("health", _set("healthy", lambda v, o: int(v))),
    "fld2-health-checks-bool": ("health", _set("checks", _each)),
    "fld2-health-storage-gone": ("health", _set("checks.storage", gone)),
    # generations
    "fld2-result-amount-text": ("result", _set("cost.amount", lambda v, o: "%.6f" % v)),
    "fld2-result-currency-gone": ("result", _set("cost.currency", gone)),
    "fld2-result-total-gone": ("result", _set("usage.total_tokens", gone)),
    "fld2-result-text-null-empty": ("result", _set("text", _only(lambda v, o: v == "", null))),
    "fld2-result-tokens-null-stop": (
        "result",
        _if(lambda b: b["finish_reason"] == "stop", _set("tokens_generated", null)),
    ),
    "fld2-sse-index-text": ("token", _set("index", text)),
    "fld2-final-total-gone": ("final", _set("usage.total_tokens", gone)),
    # wallet
    "fld2-balance-total-text": ("balance", _set("balances.total", lambda v, o: "%.6f" % v)),
    "fld2-balance-multiplier-text": ("balance", _set("staking.multiplier", lambda v, o: "%.2fx" % v)),
    "fld2-balance-duration-text": ("balance", _set("staking.duration_days", lambda v, o: "%d days" % v)),
    "fld2-balance-unlock-no-zeros": ("balance", _set("staking.unlock_date", _american)),
    "fld2-balance-staking-null": (
        "balance",
        _if(lambda b: not b["staking"]["amount"], _set("staking", null)),
    ),
    "fld2-send-amount-text": ("send", _set("amount", text)),
    "fld2-send-id-null-stranger": ("send", lambda b: b if _known(b) else _set("transaction_id", null)(b)),
    "fld2-send-to-object": ("send", _set("to", lambda v, o: {"address": v})),
    "fld2-send-time-http": ("send", _set("timestamp", lambda v, o: format_datetime(_moment(v), True))),
    "fld2-send-status-enum": ("send", _set("status", const(2))),
    "fld2-history-id-gone-rewards": ("history", _history("reward", lambda e: e.pop("id"))),
    "fld2-history-details-text": (
        "history",
        _set("transactions[].details", lambda v, o: '{"proof_id":"%(proof_id)s","role":"%(role)s"}' % v),
    ),
    "fld2-history-proof-camel": (
        "history",
        _history("reward", lambda e: e.update(details={"proofId": e["details"]["proof_id"], "role": "validator"})),
    ),
    "fld2-history-to-null-stranger": (
        "history",
        _history("send", lambda e: e if _known(e) else e.update(to=None)),
    ),
    "fld2-history-total-text": ("history", _set("total", text)),
    "fld2-history-empty-null": (
        "history",
        _if(lambda b: not b["transactions"], _set("transactions", null)),
    ),
    "fld2-stake-success-int": ("stake", _set("success", lambda v, o: int(v))),
    "fld2-stake-start-time": ("stake", _set("stake.start_date", lambda v, o: v + "T00:00:00Z")),
    "fld2-stake-multiplier-null-short": (
        "stake",
        _if(lambda b: b["stake"]["duration_days"] < 30, _set("stake.multiplier", null)),
    ),
    "fld2-stake-available-text": ("stake", _set("new_balance.available", lambda v, o: "%.6f" % v)),
    "fld2-unstake-cooldown-fraction": ("unstake", _set("unstake.cooldown_days", lambda v, o: v - 0.37)),
    "fld2-unstake-date-time": ("unstake", _set("unstake.available_date", lambda v, o: v + "T00:00:00Z")),
    "rel2-send-from-to-swapped": ("send", _swapped("from", "to")),
    "rel2-send-amount-net": ("send", _set("amount", lambda v, o: round(v - o["fee"], 6))),
    "rel2-send-memo-escaped": ("send", _set("memo", lambda v, o: escape(v))),
    "rel2-history-send-positive": (
        "history",
        _history("send", lambda e: e.update(amount=abs(e["amount"]))),
    ),
    "rel2-history-total-page": ("history", _set("total", lambda v, o: len(o["transactions"]))),
    "rel2-history-offset-zero": ("history", _set("offset", const(0))),
    "rel2-history-proof-other": (
        "history",
        _history("reward", lambda e: e.update(details=dict(e["details"], proof_id=e["id"]))),
    ),
    "rel2-balance-staked-zero": ("balance", _set("balances.staked", const(0.0))),
    "rel2-balance-total-minus": (
        "balance",
        _set("balances.total", lambda v, o: o["available"] - o["staked"]),
    ),
    "rel2-balance-multiplier-percent": ("balance", _set("staking.multiplier", lambda v, o: round(v * 100, 2))),
    "rel2-unstake-date-today": (
        "unstake",
        _set("unstake.available_date", lambda v, o: core.today().isoformat()),
    ),
    # peers, layers, network
    "fld2-peers-address-url": ("peers", _set("peers[].address", lambda v, o: "http://" + v)),
    "fld2-peers-since-seconds": (
        "peers",
        _set("peers[].connected_since", lambda v, o: int((core.now() - _moment(v)).total_seconds())),
    ),
    "fld2-peers-layers-text": ("peers", _set("peers[].layers", lambda v, o: ",".join(map(str, v)))),
    "fld2-peers-total-gone": ("peers", _set("total", gone)),
    "fld2-layers-memory-fraction": ("layers", _set("layers[].memory_mb", lambda v, o: v * 1.048576)),
    "fld2-layers-count-array": ("layers", _set("my_layer_count", lambda v, o: list(core.HELD))),
    "fld2-network-drivers-gone": ("network", _set("nodes.drivers", gone)),
    "fld2-network-memory-text": ("network", _set("capacity.total_memory_gb", lambda v, o: "%d GB" % v)),
    "fld2-network-step-mean": ("network", _set("training.global_step", lambda v, o: v + 0.25)),
    "rel2-peers-total-self": ("peers", _set("total", lambda v, o: v + 1)),
    "rel2-layers-mine-all": ("layers", _set("my_layer_count", lambda v, o: o["total_layers"])),
    "rel2-network-total-no-drivers": ("network", _set("nodes.total", lambda v, o: v - o["drivers"])),
    "rel2-network-used-mib": ("network", _set("capacity.used_memory_gb", lambda v, o: v * 1024)),
    "rel2-network-layers-held": ("network", _set("architecture.layers", lambda v, o: len(core.HELD))),
    # configuration
    "fld2-config-tracker-array": ("config", _set("tracker_url", lambda v, o: [v])),
    "fld2-config-port-text": ("config", _set("port", text)),
    "fld2-config-rate-text": ("config", _set("training.learning_rate", lambda v, o: "%.0e" % v)),
    "fld2-config-enabled-int-after": (
        "config",
        _set("training.enabled", _only(lambda v, o: not v, lambda v, o: int(v))),
    ),
    "fld2-patch-updated-object": ("patch", _set("updated", _listed)),
    "fld2-patch-updated-slashes": (
        "patch",
        _set("updated", lambda v, o: [path.replace(".", "/") for path in v]),
    ),
    "fld2-patch-restart-null": ("patch", _set("restart_required", null)),
    "rel2-config-ports-default": ("config", lambda b: dict(b, port=8000, grpc_port=9000)),
    # training
    "fld2-global-shards-count": ("global", _set("data_shards_covered", lambda v, o: len(v))),
    "fld2-global-tokens-text": ("global", _set("global_tokens", text)),
    "fld2-global-trend-slope": ("global", _set("loss_trend", const(-0.0557))),
    "fld2-global-progress-text": ("global", _set("diloco.progress", lambda v, o: "%d%%" % (v * 100))),
    "fld2-global-loss-null-disabled": (
        "global",
        _if(lambda b: not b["local"]["is_training"], _set("local.current_loss", null)),
    ),
    "fld2-verify-reason-null": ("verify", _set("reason", null)),
    "rel2-global-agreement-hundred": ("global", _set("hash_agreement_rate", lambda v, o: v * 100)),
    "rel2-global-success-inverted": ("global", _set("sync_success_rate", lambda v, o: round(1 - v, 4))),
    "rel2-global-inner-total": ("global", _set("diloco.inner_step_count", const(core.STEP))),
    "rel2-global-progress-other": ("global", _set("diloco.progress", lambda v, o: round(1 - v, 4))),
    "rel2-global-node-id-other": ("global", _set("local.node_id", lambda v, o: v[4:])),
    "rel2-verify-agreement-hundredfold": ("verify", _set("metrics.hash_agreement", const("10000%"))),
    # proofs
    "fld2-proofs-layer-text": ("proofs", _set("proofs[].layer", lambda v, o: "layers.%d" % v)),
    "fld2-proofs-verified-null": ("proofs", _set("proofs[].verified", lambda v, o: v or None)),
    # errors
    "fld2-401-error-text": ("error", _code("UNAUTHORIZED", _set("error", lambda v, o: v["message"]))),
    "fld2-402-message-gone": ("error", _code("INSUFFICIENT_BALANCE", _set("error.message", gone))),
    "fld2-402-code-number": ("error", _code("INSUFFICIENT_BALANCE", _set("error.code", const(402)))),
    "fld2-400-message-list": (
        "error",
        _code("BAD_REQUEST", _set("error.message", lambda v, o: [{"loc": ["body"], "msg": v}])),
    ),
    "fld2-429-retry-text": (
        "error",
        _code("RATE_LIMITED", _set("error.details.retry_after", lambda v, o: "%ds" % v)),
    ),
    "fld2-429-retry-fraction": ("error", _code("RATE_LIMITED", _set("error.details.retry_after", const(0.73)))),
    "fld2-429-details-gone": ("error", _code("RATE_LIMITED", _set("error.details", gone))),
    "ref2-429-code-other": ("error", _code("RATE_LIMITED", _set("error.code", const("TOO_MANY_REQUESTS")))),
    "ref2-402-code-funds": (
        "error",
        _code("INSUFFICIENT_BALANCE", _set("error.code", const("INSUFFICIENT_FUNDS"))),
    ),
    "ref2-402-details-gone": ("error", _code("INSUFFICIENT_BALANCE", _set("error.details", gone))),
    # envelopes
    "rou2-proofs-envelope": ("proofs", _wrapped("data")),
    "rou2-peers-bare": ("peers", lambda b: b["peers"]),
    "rou2-layers-by-index": (
        "layers",
        _set("layers", lambda v, o: {str(layer["index"]): layer for layer in v}),
    ),
}


def _known(body):
    import money

    return body.get("to") in money.BY_ADDRESS
