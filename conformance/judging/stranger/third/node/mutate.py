"""Faults that are seen in one answer only: each changes the body of one kind of answer."""

from datetime import datetime, timedelta

import core


def _set(path, change):
    """Change the value at a dotted path; [] is every entry."""
    parts = path.split(".")

    def run(body):
        _walk(body, parts, change)
        return body

    return run


def _walk(node, parts, change):
    head, rest = parts[0], parts[1:]
    each = head.endswith("[]")
    name = head[:-2] if each else head
    if not isinstance(node, dict) or name not in node:
        return
    if each:
        for item in node[name]:
            _walk(item, rest, change)
    elif rest:
        _walk(node[name], rest, change)
    else:
        new = change(node[name], node)
        if new is _GONE:
            del node[name]
        else:
            node[name] = new


_GONE = object()


def gone(value, owner):
    return _GONE


def null(value, owner):
    return None


def text(value, owner):
    return str(value)


def num(value, owner):
    return float(value) + 0.5


def const(what):
    return lambda value, owner: what


def _local(value, owner):
    return value[:-1]


def _only(test, change):
    return lambda value, owner: change(value, owner) if test(value, owner) else value


def _later(seconds):
    def run(value, owner):
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")) + timedelta(seconds=seconds)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return run


def _epoch(value, owner):
    return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()


def _cut_last(name):
    def run(body):
        if len(body.get(name, [])) > 3:
            body[name].pop()
        return body

    return run


def _dup_layer(body):
    body["layers"].append(dict(body["layers"][-1]))
    return body


def _dupes(value, owner):
    return value + value[:1]


TABLE = {
    # fields
    "fld-status-uptime-float": ("status", _set("uptime_seconds", num)),
    "fld-status-loss-gone-disabled": (
        "status",
        lambda b: b if b["training"]["enabled"] else _set("training.loss", null)(b),
    ),
    "fld-status-ram-negative": ("status", _set("resources.ram_used", lambda v, o: v - 2**33)),
    "fld-status-layers-twice": ("status", _set("layers", _dupes)),
    "fld-metrics-time-local": ("metrics", _set("timestamp", _later(3600))),
    "fld-metrics-time-naive": ("metrics", _set("timestamp", _local)),
    "fld-metrics-pending-gone": ("metrics", _set("rewards.pending", gone)),
    "fld-result-usage-gone-short": (
        "result",
        lambda b: _set("usage", gone)(b) if b["tokens_generated"] == 1 else b,
    ),
    "fld-result-queue-null": ("result", _set("timing.queue_ms", null)),
    "fld-result-finish-null-length": (
        "result",
        _set("finish_reason", _only(lambda v, o: v == "length", null)),
    ),
    "fld-balance-pending-gone-zero": ("balance", _set("balances.pending", _only(lambda v, o: v == 0, gone))),
    "fld-balance-unlock-time": ("balance", _set("staking.unlock_date", lambda v, o: v + "T00:00:00Z")),
    "fld-balance-start-german": (
        "balance",
        _set("staking.start_date", lambda v, o: ".".join(v.split("-")[::-1])),
    ),
    "fld-send-memo-null-empty": ("send", _set("memo", _only(lambda v, o: v == "", null))),
    "fld-send-time-naive": ("send", _set("timestamp", _local)),
    "fld-send-fee-gone-self": ("send", lambda b: _set("fee", gone)(b) if b["from"] == b["to"] else b),
    "fld-history-amount-text-large": (
        "history",
        _set("transactions[].amount", _only(lambda v, o: abs(v) >= 9, text)),
    ),
    "fld-history-role-gone-old": (
        "history",
        lambda b: _set("transactions[].details.role", gone)(b) if b["offset"] >= 20 else b,
    ),
    "fld-history-to-gone-self": (
        "history",
        _set("transactions[].to", _only(lambda v, o: v == o.get("from"), gone)),
    ),
    "fld-history-time-space": (
        "history",
        _set("transactions[].timestamp", lambda v, o: v.replace("T", " ")[:19]),
    ),
    "fld-peers-no-port": (
        "peers",
        _set("peers[].address", _only(lambda v, o: v.endswith(":8000"), lambda v, o: v[:-5])),
    ),
    "fld-peers-latency-null-one": ("peers", _set("peers[].latency_ms", _only(lambda v, o: v > 40, null))),
    "fld-layers-status-empty-last": (
        "layers",
        _set("layers[].status", _only(lambda v, o: o["index"] == core.HELD[-1], const(""))),
    ),
    "fld-network-parameters-int": ("network", _set("architecture.parameters", lambda v, o: int(v))),
    "fld-config-threads-text-after": (
        "config",
        _set("resources.cpu_threads", _only(lambda v, o: v != 6, text)),
    ),
    "fld-verify-agreement-fraction": ("verify", _set("metrics.hash_agreement", const("1.0"))),
    "fld-proofs-reward-null-open": (
        "proofs",
        _set("proofs[].reward", lambda v, o: v if o["verified"] else None),
    ),
    # relations within one answer
    "rel-status-layer-not-listed": ("status", _set("layers", lambda v, o: v[:-1] + [v[-1] + 1])),
    "rel-layers-one-based": ("layers", _set("layers[].index", lambda v, o: v + 1)),
    "rel-layers-total-is-last-index": ("layers", _set("total_layers", lambda v, o: v - 1)),
    "rel-completion-counts-end": (
        "result",
        lambda b: _set("usage.completion_tokens", lambda v, o: v + 1)(b) if b["finish_reason"] == "stop" else b,
    ),
    "rel-global-min-above-avg": ("global", _set("global_min_loss", lambda v, o: o["global_avg_loss"] + 0.01)),
    "rel-verify-other-trend": ("verify", _set("metrics.loss_trend", const("stable"))),
    "rel-proofs-reward-pending": ("proofs", _set("stats.total_reward", lambda v, o: v + 3)),
    "rel-config-grpc-plus-one": ("config", _set("grpc_port", lambda v, o: o["port"] + 1)),
    "rel-cost-negative-stop": (
        "result",
        lambda b: _set("cost.amount", lambda v, o: -v)(b) if b["finish_reason"] == "stop" else b,
    ),
    "rel-unstake-days-fixed": ("unstake", _set("unstake.cooldown_days", lambda v, o: v - 1)),
    "rel-history-limit-default": ("history", _set("limit", const(20))),
    "rel-peers-since-future": (
        "peers",
        _set("peers[].connected_since", _only(lambda v, o: o["role"] == "validator", _later(90000))),
    ),
}


def _send_memo_ascii(body):
    body["memo"] = body["memo"].encode("ascii", "replace").decode()
    return body


def _send_memo_trim(body):
    body["memo"] = body["memo"].strip()[:64]
    return body


TABLE |= {
    "rel-send-memo-cut": ("send", _send_memo_trim),
    "rel-send-fee-atoms": ("send", _set("fee", lambda v, o: v * core.MICRO)),
}


def apply(route, body):
    """The body as this run answers it."""
    import mutate_more

    name = core.FLAGS["fault"]
    for table in (TABLE, mutate_more.TABLE):
        if name in table and table[name][0] == route:
            return table[name][1](body)
    return body
