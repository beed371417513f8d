"""The single faults that this node can be started with. Importing this starts nothing."""

import faults_more

_KINDS = {
    "fld": "fields",
    "gua": "guards",
    "rou": "routes",
    "num": "numbers",
    "ref": "refusals",
    "rel": "relations",
    "eff": "effects",
    "lim": "limits",
}

# id | section | requirement | what
_TEXT = """
fld-status-uptime-float|2.1|NA-STATUS-006|uptime_seconds has a fraction
fld-status-loss-gone-disabled|2.1|NA-STATUS-024|training.loss of the status is null while training is disabled
fld-status-ram-negative|2.1|NA-SANE-004|ram_used is written as a signed 32-bit value and is below zero
fld-status-layers-twice|1|GEN-007|the status lists one layer index twice
fld-metrics-time-local|2|GEN-019|the timestamp of the metrics is local time, an hour ahead, with a Z
fld-metrics-time-naive|2|GEN-008|the timestamp of the metrics has no zone
fld-metrics-pending-gone|2.1|NA-METRICS-041|rewards.pending is missing
fld-metrics-bytes-int32|2.1|NA-SANE-004|bytes_sent has overflowed a signed 32-bit counter
fld-nan-avg-latency|4|GEN-010|avg_latency_ms is NaN
fld-result-usage-gone-short|2.1|NA-INF-RESULT-009|a result of a single token has no usage
fld-result-queue-null|2.1|NA-INF-RESULT-026|timing.queue_ms is null
fld-result-finish-null-length|2.1|NA-INF-RESULT-008|finish_reason is null where max_tokens has ended the text
fld-balance-pending-gone-zero|2.1|NA-BALANCE-009|balances.pending is left out while it is zero
fld-balance-unlock-time|2|GEN-009|staking.unlock_date has a time of day
fld-balance-start-german|2|GEN-009|staking.start_date is written DD.MM.YYYY
fld-duplicate-key-balance|4|GEN-011|the balance has the key address twice
fld-send-memo-null-empty|2.1|NA-SEND-012|the memo of a transfer with an empty memo is null
fld-send-time-naive|2|GEN-008|the timestamp of a transfer has no zone
fld-send-time-slow|2|GEN-019|the timestamp of a transfer is two hours ago
fld-send-fee-gone-self|2.1|NA-SEND-009|the result of a transfer to oneself has no fee
fld-history-amount-text-large|2.1|NA-HISTORY-014|amounts of 9 units or more are texts in the history
fld-history-role-gone-old|2.1|NA-HISTORY-021|on pages with an offset of 20 or more rewards have no role
fld-history-to-gone-self|2.1|NA-HISTORY-023|a send to oneself has no to in the history
fld-history-time-space|2|GEN-008|times of the history have a space and no zone
fld-peers-no-port|2.1|NA-SANE-008|the address of a peer at the default port has no port
fld-peers-latency-null-one|2.1|NA-PEERS-014|latency_ms of the slowest peer is null
fld-layers-status-empty-last|2.1|NA-SANE-014|the status of the last layer is empty
fld-network-parameters-int|2.1|NA-NETWORK-018|architecture.parameters is a number
fld-config-threads-text-after|2.1|NA-CONFIG-024|cpu_threads is a text after it has been changed
fld-verify-agreement-fraction|4.1|TR-RULE-006|hash_agreement is 1.0 instead of a percentage
fld-proofs-reward-null-open|2.1|NA-PROOFS-016|the reward of a proof that is not verified is null
fld-proofs-time-future-first|2|GEN-019|the newest proof is dated a year ahead
fld-final-token-brackets|6|NA-SSE-006|the token of the final event is DONE, without brackets
fld-final-reason-gone-length|6|NA-SSE-FINAL-003|the final event of a stream that max_tokens ended has no finish_reason
fld-final-usage-null-long|6|NA-SSE-FINAL-006|the usage of a stream of more than 20 tokens is null
fld-atoms-float-rounded|2.2|NT-RULE-029|atoms went through a float and end with .0
fld-account-locked-number-zero|2.2|NT-RULE-029|the locked atoms of an account are a number
fld-forward-loss-unset|2.3|PL-FWD-008|a pass with labels through the last layer has no loss
fld-logits-shape-gone|2.3|PL-FWD-007|logits come without a shape
fld-responder-port-zero|2.3|DH-026|the responder has port 0
fld-nodes-short-ids|2.3|DH-003|the last node that a search lists has an ID of 8 bytes
fld-nodes-empty-ip|2.3|DH-018|the fifth node that a search lists has no address
fld-checkpoint-no-data-with-hash|4.3|GR-CKPT-005|a checkpoint asked for by its hash has no data
fld-checkpoint-size-int32|2.3|GR-CKPT-010|total_size is below zero
fld-info-params-zero|2.3|GR-CKPT-011|params is 0 although the model has a hash
gua-open-config|5|NA-AUTH-004|GET /config answers without a bearer header
gua-open-patch|5|NA-AUTH-007|PATCH /config takes any token
gua-open-unstake|5|NA-AUTH-019|POST /wallet/unstake works without a bearer header
gua-open-history-pages|5|NA-AUTH-017|GET /wallet/transactions with a limit answers without a bearer header
gua-any-token-stake|5|NA-AUTH-008|an unknown token may stake
gua-expired-reads|5|NA-AUTH-002|an expired token may still read
gua-expired-second-time|5|NA-AUTH-002|an expired token is refused only the first time
gua-expired-inference|5|NA-AUTH-018|an expired token may still generate
gua-expired-403|5|NA-AUTH-002|an expired token yields 403
gua-expired-code|7.1|NA-AUTH-003|the code for an expired token is TOKEN_EXPIRED
gua-401-details-scheme|7.1|NA-ERR-005|a 401 has details
gua-token-prefix|5|NA-AUTH-021|a token that begins with a valid one is taken
gua-token-cut|5|NA-AUTH-021|the beginning of a valid token is taken
gua-remembers-client|5|NA-AUTH-017|after one valid token, reads without a header are served
gua-empty-bearer|5|NA-AUTH-017|a header with the word Bearer alone is taken
gua-random-401|5|NA-AUTH-022|every 23rd request is refused although its token is valid
gua-401-when-many-in-flight|5|NA-AUTH-022|with more than two requests at a time valid tokens are refused
gua-poor-refused|5|NA-AUTH-005|the token of an account without money is refused with 401
gua-stream-open|5|NA-AUTH-020|a stream is served without a valid token
gua-invalid-json-before-token|5|NA-AUTH-023|a body that is not JSON gets 400 before the token is looked at
gua-patch-applied-before-token|5|NA-AUTH-024|a change of the configuration is made before its token is refused
gua-verify-needs-token|4.1|TR-ROUTE-002|GET /api/training/verify needs a token
gua-native-token|5|NA-AUTH-013|GET /api/network needs a token
gua-reference-post|4.2|NT-RULE-020|a view of the earlier chain takes POST
gua-reference-delete|9|NT-RULE-031|DELETE removes a view of the earlier chain
gua-rpc-net-info|4.2|NT-RULE-005|/rpc serves net_info and other methods of the engine
gua-rpc-broadcast-commit|4.2|NT-RULE-005|/rpc serves broadcast_tx_commit and broadcast_tx_async
gua-grpc-tls|5|NA-AUTH-016|gRPC is served with TLS
rou-text-plain-metrics|4|GEN-012|the metrics have Content-Type text/plain
rou-bom-config|4|GEN-010|the body of GET /config begins with a byte order mark
rou-layers-unversioned|9|GEN-013|/layers is served as /api/layers and not below /api/v1
rou-unknown-path-200|7.1|NA-ERR-017|a path that does not exist is answered with 200
rou-proofs-limit-ignored|4.1|NA-QUERY-005|GET /proofs ignores limit
rou-default-offset-one|4.1|NA-QUERY-012|without offset the history begins with its second entry
rou-stream-default-true|4.1|NA-INF-017|without stream the answer is a stream
rou-sse-no-space|6|NA-SSE-001|events begin with data and a space but no colon
rou-sse-single-newline|6|NA-SSE-001|no blank line follows a token event
rou-sse-python-repr|6|NA-SSE-001|the final event is a Python dictionary
rou-sse-data-split|6|NA-SSE-001|an event of more than 30 characters is split over two events
rou-sse-index-restarts|6|NA-SSE-003|the index begins anew after 32 events
rou-sse-index-repeats|6|NA-SSE-003|from the tenth event on each index comes twice
rou-sse-trailer|6|NA-SSE-007|data: [DONE] follows the final event
rou-sse-final-unterminated|6|NA-SSE-015|no blank line follows the final event
rou-sse-no-final-on-stop|6|NA-SSE-005|a stream that a stop sequence ends has no final event
rou-sse-ndjson-type|6|NA-SSE-008|a stream has Content-Type application/x-ndjson
rou-model-html|4.2|NT-RULE-024|/api/model answers with the page of the website
rou-blocks-before-ignored|4.2|NT-PAGE-002|before of /api/blocks is ignored
rou-updates-before-ignored|4.2|NT-PAGE-003|before of /api/training is ignored
rou-blocks-limit-100-fails|4.2|NT-ROUTE-006|a page of more than 40 blocks fails
rou-dataset-nan|4.2|NT-RULE-017|dataset.json holds NaN
rou-work-result-gone|4.2|NT-RULE-033|/work/result does not exist
rou-reference-blocks-gone|4.2|NT-ROUTE-019|views of the earlier chain other than model are gone
rou-legacy-get-200|7.2|NT-RULE-009|GET of an old registration endpoint answers 200
rou-legacy-post-creates|5|NA-AUTH-013|POST to an old registration endpoint makes an account
rou-signup-404|7.2|NT-RULE-010|/signup does not redirect
rou-rpc-abci-gone|4.2|NT-RULE-022|/rpc does not know abci_query
rou-op-stream-gone|4.3|GR-OP-001|StreamInference does not exist
rou-op-proof-renamed|4.3|GR-OP-010|RequestProofValidation is called ProofValidation
rou-unlisted-ok|4.3|GR-NAME-002|an operation that is not listed is answered with OK
num-forward-is-final-eight|2.3|GR-PIPELINE-FORWARD-RESPONSE-07|is_final and logits have changed their numbers
num-forward-loss-float|2.3|GR-PIPELINE-FORWARD-RESPONSE-10|loss is a float of 32 bits
num-forward-shape-swapped|2.3|GR-PIPELINE-FORWARD-RESPONSE-09|logits_shape is at the number of hidden_shape
num-forward-request-target-nine|2.3|GR-PIPELINE-FORWARD-REQUEST-10|target_shard is read from 9 and source_shard from 10
num-gossip-round-two|2.3|GR-GOSSIP-GRADIENT-RESPONSE-03|reason and current_round have changed their numbers
num-gossip-round-text|2.3|GR-GOSSIP-GRADIENT-RESPONSE-03|current_round is a string
num-weights-request-two|2.3|GR-WEIGHT-003|shard_range is read from field 2
num-checkpoint-data-seven|2.3|GR-GET-CHECKPOINT-RESPONSE-06|checkpoint_data and total_size have changed their numbers
num-checkpoint-size-fixed|2.3|GR-GET-CHECKPOINT-RESPONSE-07|total_size is a sfixed64
num-checkpoint-version-zigzag|2.3|GR-GET-CHECKPOINT-RESPONSE-03|version is a sint32
num-checkpoint-request-swapped|2.3|GR-GET-CHECKPOINT-REQUEST-01|model_hash and min_version are read from each other's number
num-info-loss-float|2.3|GR-GET-CHECKPOINT-INFO-RESPONSE-05|loss is a float of 32 bits
num-info-params-five|2.3|GR-GET-CHECKPOINT-INFO-RESPONSE-04|params and loss have changed their numbers
num-find-nodes-three|2.3|GR-DHT-FIND-NODE-RESPONSE-02|nodes of a search is field 3
num-find-target-three|2.3|GR-DHT-FIND-NODE-REQUEST-02|target_id is read from field 3
num-value-found-five|2.3|GR-DHT-FIND-VALUE-RESPONSE-04|found is field 5
num-value-nodes-two|2.3|GR-DHT-FIND-VALUE-RESPONSE-03|value and nodes have changed their numbers
num-store-value-four|2.3|DH-025|the value of a store is read from field 4
num-node-info-port-four|2.3|GR-DHT-NODE-INFO-03|port of a node is field 4
num-node-info-hex-id|2.3|GR-DHT-NODE-INFO-01|the ID of a node is written in hex digits
ref-402-atoms|7.1|NA-ERR-020|required and available of a 402 are in millionths
ref-402-details-text|7.1|NA-ERR-010|required and available of a 402 are texts
ref-402-swapped|7.1|NA-ERR-019|required and available of a 402 are swapped
ref-402-shortfall|7.1|NA-ERR-020|required of a 402 is half of what is missing
ref-402-takes-fee|7.1|NA-ERR-023|a refused transfer costs its fee
ref-402-lists-transfer|2.1|NA-WALLET-012|a refused transfer is in the history too
ref-send-fee-not-needed|7.1|NA-ERR-024|a transfer of all that is available is accepted although it costs a fee
ref-self-send-unchecked|7.1|NA-ERR-021|a transfer to oneself of more than is available is accepted
ref-stake-all-that-is-there|7.1|NA-ERR-022|a stake of more than is available stakes what there is
ref-stake-402-stakes|7.1|NA-ERR-021|a stake refused with 402 adds to what is staked
ref-unstake-too-much-accepted|3|NA-WALLET-024|an unstake of more than is staked is accepted
ref-unstake-too-much-empties|3|NA-WALLET-024|an unstake of more than is staked is refused and empties the stake
ref-send-whole-units-int-only|4.1|NA-WALLET-038|an amount without a decimal point is refused, one with is accepted
ref-negative-amounts-send|3|NA-WALLET-037|a transfer of a negative amount takes money from its receiver
ref-poor-generates|7.1|NA-ERR-008|an account without money may generate
ref-fastapi-detail-405|7.1|NA-ERR-012|a wrong method is answered with the framework's body
ref-numbers-from-text|4.1|NA-INF-019|numbers of the inference request may be texts
ref-max-tokens-truncates|4.1|NA-INF-019|max_tokens 5.7 is taken for 5
ref-object-as-absent|4.1|NA-INF-031|an object where a number belongs counts as absent
ref-stream-truthy|4.1|NA-INF-039|a stream parameter that is an object or array is taken for true
ref-prompt-list-ok|4.1|NA-INF-031|an array is accepted as prompt
ref-stop-object-keys|4.1|NA-INF-031|an object is accepted as stop
ref-top-k-unread|4.1|NA-INF-031|top_k is never looked at, whatever it is
ref-stop-empty-refused|4.1|NA-INF-012|an empty array of stop sequences is refused
ref-body-form-accepted|4.1|NA-INF-021|a body that is not JSON is taken for the prompt
ref-patch-bool-from-text|4.1|NA-PATCH-105|training.enabled may be the text true
ref-patch-number-from-text|4.1|NA-PATCH-105|numbers of the configuration may be texts
ref-patch-list-first|4.1|NA-PATCH-109|an array as the value of a key stands for its first entry
ref-patch-null-ignored|4.1|NA-PATCH-105|null as the value of a key is accepted and changes nothing
ref-patch-keeps-good-keys|4.1|NA-PATCH-115|a refused change keeps the keys before the bad one
ref-patch-success-false-applies|4.1|NA-PATCH-110|a change answered with success false has changed keys
ref-patch-resets-on-error|4.1|NA-PATCH-106|a refused value sets its key back to the first value
ref-work-crash-poll|4.2|NT-RULE-032|/work/poll fails on a message that is not JSON
ref-work-object-crash|4.2|NT-RULE-032|the worker routes fail on a message without a signature
ref-rpc-block-needs-height|4.2|NT-RULE-018|method block is refused without a height
ref-rpc-validators-height|4.2|NT-RULE-018|method validators is refused with a height
ref-block-empty-404|4.2|NT-RULE-036|a block without transactions cannot be read by its height
ref-absent-unavailable|7.3|GR-CODE-013|a layer that is not here ends with UNAVAILABLE
ref-absent-below-only|7.3|GR-CODE-004|layers below the first held one are computed all the same
ref-absent-backward-succeeds|7.3|GR-CODE-012|a backward pass to a layer that is not here succeeds
ref-last-held-absent|7.3|GR-CODE-014|the last layer that the status lists ends with NOT_FOUND
ref-forward-no-reason|4.3|PL-FWD-001|a pass of another hidden size has success false and no error_message
ref-backward-no-reason|7.3|PL-BWD-001|a backward pass that fails gives no error_message
ref-checkpoint-no-reason|7.3|GR-CKPT-003|a checkpoint that is not here has no error_message
ref-min-version-one-off|4.3|GR-CKPT-001|a checkpoint is returned for the version after it
ref-own-version-refused|4.3|GR-CKPT-012|the checkpoint is not returned for its own version
ref-gradient-no-reason-stale|7.3|GR-GOSSIP-001|a gradient of an old round is refused without a reason
ref-dht-length-unknown|7.3|GR-CODE-011|a search for an ID of another length ends with UNKNOWN
ref-ping-without-sender|7.3|GR-CODE-001|a ping without a sender ends with FAILED_PRECONDITION
ref-store-false-but-stores|4.3|DH-019|a store that reports success false has stored the value
ref-weights-absent-empty|4.3|GR-WEIGHT-001|layers that are not here are answered with OK and no data
ref-grpc-garbage-internal|7.3|GR-CODE-002|bytes that are no message end with UNKNOWN
rel-config-grpc-plus-one|1|GEN-001|grpc_port of the configuration is the HTTP port plus 1
rel-uptime-fast|2.1|NA-SANE-016|uptime_seconds runs four times as fast as the clock
rel-uptime-frozen|2.1|NA-SANE-023|uptime_seconds stands still
rel-uptime-wraps|2.1|NA-SANE-001|uptime_seconds begins anew every ten seconds
rel-metrics-time-minute|2.1|NA-SANE-027|the timestamp of the metrics is cut to the minute
rel-requests-go-back|2.1|NA-SANE-026|every third reading of the metrics shows fewer requests
rel-accepted-above-submitted|2.1|NA-SANE-015|more gradients are accepted than were submitted
rel-status-layer-not-listed|2.1|NA-SANE-025|the status has a layer that the layer list lacks
rel-layers-one-based|2.1|NA-SANE-006|indices of the layer list begin with 1
rel-layers-total-is-last-index|2.1|NA-SANE-021|total_layers is the last index, not the count
rel-peers-since-future|2|GEN-019|validators have been connected since tomorrow
rel-completion-counts-end|2.1|NA-INF-023|completion_tokens counts the end of a text that a stop sequence ended
rel-timing-long-slower|2.1|NA-INF-037|inference_ms of a generation of more than 50 tokens is above total_ms
rel-timing-padded|2.1|NA-INF-034|total_ms is longer than the request took
rel-id-of-prompt|2.1|NA-INF-026|the id of a result is a digest of its prompt
rel-count-capped-64|4.1|NA-INF-032|prompt_tokens never exceeds 64
rel-stream-counts-words|6|NA-SSE-017|a stream counts 2 prompt tokens whatever the prompt
rel-stream-usage-above-max|6|NA-SSE-009|usage of a stream counts the end as a completion token
rel-cost-negative-stop|2.1|NA-INF-025|the cost of a text that a stop sequence ended is negative
rel-unlock-from-today|2.1|NA-WALLET-009|unlock_date of the balance is counted from today
rel-unlock-30-day-months|2.1|NA-WALLET-009|duration_days is cut to whole months of 30 days for the unlock_date of the balance
rel-stake-unlock-off-by-one|2.1|NA-WALLET-003|unlock_date of a stake result is a day early
rel-stake-starts-tomorrow|2.1|NA-WALLET-020|a stake begins tomorrow
rel-new-balance-staked-only-new|2.1|NA-WALLET-016|new_balance shows only the new stake as staked
rel-unstake-days-fixed|2.1|ST-005|cooldown_days is a day less than until available_date
rel-money-float-round|2.1|NA-WALLET-001|amounts above one are rounded to two decimals
rel-send-memo-cut|2.1|NA-WALLET-032|a memo is repeated trimmed and cut to 64 letters
rel-send-fee-atoms|2.1|NA-WALLET-036|the fee of a transfer result is in millionths
rel-send-id-not-in-history|2.1|NA-WALLET-006|transaction_id is written differently in the history
rel-history-amount-with-fee|2.1|NA-WALLET-012|the amount of a send in the history includes the fee
rel-history-total-capped|4.1|NA-QUERY-011|total of the history never exceeds 50
rel-history-limit-default|4.1|NA-QUERY-010|limit of the history is always shown as 20
rel-history-offset-pages|4.1|NA-QUERY-008|offset is read as a number of pages
rel-history-order-by-page|4.1|NA-QUERY-014|pages of ten or fewer entries are in another order than long ones
rel-history-order-alternates|4.1|NA-QUERY-013|every second reading of the history has some entries in another order
rel-history-overlap|4.1|NA-QUERY-014|later pages repeat the last entry of the page before
rel-history-skip-one|4.1|NA-QUERY-014|an entry is lost between pages
rel-proofs-order-shuffled|4.1|NA-QUERY-015|every second reading of the proofs begins in another order
rel-proofs-page-from-end|4.1|NA-QUERY-009|short pages of proofs are the end of the list
rel-proofs-reward-pending|2.1|NA-SANE-024|total_reward includes what is pending
rel-global-min-above-avg|2.1|TR-RULE-005|global_min_loss is above the average
rel-verify-other-trend|4.1|TR-RULE-014|the quick verification has another loss_trend than the global one
rel-verify-works-when-diverged|4.1|TR-RULE-001|is_working is true although hashes differ
rel-updated-only-first|4.1|NA-PATCH-101|updated lists the first key only
rel-updated-all-of-section|4.1|NA-PATCH-102|updated lists all keys of a section
rel-tip-hash-stale|2.2|NT-RULE-037|the hash of the network identity stays as it was at the start
rel-list-hash-parent|4.2|NT-RULE-035|the list of blocks shows the parent's hash as hash
rel-block-index-from-zero|4.2|NT-RULE-025|a height is read as an index from zero
rel-block-old-is-first|4.2|NT-RULE-034|blocks below height 10 are all answered with the first
rel-blocks-without-empty|4.2|NT-PAGE-006|blocks without transactions are left out of the list
rel-blocks-frozen-list|4.2|NT-PAGE-007|the list of blocks does not get those made since the start
rel-blocks-before-skips|4.2|NT-PAGE-004|a page with before leaves out its first block
rel-updates-small-pages-oldest|4.2|NT-PAGE-004|pages of fewer than five updates are the oldest ones
rel-account-first-asked|4.2|NT-RULE-027|an account is the one that was asked for before
rel-request-echoes-id|4.2|NT-RULE-030|the request of an id is another under that id
rel-artifact-newline|4.2|NT-RULE-019|an artifact ends with a line break that is not its own
rel-artifact-text-decoded|4.2|NT-RULE-019|bytes of an artifact that are not UTF-8 are replaced
rel-request-id-first|2.3|PL-FWD-003|request_id of a forward answer is that of the first pass
rel-final-unset|2.3|PL-FWD-005|is_final is false on the last layer, with logits
rel-logits-last-position|2.3|PL-FWD-007|logits of the last position only, with the shape of all
rel-info-version-ahead|4.3|GR-CKPT-004|GetCheckpointInfo reports the next version
rel-checkpoint-version-echoed|4.3|GR-CKPT-012|version of a checkpoint is the min_version of the request where that is higher
rel-weights-always-all|2.3|GR-WEIGHT-003|each range of weights is answered with all layers
rel-round-counts-refusals|2.3|GR-GOSSIP-004|current_round grows with each gradient
rel-responder-id-per-call|4.3|DH-002|the responder has another ID in each answer
rel-dht-little-endian|4.3|DH-016|distance is read with the least byte first
rel-dht-hides-exact|4.3|DH-006|a search for a listed node does not list it
rel-dht-address-twice|4.3|DH-024|a node whose address has changed is listed with both
rel-dht-value-other-nodes|4.3|DH-020|an unsuccessful DHTFindValue leaves out the two closest nodes
rel-dht-lists-empty-address|2.3|DH-027|a sender without an address is listed without one
rel-keys-collide-prefix|4.3|DH-022|keys with the same first 8 bytes share a value
rel-keys-collide-text|4.3|DH-022|keys are decoded as text, so different ones collide
rel-keys-zero-ends|4.3|DH-022|a key ends at its first zero byte, so that keys collide behind it
rel-value-stripped|4.3|DH-021|blanks around a stored value are lost
rel-value-normalised|4.3|DH-021|a stored value is normalised to NFC
eff-self-send-adds|2.1|NA-WALLET-025|a transfer to oneself adds its amount
eff-self-send-loses|2.1|NA-WALLET-007|a transfer to oneself loses its amount
eff-send-race|2.1|NA-WALLET-026|of transfers at the same time only one is taken from the balance
eff-send-late|2.1|NA-WALLET-010|a transfer is taken from the sender three seconds later
eff-send-fee-not-taken|2.1|NA-WALLET-010|the fee of a transfer is not taken
eff-send-large-twice|2.1|NA-WALLET-010|a transfer of more than 20 units to another account is taken twice
eff-send-fee-twice-with-memo|2.1|NA-WALLET-010|a transfer with a memo pays its fee twice
eff-receiver-small-not-credited|2.1|NA-WALLET-011|a transfer of less than one unit does not reach its receiver
eff-receiver-pays-fee|2.1|NA-WALLET-011|the receiver gets the amount less the fee
eff-receiver-pending|2.1|NA-WALLET-011|a received amount is pending until tomorrow
eff-receiver-debited-large|3|NA-WALLET-037|a transfer of ten units or more takes its amount from the receiver
eff-history-skips-no-memo|2.1|NA-WALLET-035|a transfer without a memo is not in the history
eff-history-skips-tiny|2.1|NA-WALLET-006|a transfer of less than 0.01 is not in the history
eff-history-fee-entry-as-send|2.1|NA-WALLET-034|the fee is a second send to the receiver in the history
eff-history-twice-unicode|2.1|NA-WALLET-012|a transfer with a memo outside ASCII is listed twice
eff-stake-shortens|2.1|NA-WALLET-028|a shorter stake shortens the lock of all that is staked
eff-stake-keeps-old-lock|4.1|NA-WALLET-027|a longer stake keeps the lock of what was staked before
eff-stake-capped-year|4.1|NA-WALLET-027|a stake is locked for at most 365 days
eff-stake-replaces|2.1|NA-WALLET-014|a stake replaces what was staked before
eff-stake-not-taken-after-first|2.1|NA-WALLET-015|only a first stake is taken from what is available
eff-stake-twice-when-staked|2.1|NA-WALLET-031|a stake on top of another is taken twice
eff-stake-days-not-kept|2.1|NA-WALLET-017|the balance shows each stake with 30 days
eff-unstake-all|3|NA-WALLET-029|an unstake of a part takes all that is staked
eff-unstake-available-now|3|NA-WALLET-019|unstaked money is available at once
eff-unstake-resets-start|2.1|NA-WALLET-030|an unstake moves the begin of the rest behind its cooldown
eff-balance-one-behind|2.1|NA-WALLET-016|each reading of a balance shows what the reading before should have
eff-first-account-cached|2.1|NA-WALLET-013|the first account that reads its balance or stakes is everybody's there
eff-charged-to-first|2.1|NA-WALLET-033|each generation is charged to the first account
eff-charge-rounded-up|2.1|NA-WALLET-023|a charge is rounded up to the next hundredth
eff-charge-long-double|2.1|NA-WALLET-023|a generation of more than 100 tokens is charged twice
eff-stream-counted-twice|2.1|NA-COUNT-006|a stream is counted twice in requests_total
eff-stream-tokens-not-counted|2.1|NA-COUNT-005|tokens of a stream are not counted in the metrics
eff-stream-tokens-plus-done|2.1|NA-COUNT-006|the metrics count the final event of a stream as a token
eff-long-counted-twice|2.1|NA-COUNT-003|a request for more than 50 tokens is counted twice
eff-tokens-in-tens|2.1|NA-COUNT-002|the metrics count tokens in whole tens
eff-early-counts-asked|2.1|NA-COUNT-007|the metrics count max_tokens where a stop sequence has ended the text
eff-metrics-cached|2.1|NA-COUNT-001|figures of the metrics are up to 30 seconds old
eff-only-first-stop|4.1|NA-INF-036|only the first of several stop sequences ends the text
eff-stop-one-token-late|4.1|NA-INF-013|the text goes on for one word after a stop sequence
eff-stop-within-token-only|4.1|NA-INF-013|a stop sequence over two words is not noticed
eff-stream-ignores-stop|4.1|NA-SSE-016|a stream goes on after a stop sequence
eff-status-enabled-stale|2.1|NA-PATCH-116|training.enabled of the status does not follow a change
eff-config-old-once|4.1|NA-PATCH-113|the first reading after a change shows the old values
eff-config-flaps|4.1|NA-PATCH-113|every third reading shows the values of the start
eff-config-reverts|4.1|NA-PATCH-117|a change is gone after four seconds
eff-patch-section-replaced|4.1|NA-PATCH-103|the keys of a section that were not sent get the values of the start
eff-patch-second-section-lost|4.1|NA-PATCH-104|of a change in two sections only the first is made
eff-patch-rate-rounded|4.1|NA-PATCH-104|learning_rate is rounded to four decimals
eff-patch-threads-first-only|4.1|NA-PATCH-108|cpu_threads follows only the first change
eff-value-found-once|4.3|DH-023|a value is found only once
eff-value-third-time-lost|4.3|DH-023|a value is not found the third time
eff-store-long-not-kept|4.3|DH-009|a value of more than 1000 letters is reported as stored and is not
eff-store-second-not-kept|4.3|DH-015|only the first value is kept
eff-backward-small-only|4.3|PL-BWD-003|a gradient of more than one position finds no pass
eff-backward-not-passed-on|4.3|PL-BWD-002|the gradient does not go to the sender_url
lim-temperature-below-two|4.1|NA-INF-006|temperature 2 is refused
lim-temperature-zero-refused|4.1|NA-INF-006|temperature 0 is refused
lim-temperature-any|8|NA-INF-007|a temperature above 2 is accepted
lim-temperature-negative|8|NA-INF-007|a temperature from -2 is accepted
lim-default-tokens-sixteen|4.1|NA-INF-035|without max_tokens 16 tokens are generated
lim-default-tokens-256|4.1|NA-INF-004|without max_tokens 256 tokens are generated
lim-max-tokens-64|4.1|NA-INF-005|max_tokens above 64 is refused
lim-max-tokens-at-least-four|4.1|NA-INF-003|at least four tokens are generated
lim-top-k-100|4.1|NA-INF-009|top_k above 50 is refused
lim-stop-four|4.1|NA-INF-012|more than two stop sequences are refused
lim-long-text-empty|2.1|NA-INF-033|the text of more than 64 tokens is empty
lim-stream-cut-at-50|6|NA-SSE-005|a stream ends after 50 events
lim-prompt-bmp|4.1|NA-INF-038|letters outside the basic multilingual plane make the node fail
lim-prompt-latin1|4.1|NA-INF-038|letters outside Latin-1 make the node fail
lim-prompt-quotes|4.1|NA-INF-038|quotes together with a line break make the node fail
lim-one-at-a-time|4.1|NA-ROUTE-004|a second generation at the same time fails
lim-history-min-ten|4.1|NA-QUERY-002|a page of the history has at least ten entries
lim-history-first-fifty|4.1|NA-QUERY-011|entries of the history after the fiftieth are on no page
lim-proofs-off-by-one|4.1|NA-QUERY-005|a page of proofs has limit plus one entries
lim-blocks-limit-plus-one|4.2|NT-PAGE-001|a page of blocks has limit plus one entries
lim-blocks-limit-ignored-with-before|4.2|NT-PAGE-001|with before the limit of /api/blocks is ignored
lim-updates-limit-plus-one|4.2|NT-PAGE-001|a page of updates has limit plus one entries
lim-requests-latest-three|3|ST-003|only the latest three finished requests can be looked up
lim-message-four-mib|8|LIM-007|the server takes messages of up to 4 MiB
lim-message-64-mib|8|LIM-007|the server takes messages of up to 64 MiB
lim-stream-one-message|4.3|GR-OP-022|StreamInference ends after its first message
lim-value-255|4.3|DH-021|a stored value is cut to 255 letters
lim-store-four-values|4.3|DH-015|only the latest four values are kept
lim-dht-lists-any-port|4.3|DH-013|senders are listed with ports above 65535
lim-pings-strike|8|LIM-004|two pings within five minutes without data end the connection
lim-six-attempts|8|CL-CALL-002|a gradient that goes back is tried six times
lim-no-deadline|8|CL-CALL-001|a gradient that goes back has no deadline
"""

FAULTS = []
for _line in (_TEXT + faults_more.TEXT).split("\n"):
    if not _line:
        continue
    _id, _section, _sentence, _what = _line.split("|", 3)
    FAULTS.append({"id": _id, "kind": _KINDS[_id[:3]], "section": _section, "sentence": _sentence, "what": _what})
