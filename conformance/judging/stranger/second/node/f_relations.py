TEXT = """
rel-account-cached|NT-RULE-027|the account that was asked for first is given for every key
rel-account-same-for-all|NT-RULE-027|every key is answered with the account of one key
rel-artifact-any|NT-RULE-019|an unknown digest is answered with another file
rel-artifact-base64|NT-RULE-019|an artifact is sent as Base64 text
rel-artifact-json-string|NT-RULE-019|an artifact is sent as a JSON string
rel-artifact-newline|NT-RULE-019|a line break is appended to an artifact
rel-artifact-other|NT-RULE-019|a digest is answered with the content of another file
rel-artifact-reencoded|NT-RULE-019|an artifact is read as text and written anew
rel-block-hash-differs|NT-RULE-021|a block read by its height has another hash than the network identity names
rel-block-hash-of-next|NT-RULE-034|a block read by its height has the hash of the block after it
rel-block-height-requested-off|NT-RULE-025|a block says that it is one height lower
rel-block-height-string-off|NT-RULE-025|a block says that it is one height higher
rel-block-old-500|NT-PAGE-006|blocks more than 40 below the tip cannot be read by their height
rel-block-previous|NT-RULE-025|a height is answered with the block before it
rel-block-request-ids-shifted|NT-RULE-030|a block names the request ids of another block
rel-block-tip-always|NT-RULE-025|every height is answered with the newest block
rel-block-zero-based|NT-RULE-025|a height is taken as an index from 0, so that it gives the next block
rel-bwd-success-unset|PL-BWD-003|an accepted gradient is answered without success
rel-ckpt-hash-and-version-refused|GR-CKPT-012|a request with the node's own hash and own version together is refused
rel-ckpt-hash-upper-needed|GR-CKPT-012|the checkpoint is found only under its hash in capital letters
rel-ckpt-own-hash-refused|GR-CKPT-012|the checkpoint is not returned for its own hash
rel-ckpt-refused-success|GR-CKPT-005|a refused checkpoint request has success true, and no data
rel-cost-negative|NA-INF-025|the cost of an inference is negative
rel-dht-by-self|DH-012|the nodes closest to the node itself are listed instead of those closest to the target
rel-dht-farthest|DH-016|the farthest nodes are listed
rel-dht-find-node-echoes-sender|DH-017|DHTFindNode names the sender as responder
rel-dht-find-node-responder-first-contact|DH-017|DHTFindNode names the closest contact as responder
rel-dht-find-value-echoes-sender|DH-017|DHTFindValue names the sender as responder
rel-dht-first-byte|DH-016|only the first four bits of the distance count
rel-dht-found-false-with-value|DH-008|found is false beside a value
rel-dht-hamming|DH-016|the distance is the number of different bits
rel-dht-leaves-out-exact|DH-006|the node whose ID is searched for is left out
rel-dht-leaves-out-nearest|DH-016|the closest node is left out
rel-dht-listed-twice|DH-005|the closest node is listed twice
rel-dht-little-endian|DH-016|the distance is computed with the bytes in reverse order
rel-dht-order-plain|DH-016|the distance is the difference of the numbers instead of their XOR
rel-dht-ping-echoes-sender|DH-001|DHTPing names the sender as responder
rel-dht-random-k|DH-012|some nodes are listed instead of the closest ones
rel-dht-self-id-changes|DH-002|the node ID of the responder is another in each answer
rel-dht-store-echoes-sender|DH-017|DHTStore names the sender as responder
rel-dht-unknown-found-true|DH-007|an unknown key has found true
rel-dht-unknown-no-nodes|DH-020|an unsuccessful DHTFindValue lists no nodes
rel-dht-unknown-value-empty-found|DH-007|an unknown key is found with an empty value
rel-dht-unknown-value-text|DH-008|an unknown key has the value None
rel-dht-unsorted-first-k|DH-012|the first known nodes are listed instead of the closest ones
rel-dht-value-other-order|DH-020|an unsuccessful DHTFindValue lists the first known nodes instead of the closest ones
rel-fwd-nan|PL-FWD-004|the tensor of an answer is not finite
rel-fwd-request-id-cut|PL-FWD-003|request_id of the answer is cut to 8 characters
rel-fwd-request-id-empty|PL-FWD-003|request_id of the answer is empty
rel-fwd-request-id-lower|PL-FWD-003|request_id of the answer has its letters in the other case
rel-fwd-request-id-new|PL-FWD-003|request_id of the answer is a new id
rel-fwd-request-id-previous|PL-FWD-003|request_id of the answer is that of the request before
rel-fwd-request-id-session|PL-FWD-003|request_id of the answer is the session_id
rel-fwd-skips-layers|PL-FWD-004|the hidden states are not sent through the layers
rel-fwd-success-false-with-result|PL-FWD-001|a successful forward pass has success false, and no reason
rel-gossip-round-echoed|GR-GOSSIP-003|current_round is the round of the request
rel-history-amount-with-fee|NA-WALLET-012|the amount of a transfer in the history includes the fee
rel-history-fee-as-send|NA-WALLET-012|the fee is listed as another send to the recipient
rel-history-id-upper|NA-WALLET-006|the id in the history is transaction_id in capital letters
rel-history-on-receiver-only|NA-WALLET-012|a transfer is in the receiver's history only
rel-history-other-id|NA-WALLET-006|the id in the history is not transaction_id
rel-history-page-reversed|NA-QUERY-008|each page of transactions is in reverse order
rel-history-page-sorted-by-amount|NA-QUERY-008|each page of transactions is sorted by amount
rel-history-receiver-as-send|NA-QUERY-007|a received transfer is listed as a send with a positive amount
rel-history-rewards-last|NA-QUERY-008|small pages come from a list in which the rewards are last
rel-history-same-id-twice|NA-WALLET-012|a transfer is listed twice under the same id
rel-history-send-positive|NA-QUERY-007|a send has a positive amount
rel-history-to-is-sender|NA-HISTORY-023|to of a send in the history is the sender
rel-history-total-all-accounts|NA-QUERY-011|total counts the transactions of all accounts
rel-history-total-of-page|NA-QUERY-011|total is the number of entries on the page
rel-history-total-pages|NA-QUERY-011|total is the number of pages
rel-history-total-plus-one|NA-QUERY-011|total is one too high
rel-history-total-rest|NA-QUERY-011|total counts only the entries from offset on
rel-history-twice|NA-WALLET-012|a transfer is listed twice under two ids
rel-history-type-receive|NA-WALLET-012|an outgoing transfer is listed as a receive
rel-history-type-transfer|NA-WALLET-012|an outgoing transfer is listed as a transfer
rel-history-unstable|NA-QUERY-013|the history begins at another place each time
rel-metrics-clock-cached|NA-SANE-027|the timestamp of the metrics is always that of the first reading
rel-metrics-clock-minute|NA-SANE-027|the timestamp of the metrics is cut to the minute
rel-metrics-requests-back|NA-SANE-026|requests_total goes back between readings
rel-money-two-decimals|NA-WALLET-008|amounts are shown with two decimals although transfers cost finer amounts
rel-native-tip-hash-base64|NT-RULE-021|the hash in the network identity is written in Base64, that of the block in hexadecimal
rel-native-tip-hash-cut|NT-RULE-021|the hash in the network identity is cut to 40 digits
rel-native-tip-hash-of-genesis|NT-RULE-021|the hash in the network identity is that of the genesis
rel-native-tip-hash-previous|NT-RULE-021|the hash in the network identity is that of the block before
rel-native-tip-height-ahead|NT-RULE-021|the height in the network identity is one ahead of its hash
rel-native-tip-height-behind|NT-RULE-021|the height in the network identity is one behind its hash
rel-native-tip-stale-hash|NT-RULE-021|the hash in the network identity stays while the height goes on
rel-peer-port-9000|CL-PORT-001|peers are always called at port 9000
rel-peer-port-plain|CL-PORT-001|peers are called at their HTTP port
rel-prompt-tokens-capped|NA-INF-032|prompt_tokens never exceeds 16
rel-prompt-tokens-constant|NA-INF-032|prompt_tokens is always 12
rel-prompt-tokens-of-lines|NA-INF-032|prompt_tokens counts the lines of the prompt
rel-proofs-page-oldest|NA-QUERY-009|a short page of proofs is the end of the list
rel-proofs-page-skips-first|NA-QUERY-009|a short page of proofs leaves out the first
rel-proofs-shuffled|NA-QUERY-009|the list of proofs begins at another place each time
rel-proofs-stats-of-page|NA-SANE-018|total_verified counts all proofs of the page
rel-proofs-verified-first|NA-QUERY-009|a short page of proofs comes from a list in which the verified ones are first
rel-request-cached|NT-RULE-028|the inference request that was asked for first is given for every id
rel-request-completed-gone|ST-003|a completed request cannot be read
rel-request-latest-always|NT-RULE-028|every id is answered with the newest inference request
rel-request-next|NT-RULE-030|an id is answered with the inference request after it
rel-request-pending-gone|ST-001|a pending request cannot be read
rel-request-read-once|ST-003|an inference request can be read only once
rel-sse-usage-counts-events|NA-SSE-017|the usage of a stream counts the prompt in words, that of a result in tokens
rel-stake-duration-capped|NA-WALLET-027|a stake is locked for at most 7 days
rel-stake-duration-fixed|NA-WALLET-002|every stake is locked for 7 days
rel-stake-duration-hours|NA-WALLET-002|duration_days is taken as hours
rel-stake-duration-months|NA-WALLET-027|duration_days is rounded down to months
rel-stake-first-terms-default|NA-WALLET-022|the first stake of an account is in the balance with other dates than in its result
rel-stake-new-balance-amount-only|NA-WALLET-016|new_balance.staked is the amount of the stake only
rel-stake-new-balance-before|NA-WALLET-016|new_balance is the balance before the stake
rel-stake-new-balance-swapped|NA-WALLET-016|available and staked of new_balance are exchanged
rel-stake-new-balance-total|NA-WALLET-016|new_balance.available is the total
rel-stake-start-epoch|NA-WALLET-020|start_date of a stake is 1970-01-01
rel-stake-starts-tomorrow|NA-WALLET-020|a stake begins tomorrow
rel-stake-terms-kept|NA-WALLET-028|a later and longer stake does not move unlock_date of the balance
rel-stake-terms-min|NA-WALLET-028|the balance shows the earliest unlock_date of several stakes
rel-stake-terms-overwritten|NA-WALLET-027|a later and shorter stake shortens the lock of an earlier one
rel-stake-unlock-is-start|NA-WALLET-003|unlock_date of a stake is start_date
rel-stake-unlock-minus-day|NA-WALLET-003|unlock_date of a stake is one day early
rel-stake-unlock-plus-day|NA-WALLET-003|unlock_date of a stake is one day late
rel-stake-unlock-weekday|NA-WALLET-003|unlock_date of a stake is two days late
rel-time-local-as-utc|GEN-019|local time five hours behind is given as UTC
rel-time-two-hours-ahead|GEN-019|all times are two hours ahead
rel-unstake-amount-minus-fee|NA-WALLET-004|amount of an unstake result is less a fee
rel-unstake-amount-rest|NA-WALLET-004|amount of an unstake result is what remains staked
rel-unstake-cooldown-hours|ST-005|cooldown_days is in hours
rel-unstake-cooldown-seconds|ST-005|cooldown_days is in seconds
rel-unstake-cooldown-zero|ST-005|cooldown_days is 0 although available_date is days away
rel-unstake-date-after-unlock|ST-005|available_date is counted from the end of the lock
rel-unstake-date-minus-one|ST-005|available_date is one day early
rel-unstake-date-plus-one|ST-005|available_date is one day late
rel-unstake-date-today|ST-005|available_date is today
rel-unstake-restarts-terms|NA-WALLET-030|an unstake moves start_date of the rest into the future
rel-unstake-shortens|NA-WALLET-028|an unstake of a part unlocks the rest today
"""
PAGES = {
    "limit-ignored": ("NT-PAGE-001", "the limit of the {0} is ignored"),
    "limit-plus-one": ("NT-PAGE-001", "a page of {0} has one entry more than its limit"),
    "limit-minimum-five": (
        "NT-PAGE-001",
        "a page of {0} has at least five entries, whatever the limit",
    ),
    "before-ignored": ("{1}", "before is ignored in the list of {0}"),
    "before-inclusive-later": ("{1}", "before in the list of {0} lets one later entry through"),
    "before-skips-one": ("NT-PAGE-005", "between two pages of {0} one entry is left out"),
    "before-as-offset": ("NT-PAGE-004", "before in the list of {0} is taken as an offset"),
    "before-as-after": ("{1}", "before in the list of {0} is taken as after"),
    "before-as-index": ("NT-PAGE-004", "with before the list of {0} begins with the oldest"),
    "before-halves": ("NT-PAGE-004", "with before every second entry of the {0} is left out"),
    "newest-missing": (
        "NT-PAGE-004",
        "the first page of {0} lacks the newest, which later pages can show",
    ),
    "oldest-first": ("NT-PAGE-004", "without before the list of {0} begins with the oldest"),
    "short-page": (
        "NT-PAGE-004",
        "a page of {0} is one entry shorter than its limit although there are more",
    ),
    "entry-twice": ("NT-PAGE-005", "the newest of the {0} is listed twice"),
    "gap": ("NT-PAGE-004", "the third of each page of {0} is left out"),
    "empty": ("NT-RULE-024", "the list of {0} is always empty"),
}
LINES = [l.split("|") for l in TEXT.strip().splitlines()]
for _k, _n, _b in (("blocks", "blocks", "NT-PAGE-002"), ("updates", "updates", "NT-PAGE-003")):
    for _s, (_r, _w) in PAGES.items():
        LINES.append(["rel-%s-%s" % (_k, _s), _r.format(_n, _b), _w.format(_n, _b)])
