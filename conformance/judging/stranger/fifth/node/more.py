"""More single faults, in the same form as those of faults.py; taken by --fault, too."""
import faults
import wire
from faults import M, R, S, W, change, drop, put, rename, times

_before = faults.FAULTS
faults.FAULTS = []              # S, M, R and W put the new ones here

# ---- effects ----
E_ = "effects"
S("n-eff-send-repeat", E_, "2.1", "a transfer with the receiver and amount of the one before it is confirmed but moves nothing")
S("n-eff-send-cents", E_, "2.1", "the receiver gets the amount rounded down to two decimals")
S("n-eff-stake-on-main", E_, "2.1", "a stake of the second account is added to what the main account has staked")
S("n-eff-unstake-replaces-pending", E_, "3", "a second unstake replaces the pending amount of the first")
S("n-eff-count-stopped-none", E_, "2.1", "a generation that a stop sequence ends is not counted in requests_total")
S("n-eff-count-second-none", E_, "2.1", "the tokens of the second account's generations are not counted")
S("n-eff-stop-leaks", E_, "4.1", "without stop the stop sequences of the request before are used")
S("n-eff-stop-within-token", E_, "4.1", "a stop sequence that goes over several tokens is not found")
S("n-eff-stop-regex", E_, "4.1", "stop sequences are taken as regular expressions")
S("n-eff-stream-64", E_, "6", "a stream loses the token events after the 64th")
S("n-eff-stream-second-empty", E_, "6", "the second stream of a prompt has the final event alone")
S("n-eff-inference-cache", E_, "4.1", "a prompt that came before gets its earlier text, whatever max_tokens says now")
S("n-eff-patch-shallow", E_, "4.1", "a change of one key of resources resets the other")
S("n-eff-patch-once", E_, "4.1", "the second change of the same key is answered but not made")
S("n-eff-store-key-zero", E_, "4.3", "keys are compared up to their first zero byte")
S("n-eff-value-empty-lost", E_, "4.3", "a stored value that is an empty text is not found")
S("n-eff-value-odd-spaces", E_, "4.3", "a value loses its spaces when it is found")
S("n-eff-dht-text-distance", E_, "4.3", "distances are compared as texts of digits, so a short one can come last")
S("n-eff-dht-limit-before-sort", E_, "4.3", "the first 20 known nodes are sorted, not the 20 closest taken")
S("n-eff-dht-old-address", E_, "4.3", "a node that has moved is listed with its old address")
S("n-eff-weights-next-layer", E_, "2.3", "weights of a single layer are those of the layer before, under the asked one's name")
S("n-eff-forward-session-cache", E_, "4.3", "a later pass of a session gets the logits of its first pass")
S("n-eff-backward-one-per-session", E_, "4.3", "only the last pass of a session can be followed by a backward pass")
S("n-eff-back-slash-url", E_, "4.3", "gradients do not go back if sender_url ends with a slash")
S("n-eff-request-read-expires", E_, "3", "a pending job is expired once it was read")
S("n-eff-training-first-lost", E_, "4.2", "the first accepted update is missing from the history")
S("n-eff-artifact-text", E_, "4.2", "artifacts are sent as text, which damages those that are not UTF-8")

# ---- fields ----
G_ = "fields"
M("n-fld-status-layers-objects", G_, "2.1", "the layers of the status are objects with an index", "status", change("layers", lambda v: [{"index": x} for x in v]))
S("n-fld-metrics-avg-null", G_, "2.1", "avg_latency_ms is null as long as nothing was generated")
M("n-fld-inference-usage-camel", G_, "2.1", "the keys of usage are promptTokens, completionTokens and totalTokens", "inference",
  lambda d: d.__setitem__("usage", {k.split("_")[0] + "Tokens": v for k, v in d["usage"].items()}))
M("n-fld-balance-staking-null", G_, "2.1", "staking is null for an account without a stake", "balance", lambda d: d.update(staking=d["staking"] if d["staking"]["amount"] else None))
M("n-fld-send-memo-omitted", G_, "2.1", "a transfer result has no memo if the memo is empty", "send", lambda d: None if d["memo"] else d.pop("memo") and None)
S("n-fld-history-to-known-only", G_, "2.1", "send entries to addresses without an account have no to")
M("n-fld-config-enabled-int", G_, "2.1", "training.enabled of the configuration is 1 or 0", "config", change("training.enabled", int))
M("n-fld-patch-updated-object", G_, "4.1", "updated is an object, not an array", "patch", change("updated", lambda v: {k: True for k in v}))
M("n-fld-global-verified-word", G_, "2.1", "training_verified is the text true", "global", put("training_verified", "true"))
M("n-fld-verify-problem-no-action", G_, "4.1", "the quick verification reports a problem without an action", "verify",
  lambda d: (d.pop("metrics"), d.update(is_working=False, reason="hash agreement is below 100%")) and None)
M("n-fld-proofs-unverified-null", G_, "2.1", "verified is null for proofs that are not verified", "proofs", change("proofs[].verified", lambda v: v or None))
M("n-fld-token-index-omitted", G_, "6", "the first token event has no index", "token", lambda d: d.pop("index") and None if d["index"] == 0 else None)
S("n-fld-402-stake-no-details", G_, "7.1", "a 402 of a stake has no details")
S("n-fld-401-empty-body", G_, "7.1", "a 401 for a missing header has no body")
M("n-fld-account-no-locked", G_, "2.2", "an account with nothing locked has no locked budget", "n.account", lambda d: d.pop("locked_atoms") and None if d["locked_atoms"] == "0" else None)
M("n-fld-blocks-no-results", G_, "4.2", "the list of blocks has no execution results", "n.blocks", put("blocks[].results", None))
M("n-fld-work-no-attempts", G_, "4.2", "the work status has no remaining attempts", "n.work", drop("stages[].attempts_remaining"))
M("n-fld-block-unsigned", G_, "4.2", "the transactions of a block have no signature", "n.block", drop("transactions[].signature"))
M("n-fld-request-no-response", G_, "3", "the record of a completed request has no response", "n.request", lambda d: d.update(response=None) if d.get("status") == "completed" else None)
S("n-fld-info-no-phase", G_, "2.3", "the description of a checkpoint has no phase")
S("n-fld-find-value-no-responder", G_, "2.3", "the answer with a value that is found has no responder")
S("n-fld-forward-labels-no-logits", G_, "2.3", "a final pass with training_labels has a loss but no logits")

# ---- guards ----
U_ = "guards"
S("n-gua-empty-bearer", U_, "5", "a bearer header without a token is served as the main account")
S("n-gua-remembered", U_, "5", "after a valid token requests without a header are served as its account")
S("n-gua-expired-second-time", U_, "5", "an expired token is refused once, then accepted")
S("n-gua-token-contains", U_, "5", "a token that contains a valid one is accepted")
S("n-gua-patch-empty", U_, "5", "an empty change of the configuration needs no token")
S("n-gua-content-type", U_, "5", "the token of a POST is checked only if its Content-Type is application/json")
S("n-gua-second-page", U_, "5", "pages of the transactions with an offset need no token")
S("n-gua-proofs-after", U_, "5", "the proofs need no token once they were read with one")
S("n-gua-balance-shared", U_, "5", "for two seconds after a reading every token, also an unknown one, gets the same balance")
S("n-gua-long-token", U_, "5", "a token of more than 256 letters is served as the main account")
S("n-gua-null-token", U_, "5", "the tokens null and undefined are served as the main account")
S("n-gua-work-signature-true", U_, "5", "a worker message whose signature is the value true is accepted")
S("n-gua-network-needs", U_, "4.1", "GET /network needs a token")
S("n-gua-global-needs", U_, "4.1", "the global training verification needs a token")

# ---- limits ----
L_ = "limits"
S("n-lim-default-last", L_, "4.1", "without max_tokens that of the request before is used")
S("n-lim-stop-four", L_, "4.1", "the fifth and later stop sequences are ignored")
S("n-lim-stream-max-plus-one", L_, "4.1", "a stream has one token more than max_tokens")
S("n-lim-max-zero-default", L_, "4.1", "max_tokens 0 is taken as none given")
S("n-lim-temperature-two", L_, "8", "a temperature of exactly 2 is refused")
S("n-lim-stream-temperature", L_, "8", "the temperature of a stream is not checked")
S("n-lim-offset-clamped", L_, "4.1", "an offset beyond the end gives the last entry")
S("n-lim-limit-over-total", L_, "4.1", "a limit above the number of entries gives an empty page")
S("n-lim-native-limit-with-before", L_, "4.2", "limit of blocks and updates is ignored if before is given")
S("n-lim-before-text", L_, "4.2", "before is compared as a text")
S("n-lim-before-above-head", L_, "4.2", "a before above the newest block or update gives an empty list")
S("n-lim-grpc-decimal", L_, "8", "the server takes messages of 100 million bytes, not of 100 MiB")
S("n-lim-grpc-send-4-mib", L_, "8", "the server sends messages of at most 4 MiB")
S("n-lim-back-one-try", L_, "7.3", "gradients are not sent again after UNAVAILABLE")
S("n-lim-find-value-four", L_, "4.3", "a search for an absent value lists the four closest nodes, a search for a node 20")
S("n-lim-dht-target-any", L_, "8", "IDs and keys of any length are filled up or cut to 20 bytes")
S("n-lim-prompt-cut", L_, "4.1", "of a prompt only the first 1000 letters count")
S("n-lim-stake-year", L_, "4.1", "a stake of more than 365 days is one of 365 days")

# ---- numbers and units ----
N_ = "numbers"
W("n-num-back-success-number", "2.3", "success of a backward pass is at number 3", "PipelineBackward", "out", lambda b: wire.renumber(b, {1: 3}))
W("n-num-back-shape-target", "2.3", "grad_shape is read from number 5 and target_shard from 4", "PipelineBackward", "in", lambda b: wire.renumber(b, {4: 5, 5: 4}))
W("n-num-checkpoint-hash-phase", "2.3", "model_hash and phase of a checkpoint have each other's number", "GetCheckpoint", "out", lambda b: wire.renumber(b, {4: 5, 5: 4}))
W("n-num-checkpoint-min-number", "2.3", "min_version is read from number 3", "GetCheckpoint", "in", lambda b: wire.renumber(b, {2: None, 3: 2}))
W("n-num-info-version-zigzag", "2.3", "version of a checkpoint's description is a sint32", "GetCheckpointInfo", "out", lambda b: wire.retype(b, 1, wire.zigzag))
W("n-num-find-node-nodes", "2.3", "the nodes of a search are at number 3", "DHTFindNode", "out", lambda b: wire.renumber(b, {2: 3}))
W("n-num-store-success-text", "2.3", "success of a store is a text", "DHTStore", "out", lambda b: wire.retype(b, 2, lambda k, v: (2, b"true")))
W("n-num-forward-url-number", "2.3", "sender_url of a pass is read from number 13", "PipelineForward", "in", lambda b: wire.renumber(b, {12: None, 13: 12}))
W("n-num-gossip-batch-number", "2.3", "batch_size and round_id of a gradient are read from each other's number", "GossipGradient", "in", lambda b: wire.renumber(b, {2: 5, 5: 2}))
S("n-num-uptime-epoch", N_, "2.1", "uptime_seconds is the time since 1970")
S("n-num-rpm-per-second", N_, "2.1", "requests_per_minute is the number for a second")
M("n-num-metrics-avg-seconds", N_, "2.1", "avg_latency_ms is in seconds", "metrics", times("inference.avg_latency_ms", 0.001))
M("n-num-rewards-atoms", N_, "2.1", "the rewards of the metrics are in atoms", "metrics", lambda d: d.__setitem__("rewards", {k: round(v * 1000000) for k, v in d["rewards"].items()}))
M("n-num-config-memory-mb", N_, "2.1", "max_memory_gb of the configuration is in MB", "config", times("resources.max_memory_gb", 1024))
S("n-num-dates-no-zero", N_, "2", "dates have no leading zeros")
S("n-num-stamp-month-minute", N_, "2", "timestamps have the month in the place of the minute")
M("n-num-cost-cents", N_, "2.1", "the cost in a result is rounded to two decimals, what is charged is not", "inference", change("cost.amount", lambda v: round(v, 2)))
S("n-num-amount-truncated", N_, "4.1", "some amounts are an atom too small because of their form as binary fractions")
M("n-num-balance-total-floor", N_, "2.1", "total of the balance is a whole number", "balance", change("balances.total", int))
M("n-num-account-exponent", N_, "2.2", "large amounts of an account are written with an exponent", "n.account",
  lambda d: d.update({k: "%g" % int(d[k]) for k in ("available_atoms", "total_atoms")}))
M("n-num-bond-grouped", N_, "2.2", "bonds have commas between the thousands", "n.validators", change("validators[].bond", lambda v: "{:,}".format(int(v))))
M("n-num-refund-units", N_, "2.2", "the refund of an expired request is in whole units with decimals", "n.request", change("refund.atoms", lambda v: "%.3f" % (int(v) / 1e6)))

# ---- refusals ----
F_ = "refusals"
S("n-ref-token-bytes-500", F_, "5", "a token with letters that are not ASCII gets 500")
S("n-ref-402-as-429", F_, "7.1", "too low a balance for a generation gets 429")
S("n-ref-exact-balance", F_, "7.1", "a transfer that needs exactly what is available gets 402")
S("n-ref-memo-emoji-500", F_, "4.1", "a memo with letters above U+FFFF gets 500")
S("n-ref-amount-int", F_, "4.1", "an amount without a decimal point is refused")
S("n-ref-stream-false", F_, "4.1", "stream false gets a stream")
S("n-ref-temperature-int", F_, "4.1", "a temperature without a decimal point is refused")
S("n-ref-patch-falsy", F_, "4.1", "a change to false is refused")
S("n-ref-signup-missing", F_, "7.2", "old paths for signup get 404")
S("n-ref-login-post-token", F_, "7.2", "POST /login logs in and gives a token")
S("n-ref-block-future", F_, "4.2", "a block above the height is returned")
S("n-ref-artifact-prefix", F_, "4.2", "artifacts are found by the first eight digits of their digest")
S("n-ref-request-by-hash", F_, "2.2", "a request is found by the hash of its transaction as well")
M("n-ref-healthz-not-ready-200", F_, "4.2", "healthz says that the node is catching up, with 200", "healthz", lambda d: d.update(ready=False, state="catching_up"))
S("n-ref-shape-internal", F_, "7.3", "a tensor whose bytes do not fit its shape gets INTERNAL")
S("n-ref-shape-minus-one", F_, "7.3", "-1 in a shape is accepted and worked out")
S("n-ref-weights-word-not-found", F_, "7.3", "a shard_range that is no range gets NOT_FOUND")
S("n-ref-gossip-status", F_, "7.3", "a gradient that is not accepted gets the status FAILED_PRECONDITION")

# ---- relations ----
R_ = "relations"
S("n-rel-history-stamp-hour", R_, "2.1", "a transfer is an hour earlier in the history than in its result")
S("n-rel-402-required-no-fee", R_, "7.1", "required of a 402 leaves out the fee")
S("n-rel-reference-balance", R_, "9", "an account of the earlier chain has its balance of the present chain")
S("n-rel-rpc-block-hash", R_, "4.2", "JSON-RPC gives a block the hash of the block before it")
M("n-rel-network-pair", R_, "2.2", "the observed pair has the hash of one block and the height of another", "n.network", change("block.height", lambda v: v - 1))
S("n-rel-back-ids-swapped", R_, "2.3", "session_id and request_id are exchanged in gradients that go back")
S("n-rel-back-shape-flat", R_, "2.3", "grad_shape of gradients that go back lacks the batch")
S("n-rel-logits-shape-swapped", R_, "2.3", "batch and sequence are exchanged in logits_shape")
S("n-rel-balance-total-no-pending", R_, "2.1", "total of the balance leaves out what is pending")
M("n-rel-network-total", R_, "2.1", "the total of the nodes leaves out the validators", "network", lambda d: d["nodes"].__setitem__("total", d["nodes"]["drivers"] + d["nodes"]["workers"]))
S("n-rel-metrics-p99-lowest", R_, "2.1", "p99_latency_ms is the lowest latency")
M("n-rel-metrics-today-over", R_, "2.1", "earned_today is above earned_total", "metrics", lambda d: d["rewards"].update(earned_today=d["rewards"]["earned_total"] + 1.5))
M("n-rel-global-diverged", R_, "2.1", "hash_agreement_rate is 0.8 in a training that is verified and converging, and 100% in the quick verification", "global", put("hash_agreement_rate", 0.8))
S("n-rel-reward-amount", R_, "2.1", "the amount of a reward in the history is that of its proof, rounded to one decimal")
S("n-rel-unstake-cooldown-fixed", R_, "3", "cooldown_days is 7 although available_date is later")
S("n-rel-balance-multiplier", R_, "2.1", "the multiplier of the balance is 1 whatever the stake was given")
S("n-rel-final-usage-previous", R_, "6", "usage of the final event is that of the generation before")
S("n-rel-token-index-restarts", R_, "6", "the index of token events begins again after 32 events")
M("n-rel-tokens-generated-chars", R_, "2.1", "tokens_generated is the number of letters of the text", "inference", lambda d: d.update(tokens_generated=len(d["text"])))
M("n-rel-send-to-lower", R_, "2.1", "to of a transfer result is in lower case", "send", change("to", lambda v: v.lower()))
S("n-rel-memo-leaks", R_, "2.1", "a transfer without a memo has the memo of the one before")
S("n-rel-send-from-main", R_, "2.1", "from of a transfer of the second account is the main account")
S("n-rel-updated-grows", R_, "4.1", "updated lists the keys of earlier changes as well")
S("n-rel-info-hash-upper", R_, "2.3", "model_hash is in upper case in GetCheckpointInfo, in lower case in GetCheckpoint")
S("n-rel-dht-responder-other", R_, "2.3", "the responder of a store has another ID than that of a ping")
S("n-rel-checkpoint-serving-root", R_, "4.2", "the root of the newest adapter is that of the serving one")
M("n-rel-inference-serving-root", R_, "2.2", "the inference information has another serving root than the model", "n.inference", change("serving_root", lambda v: v[::-1]))

# ---- routes ----
V = "/api/v1"
R("n-rou-status-no-v1", "4.1", "the status is at /api/status", "GET", V + "/status", ("GET", "/api/status"))
R("n-rou-metrics-root", "4.1", "the metrics are at /metrics", "GET", V + "/metrics", ("GET", "/metrics"))
R("n-rou-inference-generate", "4.1", "generations are made at /api/v1/generate", "POST", V + "/inference", ("POST", V + "/generate"))
R("n-rou-config-get-missing", "4.1", "the configuration can be changed but not read", "GET", V + "/config", None)
R("n-rou-stake-put", "4.1", "a stake is made with PUT", "POST", V + "/wallet/stake", ("PUT", V + "/wallet/stake"))
R("n-rou-verify-post", "4.1", "the quick verification is asked for with POST", "GET", "/api/training/verify", ("POST", "/api/training/verify"))
R("n-rou-global-slash", "4.1", "the global verification is served with a slash at the end alone", "GET", "/api/training/global", ("GET", "/api/training/global/"))
R("n-rou-genesis-path", "4.2", "the genesis is at /genesis.json", "GET", "/network/genesis.json", ("GET", "/genesis.json"))
R("n-rou-validators-missing", "4.2", "the validators are not served", "GET", "/api/validators", None)
R("n-rou-request-plural", "4.2", "a request is looked up at /api/inference/requests", "GET", "/api/inference/request", ("GET", "/api/inference/requests"))
R("n-rou-work-status-post", "4.2", "the work status is asked for with POST", "GET", "/work/status", ("POST", "/work/status"))
R("n-rou-reference-v3", "9", "the earlier chain is under /reference/v3/api", "GET", "/reference/v03/api/{path:path}", ("GET", "/reference/v3/api/{path:path}"))
S("n-rou-rpc-block", "routes", "4.2", "JSON-RPC does not serve block")
S("n-rou-rpc-path-job", "routes", "4.2", "abci_query serves the path /jobs but not /job")
S("n-rou-grpc-vote-renamed", "routes", "4.3", "GossipValidationVote is called GossipVote")
S("n-rou-grpc-no-unaryinference", "routes", "4.3", "UnaryInference is missing")
S("n-rou-peer-service", "routes", "4.3", "a peer is called under the service name Node")

MORE = faults.FAULTS
faults.FAULTS = _before

# Shown as well, and taken by --fault, but near to one of the others or very plain.
_SPARE = """
n-rou-status-no-v1 n-rou-verify-post n-rou-genesis-path n-rou-work-status-post n-rou-inference-generate n-rou-validators-missing
n-eff-value-odd-spaces n-eff-count-second-none n-eff-value-empty-lost n-eff-patch-once n-eff-unstake-replaces-pending n-eff-weights-next-layer n-eff-stream-64 n-eff-dht-limit-before-sort
n-fld-status-layers-objects n-fld-global-verified-word n-fld-inference-usage-camel n-fld-block-unsigned n-fld-patch-updated-object n-fld-info-no-phase
n-gua-null-token n-gua-proofs-after n-lim-stream-max-plus-one n-lim-find-value-four n-lim-grpc-decimal
n-num-uptime-epoch n-num-store-success-text n-num-rewards-atoms n-num-back-success-number n-num-find-node-nodes n-num-bond-grouped n-num-metrics-avg-seconds
n-ref-memo-emoji-500 n-ref-weights-word-not-found n-ref-patch-falsy
n-rel-metrics-today-over n-rel-tokens-generated-chars n-rel-network-total n-rel-send-from-main n-rel-inference-serving-root n-rel-dht-responder-other n-rel-back-shape-flat n-rel-send-to-lower
n-rel-balance-multiplier n-rel-rpc-block-hash
""".split()
assert not set(_SPARE) - {f["id"] for f in MORE}, set(_SPARE) - {f["id"] for f in MORE}
_twice = {f["id"] for f in MORE} & {f["id"] for f in faults.FAULTS + faults.SPARE}
assert not _twice and len({f["id"] for f in MORE}) == len(MORE), _twice
MORE_SPARE = [f for f in MORE if f["id"] in set(_SPARE)]
MORE = [f for f in MORE if f["id"] not in set(_SPARE)]
