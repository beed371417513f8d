"""Things that are unusual but permitted."""
import copy

import switches
from switches import pec

PECULIAR = []
CHANGES = {}


def P(name, text, fn=None):
    PECULIAR.append({"id": name, "text": text})
    if fn is not None:
        CHANGES[name] = fn


def mutate(resource, obj):
    fn = CHANGES.get(switches.PEC)
    if fn is None or not isinstance(obj, dict):
        return obj
    obj = copy.deepcopy(obj)
    out = fn(resource, obj)
    return obj if out is None else out


def backwards(resource, obj):
    if isinstance(obj, dict):
        return {k: backwards(resource, obj[k]) for k in reversed(list(obj))}
    if isinstance(obj, list):
        return [backwards(resource, v) for v in obj]
    return obj


def more(resource, obj):
    obj["x_build"] = "fifth"
    obj["x_more"] = {"a": [1, None, {"b": True}], "token": None}


def more_inner(resource, obj):
    for k, v in list(obj.items()):
        if isinstance(v, dict):
            v["x_inner"] = 1.5
        if isinstance(v, list):
            for o in v:
                if isinstance(o, dict):
                    o["x_inner"] = "y"


def longer(resource, obj):
    for k in ("reason",):
        if k in obj:
            obj[k] = obj[k] + ". " + "This is said at length. " * 60
    if "error" in obj and isinstance(obj["error"], dict):
        obj["error"]["message"] += ". " + "Ask the operator. " * 80


def floats(resource, obj):
    def go(o, key=""):
        if isinstance(o, dict):
            return {k: go(v, k) for k, v in o.items()}
        if isinstance(o, list):
            return [go(v, key) for v in o]
        if isinstance(o, int) and not isinstance(o, bool) and key in ("latency_ms", "loss", "amount", "fee", "available", "staked", "total_memory_gb", "avg_latency_ms",
                                                                     "queue_ms", "requests_per_minute", "reward", "multiplier", "pending", "cpu_percent"):
            return float(o)
        return o
    return go(obj)


def only(resource_name, fn):
    def run(resource, obj):
        if resource == resource_name:
            return fn(obj)
    return run


P("pec-key-order", "the keys of all objects are in reverse order", backwards)
P("pec-more-fields", "every answer has additional fields", more)
P("pec-more-inner-fields", "every inner object has additional fields", more_inner)
P("pec-long-texts", "reasons and messages are very long", longer)
P("pec-floats", "amounts and other numbers always have a decimal point", floats)
P("pec-status-draining", "the status of the node is another word than running", only("status", lambda d: d.update(status="syncing")))
P("pec-role-word", "the role of the node is another word", only("status", lambda d: d.update(role="archivist")))
P("pec-health-degraded", "a check is another word than ok, and the node is not healthy", only("health", lambda d: (d["checks"].update(gpu="degraded"), d.update(healthy=False)) and None))
P("pec-402-more-details", "the details of a 402 have more fields", only("error402", lambda d: d["error"]["details"].update(currency="MESH", hint="deposit")))
P("pec-pending-transfer", "the status of a transfer is submitted", only("send", lambda d: d.update(status="submitted")))
P("pec-trend-word", "the loss trend is another word, in both verifications", lambda r, d: (d.update(loss_trend="plateau") if r == "global" else d["metrics"].update(loss_trend="plateau") if r == "verify" else None))
P("pec-json-indent", "JSON is indented")
P("pec-json-ascii-off", "JSON has letters that are not ASCII as they are")
P("pec-json-sorted", "the keys of JSON are sorted")
P("pec-charset", "the Content-Type of JSON has a charset")
P("pec-stream-charset", "the Content-Type of a stream has a charset")
P("pec-stream-pairs", "one token event carries two tokens")
P("pec-stream-slow", "the events of a stream come one by one, with pauses")
P("pec-slow", "each generation takes 0.15 s longer")
P("pec-text-newlines", "texts have line breaks")
P("pec-text-unicode", "texts have letters that are not ASCII")
P("pec-prompt-bos", "the tokens of a prompt include three special ones")
P("pec-time-offset", "times end with +00:00")
P("pec-time-nanos", "times have nine digits of a second")
P("pec-amount-floats", "whole amounts are written with .0")
P("pec-422", "bad requests get 422")
P("pec-www-authenticate", "a 401 has the header WWW-Authenticate")
P("pec-all-layers", "the layer list has all layers of the model, those of others with another status")
P("pec-default-limit-50", "the default limit of the transactions is 50")
P("pec-history-oldest-first", "the history begins with the oldest entry")
P("pec-proofs-25", "the default limit of the proofs is 25")
P("pec-more-routes", "there are more routes below /api/v1")
P("pec-native-indent", "JSON of the native API is indented")
P("pec-native-text-errors", "errors of the native API are plain text")
P("pec-before-inclusive", "a page of blocks or updates begins with the one that before names")
P("pec-join-301", "old login paths redirect with 301")
P("pec-rpc-http-400", "errors of JSON-RPC have HTTP status 400")
P("pec-k-8", "the K of the distributed hash table is 8")
P("pec-dht-http-port", "the responder of the hash table gives its HTTP port")
P("pec-value-with-nodes", "a value that is found comes with nodes, too")
P("pec-total-size-compressed", "total_size is that of the compressed data")
P("pec-final-with-states", "the last shard returns hidden states beside the logits")
P("pec-gossip-reason", "an accepted gradient has a reason as well")
P("pec-weights-lz4", "weights are an LZ4 frame")
