"""Faults of fields: those that the code asks for, and those made by a table."""

TEXT = """
fld-date-slashes|GEN-009|dates are written with slashes
fld-date-unpadded|GEN-009|dates are written as day-month-year, or without leading zeros
fld-date-with-time|GEN-009|dates have a time behind them
fld-dht-find-node-no-responder|DH-017|the answer of DHTFindNode has no responder
fld-dht-find-value-no-responder|DH-017|the answer of DHTFindValue has no responder
fld-dht-found-missing-value|DH-009|found is true and the value is missing
fld-dht-ip-with-port|DH-013|the port of listed nodes is in the field ip, and the field port is missing
fld-dht-learns-without-address|DH-018|senders without an address are learned and listed
fld-dht-listed-no-ip|DH-018|listed nodes have no ip
fld-dht-listed-no-port|DH-013|listed nodes have no port
fld-dht-listed-one-empty|DH-003|the last listed node is an empty message
fld-dht-self-no-id|DH-002|the responder has no node ID
fld-dht-self-no-port|DH-026|the responder has no port
fld-dht-store-no-responder|DH-017|the answer of DHTStore has no responder
fld-money-strings|NA-BALANCE-006|all amounts of the node API are strings
fld-native-atoms-commas|NT-RULE-011|native amounts have thousands separators
fld-native-atoms-exponent|NT-RULE-011|native amounts are written with an exponent
fld-native-atoms-float|NT-RULE-029|native amounts are JSON numbers with a fraction
fld-native-atoms-fraction|NT-RULE-011|native amounts end with .0
fld-native-atoms-hex|NT-RULE-011|native amounts are hexadecimal
fld-native-atoms-int|NT-RULE-029|native amounts are JSON integers
fld-native-atoms-suffix|NT-RULE-011|native amounts have the word atoms behind them
fld-native-atoms-units|NT-RULE-011|native amounts are whole units with decimals
fld-sse-buffer-one-chunk|NA-SSE-001|a stream is sent at its end in one piece, which is cut three bytes early
fld-sse-cr-only|NA-SSE-001|events end with the characters backslash and n instead of line breaks
fld-sse-done-bare|NA-SSE-001|the final event is a bare [DONE] instead of JSON
fld-sse-double-encoded|NA-SSE-001|the data of an event is JSON inside a JSON string
fld-sse-no-prefix|NA-SSE-001|events lack the word data
fld-sse-prefix-capital|NA-SSE-001|events begin with Data instead of data
fld-sse-prefix-event|NA-SSE-001|events begin with event instead of data
fld-sse-python-repr|NA-SSE-001|the data of an event is written as Python writes it
fld-sse-single-newline|NA-SSE-001|no blank line stands between events
fld-sse-text-unescaped|NA-SSE-001|line breaks and quotes in tokens are not escaped
fld-time-compact|GEN-008|timestamps are written as day.month.year
fld-time-http-form|GEN-008|timestamps have the form of HTTP headers
fld-time-local-offset|GEN-008|timestamps have the offset +02:00
"""
LINES = [l.split("|") for l in TEXT.strip().splitlines()]
OPS = {
    "drop": "is missing",
    "null": "is null",
    "str": "is a string",
    "frac": "has a fraction",
    "camel": "is called by a camel-case name",
    "one": "is 0 or 1 instead of a bool",
    "word": "is the word yes or no instead of a bool",
    "list": "is inside an array",
    "csv": "is a text with commas instead of an array",
    "empty": "is an empty text",
    "neg": "is below zero",
    "num": "is a number instead of a string",
    "map": "is an object keyed by index instead of an array",
    "unix": "is a Unix time",
    "flat": "is flattened into the object around it",
    "strs": "has strings as members",
    "off": "is a number of days since 1970",
}
# route | path | op | requirement
TABLE = """
status|version|drop|NA-STATUS-003
status|node_id|num|NA-STATUS-002
status|uptime_seconds|frac|NA-STATUS-006
status|uptime_seconds|camel|NA-STATUS-005
status|uptime_seconds|str|NA-STATUS-006
status|status|one|NA-STATUS-008
status|role|null|NA-STATUS-010
status|role|empty|NA-SANE-014
status|layers|csv|NA-STATUS-012
status|layers|strs|NA-STATUS-012
status|peer_count|drop|NA-STATUS-013
status|training|flat|NA-STATUS-015
status|training.enabled|word|NA-STATUS-018
status|training.step|camel|NA-STATUS-021
status|training.epoch|frac|NA-STATUS-020
status|training.loss|str|NA-STATUS-024
status|resources.gpu_memory_total|drop|NA-STATUS-029
status|resources.cpu_percent|null|NA-STATUS-032
status|resources.ram_used|frac|NA-STATUS-034
metrics|timestamp|unix|NA-METRICS-002
metrics|inference.requests_total|str|NA-METRICS-006
metrics|inference.p99_latency_ms|drop|NA-METRICS-011
metrics|inference.tokens_generated|camel|NA-METRICS-013
metrics|inference.requests_per_minute|null|NA-METRICS-008
metrics|inference.avg_latency_ms|str|NA-METRICS-010
metrics|training.steps_per_hour|frac|NA-METRICS-020
metrics|training.gradients_accepted|drop|NA-METRICS-023
metrics|network|drop|NA-METRICS-025
metrics|network.rpc_calls|drop|NA-METRICS-033
metrics|network.bytes_sent|str|NA-METRICS-028
metrics|rewards.earned_today|str|NA-METRICS-038
metrics|rewards.pending|drop|NA-METRICS-041
health|healthy|word|NA-HEALTH-002
health|checks|list|NA-HEALTH-004
health|checks.gpu|one|NA-HEALTH-006
health|checks.storage|drop|NA-HEALTH-009
inference|id|num|NA-INF-RESULT-002
inference|text|list|NA-INF-RESULT-004
inference|tokens_generated|drop|NA-INF-RESULT-005
inference|finish_reason|null|NA-INF-RESULT-008
inference|usage.prompt_tokens|str|NA-INF-RESULT-012
inference|usage|flat|NA-INF-RESULT-009
inference|cost.amount|str|NA-INF-RESULT-020
inference|cost.currency|drop|NA-INF-RESULT-021
inference|timing.queue_ms|null|NA-INF-RESULT-026
inference|timing|drop|NA-INF-RESULT-023
balance|address|null|NA-BALANCE-002
balance|balances|flat|NA-BALANCE-003
balance|balances.pending|drop|NA-BALANCE-009
balance|balances.total|str|NA-BALANCE-012
balance|staking.duration_days|frac|NA-BALANCE-018
balance|staking.unlock_date|unix|NA-BALANCE-022
balance|staking.multiplier|str|NA-BALANCE-024
balance|staking|null|NA-BALANCE-014
send|transaction_id|num|NA-SEND-002
send|fee|str|NA-SEND-010
send|memo|null|NA-SEND-012
send|timestamp|drop|NA-SEND-015
send|status|one|NA-SEND-014
history|transactions[].id|num|NA-HISTORY-010
history|transactions[].timestamp|unix|NA-HISTORY-016
history|transactions[].amount|str|NA-HISTORY-014
history|transactions[].type|drop|NA-HISTORY-011
history|transactions[].to|null|NA-HISTORY-024
history|transactions[].details|str|NA-HISTORY-018
history|total|str|NA-HISTORY-004
history|offset|drop|NA-HISTORY-007
stake|success|word|NA-STAKE-002
stake|stake.start_date|drop|NA-STAKE-009
stake|stake.duration_days|str|NA-STAKE-008
stake|stake.multiplier|null|NA-STAKE-014
stake|new_balance.staked|drop|NA-STAKE-019
unstake|unstake.cooldown_days|str|NA-UNSTAKE-008
unstake|unstake.available_date|unix|NA-UNSTAKE-010
unstake|unstake.amount|drop|NA-UNSTAKE-005
peers|peers[].layers|csv|NA-PEERS-012
peers|peers[].latency_ms|str|NA-PEERS-014
peers|peers[].connected_since|unix|NA-PEERS-016
peers|peers[].role|drop|NA-PEERS-009
peers|total|drop|NA-PEERS-003
layers|layers[].memory_mb|frac|NA-LAYERS-012
layers|layers[].index|str|NA-LAYERS-008
layers|layers|map|NA-LAYERS-002
layers|my_layer_count|camel|NA-LAYERS-005
network|architecture.parameters|num|NA-NETWORK-018
network|nodes.validators|drop|NA-NETWORK-009
network|capacity.used_memory_gb|str|NA-NETWORK-024
network|training.loss|null|NA-NETWORK-032
config|grpc_port|str|NA-CONFIG-006
config|training.learning_rate|str|NA-CONFIG-016
config|resources|flat|NA-CONFIG-019
config|resources.cpu_threads|frac|NA-CONFIG-024
config|tracker_url|drop|NA-CONFIG-007
patch|restart_required|drop|NA-PATCH-005
patch|updated|csv|NA-PATCH-004
patch|success|word|NA-PATCH-002
proofs|proofs[].verified|one|NA-PROOFS-014
proofs|proofs[].timestamp|drop|NA-PROOFS-011
proofs|proofs[].reward|str|NA-PROOFS-016
proofs|proofs[].layer|null|NA-PROOFS-010
proofs|stats|drop|NA-PROOFS-003
proofs|stats.total_submitted|camel|NA-PROOFS-017
tglobal|data_shards_covered|csv|TR-GLOBAL-020
tglobal|diloco.progress|str|TR-GLOBAL-046
tglobal|local|drop|TR-GLOBAL-027
tglobal|is_converging|one|TR-GLOBAL-022
tglobal|global_tokens|str|TR-GLOBAL-018
tglobal|diloco.inner_step_count|drop|TR-GLOBAL-041
tglobal|loss_trend|num|TR-GLOBAL-026
tverify|reason|drop|TR-VERIFY-003
tverify|metrics|drop|TR-VERIFY-005
tverify|metrics.hash_agreement|num|TR-VERIFY-010
tverify|metrics.global_loss|str|TR-VERIFY-012
tverify|is_working|word|TR-VERIFY-002
sse_token|token|null|NA-SSE-TOKEN-002
sse_token|token|camel|NA-SSE-TOKEN-001
sse_token|index|str|NA-SSE-TOKEN-004
sse_token|index|drop|NA-SSE-TOKEN-003
sse_final|finish_reason|drop|NA-SSE-FINAL-003
sse_final|usage|drop|NA-SSE-FINAL-005
sse_final|usage.total_tokens|drop|NA-SSE-FINAL-011
sse_final|usage.completion_tokens|str|NA-SSE-FINAL-010
sse_final|token|null|NA-SSE-FINAL-002
n_account|spendable_atoms|null|NT-RULE-026
n_account|next_nonce|null|NT-RULE-026
n_account|locked_atoms|drop|NT-RULE-026
n_network|tip.height|null|NT-RULE-026
n_network|round|drop|NT-RULE-026
n_network|supply.total_atoms|null|NT-RULE-026
n_inference|price_atoms|null|NT-RULE-026
n_checkpoint|root|null|NT-RULE-026
n_model|training_root|null|NT-RULE-026
n_training|accepted[].round|null|NT-RULE-026
n_blocks|listed[].hash|null|NT-RULE-026
"""
ROWS = [l.split("|") for l in TABLE.strip().splitlines()]


def camel(s):
    p = s.split("_")
    return p[0] + "".join(x.capitalize() for x in p[1:]) if len(p) > 1 else s.capitalize()


def change(d, k, op):
    if k not in d:
        return
    v = d[k]
    if op == "drop":
        d.pop(k)
    elif op == "null":
        d[k] = None
    elif op == "str":
        d[k] = v if isinstance(v, str) else str(v)
    elif op == "frac":
        d[k] = v + 0.5
    elif op == "camel":
        d[camel(k)] = d.pop(k)
    elif op == "one":
        d[k] = 1 if v else 0
    elif op == "word":
        d[k] = "yes" if v else "no"
    elif op == "list":
        d[k] = [v]
    elif op == "csv":
        d[k] = ",".join(map(str, v))
    elif op == "empty":
        d[k] = ""
    elif op == "neg":
        d[k] = -abs(v) - 1
    elif op == "num":
        d[k] = len(str(v)) + sum(map(ord, str(v)))
    elif op == "map":
        d[k] = {str(i): x for i, x in enumerate(v)}
    elif op == "unix":
        d[k] = 1790000000
    elif op == "flat":
        d.pop(k)
        for a, b in v.items():
            d.setdefault(a, b)
    elif op == "strs":
        d[k] = [str(x) for x in v]


def walk(b, path, op):
    parts = path.split(".")
    if b is None:
        return

    def go(x, i):
        p = parts[i]
        if p.endswith("[]"):
            for y in list(x.get(p[:-2]) or ()):
                if i + 1 < len(parts):
                    go(y, i + 1)
        elif i + 1 == len(parts):
            change(x, p, op)
        elif isinstance(x.get(p), dict):
            go(x[p], i + 1)

    go(b, 0)


MADE = {}
for _r, _p, _o, _q in ROWS:
    _id = "fld-%s-%s-%s" % (
        _r.replace("_", "-"),
        _p.replace("[]", "").replace(".", "-").replace("_", "-"),
        _o,
    )
    assert _id not in MADE, _id
    MADE[_id] = {"hooks": [(_r, (lambda p, o: lambda b, c: walk(b, p, o))(_p, _o))]}
    _w = {
        "n_account": "the native account",
        "n_network": "the network identity",
        "n_inference": "the inference information",
        "n_checkpoint": "the native checkpoint",
        "n_model": "the native model",
        "n_training": "the training history",
        "n_blocks": "the list of blocks",
        "sse_token": "a token event",
        "sse_final": "the final event",
        "tglobal": "the global verification",
        "tverify": "the quick verification",
    }.get(_r, "the answer of " + _r)
    LINES.append([_id, _q, "%s in %s %s" % (_p.replace("[]", ""), _w, OPS[_o])])
