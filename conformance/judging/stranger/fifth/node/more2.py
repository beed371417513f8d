"""A third list of single faults, in the same form as more.py; taken by --fault, too."""
import json
import struct

import faults
import more
import wire
from faults import M, R, S, W, change, drop, put, rename, times

_before = faults.FAULTS
faults.FAULTS = []              # S, M, R and W put the new ones here
V = "/api/v1"


def _single(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def _last_of_unpacked(data):
    """A reader that takes a repeated field written one by one for a single one: the last value stays."""
    fields = wire.parse(data)
    loose = [f for f in fields if f[0] == 4 and f[1] == 0]
    return wire.build([f for f in fields if f not in loose] + loose[-1:])


# ---- fields ----
G_ = "fields"
M("t-fld-metrics-no-network", G_, "2.1", "the metrics have no network", "metrics", drop("network"))
M("t-fld-metrics-nan", G_, "4", "p99_latency_ms is NaN, which JSON does not have, as long as nothing was generated", "metrics",
  lambda d: d["inference"].update(p99_latency_ms=float("nan")) if not d["inference"]["p99_latency_ms"] else None)
M("t-fld-history-details-json", G_, "2.1", "the details of a reward are a text with JSON in it", "transactions", change("transactions[].details", json.dumps))
M("t-fld-peers-by-id", G_, "4.1", "the peers are an object with their ids as keys", "peers", change("peers", lambda v: {p["id"]: p for p in v}))
M("t-fld-offset-text", G_, "4.1", "offset of the list of transactions is a text, as in the query", "transactions", change("offset", str))
S("t-fld-sse-repr", G_, "6", "the events of a stream have single quotes, as Python prints a dictionary")
M("t-fld-final-reason-null", G_, "6", "finish_reason of the final event is null", "final", put("finish_reason", None))
S("t-fld-stream-last-no-blank", G_, "6", "no blank line ends the last event of a stream")
M("t-fld-402-details-list", G_, "7.1", "the details of a 402 are an array with one object", "error402", change("error.details", lambda v: [v]))
M("t-fld-updates-no-loss", G_, "2.2", "the accepted updates have no loss", "n.training", put("updates[].loss", None))
M("t-fld-status-training-omitted", G_, "2.1", "the status has no training while training is switched off", "status",
  lambda d: d.pop("training") and None if not d["training"]["enabled"] else None)
S("t-fld-duplicate-key", G_, "4", "the inference result has the key id twice, once empty")
M("t-fld-send-status-code", G_, "2.1", "status of a transfer result is a number", "send", put("status", 1))

# ---- routes ----
R("t-rou-balance-wallet", "4.1", "the balance is at /wallet", "GET", V + "/wallet/balance", ("GET", V + "/wallet"))
R("t-rou-account-in-path", "4.2", "an account is at /api/account/<public_key>, not under the query", "GET", "/api/account", ("GET", "/api/account/{key}"))
R("t-rou-model-info", "4.2", "the model is at /api/model/info", "GET", "/api/model", ("GET", "/api/model/info"))
S("t-rou-rpc-status", "routes", "4.2", "JSON-RPC does not serve status")
S("t-rou-grpc-unlisted", "routes", "4.3", "operations that the service does not list are answered with OK and an empty message")
S("t-rou-grpc-no-info", "routes", "4.3", "GetCheckpointInfo is missing")
S("t-rou-grpc-validation-stub", "routes", "4.3", "RequestProofValidation is listed but answers UNIMPLEMENTED")
S("t-rou-training-off-404", "routes", "4.1", "the two routes of the training verification get 404 while training is switched off")
S("t-rou-training-page", "routes", "4.2", "the training history is the page of the website, in HTML with 200")

# ---- guards ----
U_ = "guards"
S("t-gua-connection-account", U_, "5", "the account of the first token on a connection is that of all later requests on it")
S("t-gua-connection-refused", U_, "5", "after an unknown token the connection refuses valid tokens as well")
S("t-gua-lockout", U_, "5", "after three unknown tokens valid ones are refused for three seconds")
S("t-gua-first-letter", U_, "5", "the first letter of a token does not count")
S("t-gua-bad-body-logs-out", U_, "5", "the request after a 400 is refused with 401, with the same valid token")
S("t-gua-limit-before-token", U_, "5", "limit and offset are checked before the token, so that a bad one gets 400 without a valid token")
S("t-gua-health-needs", U_, "4.1", "GET /health needs a token")
S("t-gua-native-needs", U_, "5", "GET /api/account needs a bearer token")
S("t-gua-grpc-metadata", U_, "7.3", "GetWeights gets UNAUTHENTICATED without credentials")
S("t-gua-balance-race", U_, "5", "of balances that are read at the same moment with two tokens both are that of the later one")
S("t-gua-while-serving", U_, "5", "while a generation runs requests without a header are served as its account")

# ---- limits ----
L_ = "limits"
S("t-lim-top-p-tenth", L_, "4.1", "a top_p below 0.1 is refused")
S("t-lim-top-k-one", L_, "4.1", "a top_k of 1 is refused")
S("t-lim-temperature-rounded", L_, "8", "the temperature is rounded to a whole number before it is checked, so that 2.3 and -0.2 are accepted")
S("t-lim-stop-cut", L_, "4.1", "only the first eight letters of a stop sequence count")
S("t-lim-stream-default", L_, "4.1", "a stream without max_tokens has 128 tokens")
S("t-lim-max-shared", L_, "4.1", "of generations at the same time each has the max_tokens of the last that came")
S("t-lim-query-order", L_, "4.1", "limit and offset are taken in the order in which they stand in the query, whatever their names")
S("t-lim-history-forty", L_, "4.1", "only the 40 newest transactions can be read, the total counts all")
S("t-lim-last-page", L_, "4.2", "a page of blocks or updates that is not full, at the end of the list, is empty")
S("t-lim-back-deadline-ms", L_, "8", "gradients go back with a deadline of 5 ms")
S("t-lim-grpc-pings", L_, "8", "the server ends connections that ping while no call is in flight, as its library does by default")
S("t-lim-proofs-limit-one", L_, "4.1", "a limit of 1 of the proofs is taken as none given")

# ---- numbers and units ----
N_ = "numbers"
W("t-num-labels-number", "2.3", "training_labels are read from number 13", "PipelineForward", "in", lambda b: wire.renumber(b, {11: None, 13: 11}))
W("t-num-shape-unpacked", "2.3", "of a hidden_shape that is not packed only the last number is read", "PipelineForward", "in", _last_of_unpacked)
W("t-num-gossip-accepted-round", "2.3", "accepted and current_round of a gradient's answer have each other's number", "GossipGradient", "out", lambda b: wire.renumber(b, {1: 3, 3: 1}))
W("t-num-weights-range", "2.3", "shard_range is read from number 2", "GetWeights", "in", lambda b: wire.renumber(b, {1: None, 2: 1}))
W("t-num-value-number", "2.3", "a value that is found is at number 5", "DHTFindValue", "out", lambda b: wire.renumber(b, {2: 5}))
W("t-num-info-params-version", "2.3", "version and params of a checkpoint's description have each other's number", "GetCheckpointInfo", "out", lambda b: wire.renumber(b, {1: 4, 4: 1}))
W("t-num-sent-shape-number", "2.3", "grad_shape and target_shard of gradients that go back have each other's number", "PipelineBackwardRequest", "out", lambda b: wire.renumber(b, {4: 5, 5: 4}))
M("t-num-send-single", N_, "2.1", "the amount of a transfer result went through a number of single precision", "send", change("amount", _single))
M("t-num-supply-denom", N_, "2.2", "the supply has its unit behind the number", "n.network", change("supply_atoms", lambda v: v + "umesh"))
S("t-num-progress-int", N_, "2.1", "diloco.progress is the quotient of whole numbers, 0 until all is done")
M("t-num-latency-negative", N_, "2.1", "latency_ms of a peer is below 0", "peers", times("peers[].latency_ms", -1))
M("t-num-fee-decimals", N_, "2.2", "the fee of an inference called atoms is in whole units", "n.inference", put("fee_atoms", "0.0005"))

# ---- effects ----
E_ = "effects"
S("t-eff-send-race", E_, "2.1", "of transfers that are made at the same time only the last is taken from the balance")
S("t-eff-send-check-early", E_, "7.1", "the balance is checked before the transfers that are under way, so that two of them can take more than there is")
S("t-eff-count-race", E_, "2.1", "of generations at the same time one is counted")
S("t-eff-patch-race", E_, "4.1", "of changes at the same time only the last is made")
S("t-eff-stream-shared", E_, "6", "streams at the same time have the tokens of the one that began last")
S("t-eff-forward-shared", E_, "4.3", "passes at the same time are answered with the result of the last one")
S("t-eff-self-not-listed", E_, "2.1", "a transfer to oneself is not in the history")
S("t-eff-memo-html", E_, "2.1", "the memo is escaped for HTML")
S("t-eff-history-every-account", E_, "4.1", "a transfer is in the history of every account as a send")
S("t-eff-history-second", E_, "2.1", "of the transfers of one second the history keeps the last")
S("t-eff-fee-to-receiver", E_, "2.1", "the receiver of a transfer gets the fee as well")
S("t-eff-stake-whole", E_, "2.1", "a stake adds its amount without the decimals to what is staked")
S("t-eff-stake-400-takes", E_, "2.1", "a stake that is refused for its days is taken from the balance")
S("t-eff-stake-from-pending", E_, "2.1", "a stake is taken first from what is pending")
S("t-eff-unstake-409-pending", E_, "2.1", "an unstake of more than is staked is refused, but its amount becomes pending")
S("t-eff-unstake-doubled", E_, "3", "an unstake takes twice its amount from what is staked")
S("t-eff-401-stakes", E_, "5", "a stake with an expired token gets 401, but is made")
S("t-eff-stopped-free", E_, "2.1", "a generation that a stop sequence ends is not charged")
S("t-eff-metrics-cached", E_, "2.1", "the metrics are those of up to ten seconds ago")
S("t-eff-history-cached", E_, "2.1", "the same query of the transactions gets the list that it got first")
S("t-eff-patch-url-slash", E_, "4.1", "a new tracker_url gets a slash at its end")
S("t-eff-patch-power", E_, "4.1", "a new batch_size is rounded down to a power of two")
S("t-eff-stream-first-twice", E_, "6", "a stream has its first token twice")
S("t-eff-stop-list-order", E_, "4.1", "a text ends at the stop sequence that is first in the array, not at the one that comes first in the text")
S("t-eff-stop-in-prompt", E_, "4.1", "a stop sequence that is in the prompt ends the generation before it begins")
S("t-eff-body-order", E_, "4.1", "parameters that stand before the prompt are ignored")
S("t-eff-layers-grow", E_, "2.1", "every reading of the layers lists them once more")
S("t-eff-uptime-resets", E_, "2.1", "uptime_seconds begins again after a change of the configuration")
S("t-eff-artifact-read-once", E_, "4.2", "an artifact is empty from the second reading on")
S("t-eff-genesis-rewritten", E_, "4.2", "the genesis is written anew, so that its bytes are not the published ones")
S("t-eff-account-parity", E_, "4.2", "keys that differ only in beginning with 02 and 03 have one account")
S("t-eff-back-last-url", E_, "4.3", "gradients go back to the sender_url of the latest pass")
S("t-eff-backward-by-request", E_, "4.3", "graphs are kept under the request_id alone, so that sessions overwrite each other's")
S("t-eff-gossip-refused-round", E_, "2.3", "each gradient that is refused raises the round")
S("t-eff-dht-bucket", E_, "4.3", "a search lists only nodes whose distance to this node has as many bits as that of the target")
S("t-eff-store-one-per-sender", E_, "4.3", "a second store of the same sender replaces its first, whatever the key")
S("t-eff-find-own-none", E_, "4.3", "a search for the ID of the node itself lists no nodes")

# ---- refusals ----
F_ = "refusals"
S("t-ref-body-array-500", F_, "4.1", "a body that is an array gets 500")
S("t-ref-charset-415", F_, "4.1", "a body with a charset beside its media type gets 415")
S("t-ref-chunked-411", F_, "4.1", "a body in chunks gets 411")
S("t-ref-body-space", F_, "4.1", "a body that begins with white space is refused")
S("t-ref-stake-all", F_, "7.1", "a stake of all that is available gets 402")
S("t-ref-unstake-all", F_, "3", "an unstake of all that is staked is refused")
S("t-ref-bool-number", F_, "4.1", "true and false are accepted as numbers in an inference")
S("t-ref-stake-days-fraction", F_, "4.1", "a fraction of days is accepted and cut off")
S("t-ref-patch-null", F_, "4.1", "a change to null is accepted and removes the key")
S("t-ref-offset-404", F_, "4.1", "an offset beyond the end of the transactions gets 404")
S("t-ref-query-encoded", F_, "4.1", "numbers in a query are not read in percent encoding")
S("t-ref-busy-503", F_, "7.1", "a third generation at the same time gets 503 with the code RATE_LIMITED")
S("t-ref-rpc-block-no-height", F_, "4.2", "the method block of JSON-RPC needs a height")
S("t-ref-rpc-validators-height", F_, "4.2", "the method validators of JSON-RPC fails with a height")
S("t-ref-rpc-garbage-ok", F_, "5", "broadcast_tx_sync accepts a transaction that nobody has signed")
S("t-ref-rpc-prefix", F_, "4.2", "JSON-RPC serves every method of the consensus engine whose name begins like an allowed one")
S("t-ref-labels-internal", F_, "7.3", "training_labels of a wrong length get INTERNAL")
S("t-ref-unary-empty-unknown", F_, "7.3", "UnaryInference with an empty message gets UNKNOWN")
S("t-ref-gossip-internal", F_, "7.3", "a gradient that is no LZ4 frame gets INTERNAL")
S("t-ref-checkpoint-both", F_, "4.3", "a checkpoint that is asked for by its hash and its version together is not returned")
S("t-ref-backward-aborted", F_, "7.3", "gradients for an unknown pass get ABORTED")
S("t-ref-unknown-fields", F_, "4.3", "messages with fields that the document does not have are refused")
S("t-ref-busy-unavailable", F_, "7.3", "a second pass at the same time gets UNAVAILABLE")
S("t-ref-after-bad", F_, "7.3", "the call after a bad request gets INTERNAL")
S("t-ref-forward-batch", F_, "2.3", "passes with more than one sequence are refused")

# ---- relations ----
R_ = "relations"
M("t-rel-proofs-layer-one-based", R_, "2.1", "the layers of the proofs are counted from 1, so that one of them does not exist", "proofs", change("proofs[].layer", lambda v: v + 1))
S("t-rel-verify-diverged", R_, "4.1", "only four fifths of the hashes agree and the network does not converge, but is_working is true")
S("t-rel-staking-before", R_, "2.1", "amount of the staking leaves out the latest stake")
S("t-rel-history-to-short", R_, "2.1", "the history shortens the recipient's address in the middle")
S("t-rel-send-stamp-start", R_, "2", "the timestamp of every transfer is that of the first")
S("t-rel-402-available-total", R_, "7.1", "available of a 402 includes what is staked")
S("t-rel-cost-no-prompt", R_, "2.1", "the cost in a result leaves out the prompt, which is charged")
S("t-rel-stream-prompt-words", R_, "6", "a stream counts the words of the prompt, a result its tokens")
M("t-rel-final-counts-itself", R_, "6", "completion_tokens of the final event counts this event as well", "final",
  lambda d: d["usage"].update(completion_tokens=d["usage"]["completion_tokens"] + 1, total_tokens=d["usage"]["total_tokens"] + 1))
S("t-rel-inference-id-second", R_, "2.1", "the id of a result is the time in seconds")
S("t-rel-send-id-content", R_, "2.1", "the transaction_id is a digest of sender, receiver, amount and memo")
M("t-rel-metrics-stamp-minute", R_, "2.1", "the timestamp of the metrics has no seconds, so that other figures have the same time", "metrics", change("timestamp", lambda v: v[:17] + "00.000000Z"))
S("t-rel-peers-since-future", R_, "2", "connected_since is as far in the future as it should be in the past")
S("t-rel-index-goes-on", R_, "6", "the index of token events goes on from stream to stream")
M("t-rel-updated-prefix", R_, "4.1", "the paths in updated begin with config", "patch", change("updated", lambda v: ["config." + x for x in v]))
M("t-rel-block-request-0x", R_, "4.2", "the request ids in a block begin with 0x, and are not found so", "n.block", change("transactions[].request_id", lambda v: "0x" + v))
S("t-rel-rpc-chain", R_, "2.2", "the status of JSON-RPC names another chain")
S("t-rel-checkpoint-hash-part", R_, "4.3", "a checkpoint that is asked for by its hash has the node's own layers alone")
S("t-rel-back-shape-incoming", R_, "2.3", "grad_shape of gradients that go back is that of the gradients that came")
S("t-rel-dht-port-added", R_, "4.3", "nodes that named themselves are listed with 1000 added to their port")

MORE2 = faults.FAULTS
faults.FAULTS = _before

# Shown as well, and taken by --fault, but near to one of the others or very plain.
_SPARE = """
t-num-latency-negative t-num-fee-decimals t-num-weights-range t-eff-unstake-doubled t-eff-fee-to-receiver t-eff-find-own-none t-eff-stopped-free t-eff-patch-power t-eff-stream-first-twice
t-eff-stake-whole t-eff-stake-from-pending t-ref-rpc-validators-height t-ref-labels-internal t-ref-offset-404 t-ref-forward-batch t-ref-body-space t-rel-updated-prefix t-rel-rpc-chain
t-rel-dht-port-added t-rel-history-to-short t-lim-top-k-one t-lim-proofs-limit-one t-fld-send-status-code t-fld-final-reason-null
""".split()
assert not set(_SPARE) - {f["id"] for f in MORE2}, set(_SPARE) - {f["id"] for f in MORE2}
_taken = {f["id"] for f in faults.FAULTS + faults.SPARE + more.MORE + more.MORE_SPARE}
assert not {f["id"] for f in MORE2} & _taken and len({f["id"] for f in MORE2}) == len(MORE2)
MORE2_SPARE = [f for f in MORE2 if f["id"] in set(_SPARE)]
MORE2 = [f for f in MORE2 if f["id"] not in set(_SPARE)]
