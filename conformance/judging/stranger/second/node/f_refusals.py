TEXT = """
ref-402-as-400|NA-ERR-008|too little money yields 400 instead of 402
ref-402-as-403|NA-ERR-008|too little money yields 403 instead of 402
ref-array-body-500|NA-INF-020|a body that is an array makes the node fail
ref-block-future-tip|NT-RULE-025|a height that does not exist yet is answered with the newest block
ref-bwd-no-reason|PL-BWD-001|a refused backward pass gives no reason
ref-bwd-unknown-graph-crash|GR-CODE-001|a backward pass without a forward pass ends with UNKNOWN
ref-bwd-unknown-graph-precondition|GR-CODE-001|a backward pass without a forward pass ends with FAILED_PRECONDITION
ref-ckpt-no-reason|GR-CKPT-003|a refused checkpoint request gives no reason
ref-ckpt-out-of-range|GR-CODE-001|a checkpoint that the node lacks ends with OUT_OF_RANGE
ref-ckpt-precondition|GR-CODE-001|a checkpoint that the node lacks ends with FAILED_PRECONDITION
ref-ckpt-unknown|GR-CODE-001|a checkpoint that the node lacks ends with UNKNOWN
ref-dht-bad-key-unknown|GR-CODE-001|a store with a key that is too long ends with UNKNOWN
ref-dht-bad-sender-aborts|GR-CODE-002|a sender whose ID has a wrong length ends with ABORTED
ref-dht-key-length-unauthenticated|GR-CODE-011|a search for an empty key ends with UNAUTHENTICATED
ref-dht-key-length-unknown|GR-CODE-011|a search for an empty key ends with UNKNOWN
ref-dht-target-length-out-of-range|GR-CODE-011|a search for an ID of another length ends with OUT_OF_RANGE
ref-dht-target-length-precondition|GR-CODE-011|a search for an ID of another length ends with FAILED_PRECONDITION
ref-dht-target-length-unknown|GR-CODE-011|a search for an ID of another length ends with UNKNOWN
ref-dht-unknown-not-found|DH-007|an unknown key ends with NOT_FOUND instead of found false
ref-fwd-bad-cancelled|GR-CODE-001|a forward pass with a wrong shape ends with CANCELLED
ref-fwd-bad-computed|GR-CODE-002|a forward pass whose shape and bytes differ is answered with a result
ref-fwd-bad-shape-unknown|GR-CODE-001|a forward pass with a wrong shape ends with UNKNOWN
ref-fwd-bad-success-false-no-reason|PL-FWD-001|a forward pass with a wrong shape is refused without a reason
ref-gossip-already-exists|GR-CODE-001|a gradient that is not accepted ends with ALREADY_EXISTS
ref-gossip-no-reason|GR-GOSSIP-001|a gradient is refused without a reason
ref-gossip-unauthenticated|GR-CODE-001|a gradient that is not accepted ends with UNAUTHENTICATED
ref-gossip-unknown|GR-CODE-001|a gradient that is not accepted ends with UNKNOWN
ref-grpc-garbage-closes|GR-CODE-003|a message that cannot be read closes the connection
ref-grpc-garbage-ignored|GR-CODE-002|a message that cannot be read is taken as an empty one
ref-grpc-garbage-internal|GR-CODE-002|a message that cannot be read ends with UNKNOWN
ref-inference-poor-accepted|NA-ERR-008|an account without money can generate, and its balance falls below zero
ref-info-nonempty|GR-CKPT-007|GetCheckpointInfo refuses its empty request
ref-limit-one-refused|NA-QUERY-001|a limit of 1 is refused
ref-limit-string-refused|NA-QUERY-001|limit and offset of the history are refused
ref-max-tokens-float|NA-INF-019|a max_tokens with a fraction is accepted
ref-max-tokens-string|NA-INF-019|max_tokens as a string is accepted
ref-nan-accepted|NA-INF-021|a body with NaN is taken as JSON
ref-not-json-500|NA-INF-020|a body that is not JSON makes the node fail
ref-not-json-accepted|NA-INF-021|a body that is not JSON is taken as the prompt
ref-not-json-empty|NA-INF-021|a body that is not JSON is answered with a generation
ref-param-500|NA-INF-020|a parameter of the wrong type or range makes the node fail
ref-param-temperature-type|NA-INF-031|a temperature that is no number is replaced by the default
ref-param-topp-type|NA-INF-031|a top_p that is no number is replaced by the default
ref-param-topk-type|NA-INF-031|a top_k that is no number is replaced by the default
ref-param-maxtokens-type|NA-INF-031|a max_tokens that is no number is replaced by the default
ref-param-stop-type|NA-INF-031|a stop that is no array is replaced by the default
ref-param-temperature-bool|NA-INF-019|a temperature that is true is accepted
ref-param-topp-bool|NA-INF-019|a top_p that is true is accepted
ref-param-topk-bool|NA-INF-019|a top_k that is true is accepted
ref-param-maxtokens-bool|NA-INF-019|a max_tokens that is true is accepted
ref-param-stop-bool|NA-INF-031|a stop that is true is accepted
ref-patch-500|NA-INF-020|a change with a wrong value makes the node fail
ref-patch-enabled-truthy|NA-PATCH-105|training.enabled takes any value by its truth
ref-patch-rate-string|NA-PATCH-105|a learning_rate of the wrong type sets 0.001
ref-patch-success-true-anyway|NA-PATCH-109|a refused change is reported as made
ref-patch-unknown-type-coerced|NA-PATCH-105|whole numbers of the configuration take anything that can be made one, and 1 otherwise
ref-patch-wrong-type-ignored|NA-PATCH-109|a change of the wrong type is answered with success and ignored
ref-prompt-astral-500|NA-INF-030|a prompt with characters outside the basic multilingual plane makes the node fail
ref-prompt-braces-500|NA-INF-038|a prompt with braces, a backslash or a percent sign makes the node fail
ref-prompt-list-accepted|NA-INF-031|a prompt that is an array is accepted
ref-prompt-missing-500|NA-INF-020|a body without a prompt makes the node fail
ref-prompt-missing-accepted|NA-INF-002|a body without a prompt is accepted
ref-prompt-newline-refused|NA-INF-030|a prompt with a line break is refused
ref-prompt-nonascii-500|NA-INF-038|a prompt that is not ASCII makes the node fail
ref-prompt-nonascii-refused|NA-INF-030|a prompt that is not ASCII is refused
ref-prompt-number-accepted|NA-INF-019|a prompt that is a number is accepted
ref-prompt-quote-500|NA-INF-038|a prompt with a quote makes the node fail
ref-proofs-limit-refused|NA-QUERY-004|the limit of the proofs is refused
ref-query-junk-500|NA-INF-020|a limit that is no number makes the node fail
ref-rpc-height-needed|NT-RULE-018|block and validators are refused without a height
ref-rpc-no-height|NT-RULE-018|block and validators are refused with a height
ref-rpc-open-any|NT-RULE-005|/rpc answers every method
ref-rpc-open-unsafe-prefix|NT-RULE-005|/rpc answers methods whose name begins with unsafe_
ref-send-fraction-only|NA-ROUTE-006|an amount that is a whole number is refused
ref-send-integer-only|NA-ROUTE-006|an amount with a fraction is refused
ref-send-memo-refused|NA-ROUTE-006|a transfer with a memo is refused
ref-send-negative|NA-QUERY-007|a transfer of a negative amount is accepted, takes from the receiver and is listed with a positive amount
ref-stake-duration-presets|NA-ROUTE-008|a stake for other than 90, 180 or 365 days makes the node fail
ref-stake-poor-400|NA-ERR-022|a stake of more than is available ends with 400
ref-stake-poor-clamped|NA-ERR-021|a stake of more than is available stakes all that is available
ref-stake-poor-success-false|NA-ERR-021|a stake of more than is available is answered with 200 and success false
ref-stop-empty-refused|NA-INF-012|an empty array of stop sequences is refused
ref-stop-members-any|NA-INF-019|a stop array with members that are no texts is accepted
ref-stop-newline-500|NA-INF-012|a stop sequence with a line break makes the node fail
ref-stop-number-accepted|NA-INF-031|a stop that is a number or an object is accepted
ref-stop-string-accepted|NA-INF-019|a stop that is a string is accepted
ref-stream-list-ignored|NA-INF-039|a stream that is an array is accepted
ref-stream-object-truthy|NA-INF-039|a stream that is an object or an array is taken by its truth
ref-stream-string-truthy|NA-INF-019|a stream that is a string is taken by its truth
ref-temperature-fraction-refused|NA-INF-006|a temperature with a fraction is refused
ref-temperature-int-refused|NA-INF-006|a temperature that is a whole number is refused
ref-top-p-int-refused|NA-INF-008|a top_p of 1 is refused
ref-unstake-excess-success|NA-WALLET-024|an unstake of more than is staked is answered as a success
ref-weights-absent-empty|GR-WEIGHT-001|weights of a layer that is not here are answered with OK and no data
ref-weights-absent-others|GR-WEIGHT-002|for a layer that is not here the weights of the others are given
ref-weights-absent-partial|GR-WEIGHT-002|of a range that is here in part, that part is given
ref-weights-absent-zeros|GR-WEIGHT-002|weights of a layer that is not here are zeros
ref-weights-junk-empty|GR-WEIGHT-001|a shard_range that cannot be read is answered with OK and no data
ref-weights-junk-unimplemented|GR-CODE-001|a shard_range that cannot be read ends with UNIMPLEMENTED
ref-weights-junk-unknown|GR-CODE-001|a shard_range that cannot be read ends with UNKNOWN
ref-work-bad-signature-500|NT-RULE-032|a worker message with a wrong signature makes the gateway fail
ref-work-incomplete-500|NT-RULE-032|a worker message without its parts makes the gateway fail
ref-work-not-json-500|NT-RULE-032|a worker message that is not JSON makes the gateway fail
ref-work-poll-500|NT-RULE-032|an incomplete message to /work/poll ends with 502
ref-work-result-500|NT-RULE-032|a message to /work/result that is not JSON makes the gateway fail
"""
LINES = [l.split("|") for l in TEXT.strip().splitlines()]
for _r, _op in (("fwd", "forward"), ("bwd", "backward")):
    for _n, _c in (
        ("internal", "INTERNAL"),
        ("unavailable", "UNAVAILABLE"),
        ("exhausted", "RESOURCE_EXHAUSTED"),
        ("invalid", "INVALID_ARGUMENT"),
        ("deadline", "DEADLINE_EXCEEDED"),
        ("unimplemented", "UNIMPLEMENTED"),
    ):
        LINES.append(
            [
                "ref-%s-absent-%s" % (_r, _n),
                "GR-CODE-013" if _n in ("unavailable", "exhausted", "deadline") else "GR-CODE-004",
                "a %s pass to a layer that is not here ends with %s" % (_op, _c),
            ]
        )
LINES.append(
    [
        "ref-fwd-absent-computed",
        "GR-CODE-004",
        "a forward pass to a layer that is not here is computed with the layers that are",
    ]
)
LINES.append(
    [
        "ref-bwd-absent-computed",
        "GR-CODE-012",
        "a backward pass to a layer that is not here succeeds",
    ]
)
for _n, _c in (
    ("internal", "INTERNAL"),
    ("unavailable", "UNAVAILABLE"),
    ("invalid", "INVALID_ARGUMENT"),
    ("exhausted", "RESOURCE_EXHAUSTED"),
):
    LINES.append(
        [
            "ref-weights-absent-" + _n,
            "GR-WEIGHT-002",
            "GetWeights for a layer that is not here ends with " + _c,
        ]
    )
for _o in (
    "GetCheckpoint",
    "GetCheckpointInfo",
    "DHTPing",
    "GetWeights",
    "DHTFindNode",
    "GossipGradient",
):
    LINES.append(
        ["ref-%s-unauthenticated" % _o.lower(), "GR-CODE-001", "%s ends with UNAUTHENTICATED" % _o]
    )
    LINES.append(
        [
            "ref-%s-internal" % _o.lower(),
            "GR-CODE-001",
            "%s always ends with UNKNOWN because its handler fails" % _o,
        ]
    )
for _n, _r in (
    ("unsafe_flush_mempool", ""),
    ("dump_consensus_state", ""),
    ("net_info", ""),
    ("genesis", ""),
    ("broadcast_tx_commit", ""),
    ("tx_search", ""),
    ("consensus_params", ""),
    ("unconfirmed_txs", ""),
    ("abci_info", ""),
    ("dial_peers", ""),
    ("dial_seeds", ""),
    ("unsafe_start_cpu_profiler", ""),
    ("private_key", ""),
    ("priv_validator", ""),
    ("health", ""),
    ("num_unconfirmed_txs", ""),
    ("consensus_state", ""),
    ("broadcast_evidence", ""),
    ("block_results", ""),
    ("subscribe", ""),
):
    LINES.append(
        [
            "ref-rpc-open-" + _n.replace("_", "-"),
            "NT-RULE-005",
            "/rpc gives access to the method %s" % _n,
        ]
    )
