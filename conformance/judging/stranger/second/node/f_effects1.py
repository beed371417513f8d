"""Faults of effects that the code itself asks for: id | requirement | what is wrong."""

TEXT = """
eff-402-credits-receiver|NA-ERR-021|a transfer that is refused with 402 still credits one unit to the receiver
eff-402-debits-then-fails|NA-ERR-023|a transfer that is refused with 402 takes one unit from the sender
eff-402-takes-all|NA-ERR-023|a transfer that is refused with 402 empties what is available
eff-402-takes-fee|NA-ERR-023|a transfer that is refused with 402 takes its fee
eff-balance-cached|NA-WALLET-010|the balance is cached for 20 seconds, so a transfer does not show in it
eff-bwd-graph-by-request-reversed|PL-BWD-003|the graph is looked up with session and request exchanged, so no backward pass is accepted
eff-bwd-graph-dropped|PL-BWD-003|the graph of a forward pass is thrown away at once, so no backward pass is accepted
eff-bwd-not-passed-on|PL-BWD-002|a gradient is accepted and not passed on to the previous node
eff-bwd-shape-transposed|PL-BWD-003|the check of the shape of a gradient refuses every right shape
eff-charge-all-accounts|NA-WALLET-023|each generation also charges the first account, whoever asked for it
eff-charge-atoms-as-milli|NA-WALLET-023|a generation takes ten times the cost in its result
eff-charge-double|NA-WALLET-023|a generation takes twice the cost in its result
eff-charge-max-tokens|NA-WALLET-023|a generation is charged for max_tokens and a little more, not for what it generated
eff-charge-per-minimum|NA-WALLET-023|a generation takes a minimum of 0.01 that its result does not show
eff-charge-stream-double|NA-WALLET-023|a stream takes twice its cost
eff-ckpt-hash-echoed|GR-CKPT-002|for an unknown hash the checkpoint is returned with that hash written on it
eff-ckpt-hash-ignored|GR-CKPT-002|model_hash of a checkpoint request is ignored
eff-ckpt-hash-prefix|GR-CKPT-002|only the first 8 digits of model_hash are compared
eff-ckpt-version-echoed|GR-CKPT-004|for a min_version that is too high the checkpoint is returned with that version written on it
eff-ckpt-version-ignored|GR-CKPT-001|min_version of a checkpoint request is ignored
eff-config-get-cached|NA-PATCH-104|the configuration is read from a cache of 30 seconds
eff-config-second-reading-old|NA-PATCH-113|every second reading of the configuration shows the values before the change
eff-count-long-only|NA-COUNT-001|requests with fewer than 20 tokens are not counted
eff-count-requests-as-tokens|NA-COUNT-003|each token also counts as a request
eff-count-requests-none|NA-COUNT-001|requests_total does not count inference requests
eff-count-requests-twice|NA-COUNT-003|each request is counted twice
eff-count-stop-not-counted|NA-COUNT-001|a request that a stop sequence ends is not counted
eff-count-stream-requests-none|NA-COUNT-004|streams are not counted as requests
eff-count-stream-requests-twice|NA-COUNT-006|a stream is counted twice
eff-count-stream-tokens-minus-one|NA-COUNT-005|one token of each stream is not counted
eff-count-stream-tokens-none|NA-COUNT-005|the tokens of streams are not counted
eff-count-stream-tokens-twice|NA-COUNT-006|the tokens of a stream are counted twice
eff-count-tokens-max|NA-COUNT-003|max_tokens is counted instead of the generated tokens
eff-count-tokens-minus-one|NA-COUNT-002|one token too few is counted for each request
eff-count-tokens-none|NA-COUNT-002|generated tokens are not counted
eff-count-tokens-twice|NA-COUNT-003|generated tokens are counted twice
eff-count-tokens-with-prompt|NA-COUNT-002|the tokens of the prompt are counted as generated
eff-default-stop-newline|NA-INF-018|without stop a line break or a full stop ends the generation
eff-dht-any-value|DH-007|an unknown key is answered with some stored value
eff-dht-find-node-empty|DH-012|DHTFindNode lists no nodes
eff-dht-first-only|DH-009|only the first value that ever comes is stored
eff-dht-found-every-second|DH-023|a value is found at every second search only
eff-dht-found-once|DH-023|a value is gone after it has been found once
eff-dht-keeps-three|DH-015|only the last three values are kept
eff-dht-key-ascii|DH-022|bytes of a key above 127 are dropped
eff-dht-key-case|DH-022|keys that differ in upper and lower case share a value
eff-dht-key-nul|DH-022|a key ends at its first zero byte
eff-dht-key-prefix|DH-022|only the first 8 bytes of a key count
eff-dht-key-stripped|DH-022|white space at the ends of a key is dropped
eff-dht-key-suffix|DH-022|only the last 4 bytes of a key count
eff-dht-key-sum|DH-022|keys are told apart by the sum of their bytes only
eff-dht-key-text|DH-022|keys are read as text, so that bytes which are not UTF-8 are one and the same
eff-dht-latest-value|DH-022|any known key is answered with the value that was stored last
eff-dht-moved-twice|DH-024|a node whose address has changed is listed with both addresses
eff-dht-one-slot|DH-015|each store removes all earlier values
eff-dht-store-appends|DH-009|a second value for a key is appended to the first
eff-dht-store-existing-refused-but-replaced|DH-019|a store for an existing key reports failure and replaces the value
eff-dht-store-expires-1s|DH-023|a value is gone 0.3 seconds after it was stored
eff-dht-store-late|DH-009|a value is found only 3 seconds after the store succeeded
eff-dht-store-nothing|DH-009|a store reports success and stores nothing
eff-dht-store-refused-but-stored|DH-019|a store reports failure and stores the value
eff-dht-value-ascii|DH-021|letters that are not ASCII become question marks in a value
eff-dht-value-bmp|DH-021|characters outside the basic multilingual plane are replaced in a value
eff-dht-value-first-line|DH-021|only the first line of a value is stored
eff-dht-value-host-port-only|DH-021|the part of a value after its first colon is lost
eff-dht-value-json|DH-021|a value comes back with JSON escapes
eff-dht-value-latin|DH-021|a value is read as Latin-1 and comes back garbled
eff-dht-value-lower|DH-021|a value comes back in lower case
eff-dht-value-nfc|DH-021|a value is normalised (NFKC)
eff-dht-value-nul|DH-021|a value ends at its first zero character
eff-dht-value-trimmed|DH-021|white space at the ends of a value is lost
eff-history-of-other-account|NA-WALLET-006|the history is that of another account
eff-metrics-cached-minute|NA-COUNT-001|the figures of inference in the metrics are a minute old
eff-no-refund-of-reserve|NA-WALLET-023|money that was reserved for a generation is not given back
"""
