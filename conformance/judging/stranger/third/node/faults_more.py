"""More single faults that this node can be started with. Importing this starts nothing."""

import faults_more_fields

# id | section | requirement | what
TEXT = (
    faults_more_fields.TEXT
    + """
gua2-open-balance|5|-|GET /wallet/balance answers without a bearer header
gua2-open-stake|5|-|POST /wallet/stake works without a bearer header
gua2-any-token-peers|5|-|an unknown token may read the peers
gua2-basic-reads|5|-|reads are served with any Basic credentials
gua2-token-any-case|5|-|the case of letters in a token does not matter
gua2-unknown-403|5|-|an unknown token yields 403
gua2-unknown-code|7.1|-|the code for an unknown token is INVALID_TOKEN
gua2-expired-details|7.1|-|the 401 for an expired token has details
gua2-expired-patch|5|-|an expired token may change the configuration
gua2-expired-send|5|-|an expired token may transfer
gua2-401-to-login|5|-|a read with an invalid token is redirected to /login
gua2-401-plain-text|7.1|-|the 401 of GET /config is plain text
gua2-layers-cached|5|-|within 30 seconds of a valid read the layers are served from a cache to everybody
gua2-accounts-mixed-up|5|-|balances read at the same time with two tokens are those of one account
gua2-health-needs-token|4.1|-|GET /health needs a token
gua2-network-needs-token|4.1|-|GET /network needs a token
gua2-global-needs-token|4.1|-|GET /api/training/global needs a token
gua2-account-needs-token|5|-|GET /api/account needs a token
gua2-rpc-needs-token|5|-|/rpc needs a token
gua2-work-poll-unsigned|5|-|/work/poll takes messages that are not signed
gua2-work-result-any-signature|5|-|/work/result takes messages with any signature
gua2-tx-signature-unchecked|5|-|a transaction with a wrong signature is accepted
gua2-tx-other-chain|2.2|-|a transaction that is signed for another chain is accepted
gua2-tx-expired|2.2|-|a request whose expiry is past is accepted
gua2-rpc-dial-peers|4.2|-|/rpc serves dial_peers and dial_seeds
rou2-patch-is-put|4.1|-|the configuration is changed with PUT
rou2-unstake-delete|4.1|-|unstaking is DELETE /wallet/stake
rou2-health-root|4.1|-|/health is served at the root
rou2-history-renamed|4.1|-|/wallet/transactions is called /wallet/history
rou2-global-versioned|9|-|the global verification is served below /api/v1 only
rou2-healthz-renamed|4.2|-|/healthz is called /readyz
rou2-checkpoint-no-json|4.2|-|/api/model/checkpoint.json is called /api/model/checkpoint
rou2-genesis-root|4.2|-|/network/genesis.json is served as /genesis.json
rou2-work-status-post|4.2|-|/work/status takes POST only
rou2-artifact-short|4.2|-|artifacts are served below /artifacts without sha256
rou2-reference-short|9|-|views of the earlier chain are served without v03
rou2-stake-slash|4.1|-|POST /wallet/stake redirects to the path with a slash
rou2-network-json-in-json|4|-|the body of GET /network is a JSON text that holds JSON
rou2-patch-204|4.1|-|a change of the configuration is answered with 204
rou2-patch-dotted-only|4.1|-|a change takes dotted keys and refuses nested objects
rou2-proofs-envelope|4.1|-|the proofs are inside of data
rou2-peers-bare|4.1|-|the peers are a bare array
rou2-layers-by-index|4.1|-|layers is an object with the index as key
rou2-history-limit-ignored|4.1|-|limit of the history is ignored
rou2-history-offset-ignored|4.1|-|offset of the history is ignored
rou2-stream-ignored|4.1|-|stream true is answered with an inference result
rou2-sse-index-from-one|6|-|the index begins with 1
rou2-sse-index-swapped|6|-|the third and the fourth event have changed places
rou2-sse-final-early|6|-|the final event comes before the last token
rou2-sse-two-finals|6|-|the final event comes twice
rou2-sse-data-twice|6|-|events begin with data: data:
rou2-sse-indented|6|-|the final event is spread over lines without data:
rou2-blocks-limit-ignored|4.2|-|limit of /api/blocks is ignored
rou2-updates-limit-ignored|4.2|-|limit of /api/training is ignored
rou2-updates-before-height|4.2|-|before of /api/training is compared with the height
rou2-block-by-query|4.2|-|a block is read at /api/block?height=
rou2-account-key-param|4.2|-|/api/account reads key and not public_key
rou2-request-id-param|4.2|-|/api/inference/request reads request_id and not id
rou2-rpc-jobs-gone|4.2|-|/jobs is not a query path
rou2-rpc-job-gone|4.2|-|/job is not a query path
rou2-legacy-404|9|-|old registration endpoints other than /api/register answer 404
rou2-legacy-post-405|7.2|-|POST to an old registration endpoint answers 405
rou2-login-home|7.2|-|/login redirects to /
rou2-op-weights-gone|4.3|-|GetWeights does not exist
rou2-op-transaction-gone|4.3|-|GossipTransaction does not exist
rou2-op-capacity-gone|4.3|-|UpdatePeerCapacity does not exist
rou2-op-backward-gone|4.3|-|PipelineBackward does not exist
rou2-op-gossip-proof-gone|4.3|-|GossipProof does not exist
rou2-op-swarm-renamed|4.3|-|GetSwarmStatus is called SwarmStatus
rou2-op-dht-camel|4.3|-|DHTFindNode is called DhtFindNode
rou2-op-infer-renamed|4.3|-|UnaryInference is called Inference
rou2-op-forward-twice|4.3|-|PipelineForward is a stream that answers twice
rou2-op-stream-at-end|4.3|-|StreamInference answers only when the client has ended its messages
ref2-prompt-missing-ok|4.1|-|a body without a prompt is accepted
ref2-prompt-number-ok|4.1|-|a number is accepted as prompt
ref2-max-tokens-bool|4.1|-|max_tokens true is taken for 1
ref2-top-p-unread|4.1|-|top_p is never looked at, whatever it is
ref2-stop-numbers|4.1|-|numbers are accepted as stop sequences, and objects too
ref2-stream-number|4.1|-|stream may be 1 or 0
ref2-stream-text|4.1|-|stream may be a text, and false as a text is true
ref2-temperature-integer|4.1|-|a temperature without a decimal point is refused
ref2-402-is-400|7.1|-|too low a balance is answered with 400
ref2-402-code-funds|7.1|-|the code of a 402 is INSUFFICIENT_FUNDS
ref2-402-details-gone|7.1|-|a 402 has no details
ref2-402-required-gone|7.1|-|details of a 402 have no required
ref2-402-available-total|7.1|-|available of a refused transfer includes what is staked
ref2-402-in-stream|7.1|-|a stream that the balance does not suffice for gets 200 and an event with the error
ref2-stake-409|7.1|-|a stake of more than is available is answered with 409
ref2-429-code-other|7.1|-|the code of a 429 is TOO_MANY_REQUESTS
ref2-429-is-503|7.1|-|too many requests are answered with 503
ref2-send-amount-text-ok|4.1|-|the amount of a transfer may be a text
ref2-send-to-number|4.1|-|to of a transfer may be a number
ref2-send-memo-number|4.1|-|memo of a transfer may be a number
ref2-negative-stake|3|-|a stake of a negative amount is accepted
ref2-negative-unstake|3|-|an unstake of a negative amount is accepted
ref2-stake-days-cut|4.1|-|duration_days 30.7 is taken for 30
ref2-stake-days-text|4.1|-|duration_days may be a text
ref2-patch-bool-number|2.1|-|true is accepted as a number of the configuration
ref2-patch-fraction-cut|2.1|-|integers of the configuration are cut from fractions
ref2-patch-enabled-number|2.1|-|training.enabled may be 0 or 1
ref2-block-above-tip|4.2|-|a height above the newest one is answered with the newest block
ref2-request-unknown-pending|3|-|a request that is not known is pending
ref2-artifact-unknown-page|4.2|-|a digest that is not known is answered with 200 and a page
ref2-absent-internal|7.3|-|a layer that is not here ends with INTERNAL
ref2-absent-above-last|7.3|-|layers above the last held one are computed all the same
ref2-absent-backward-code|7.3|-|a backward pass to a layer that is not here ends with FAILED_PRECONDITION
ref2-absent-exhausted|7.3|-|a layer that is not here ends with RESOURCE_EXHAUSTED
ref2-tensor-internal|7.3|-|a tensor of another size than its shape ends with INTERNAL
ref2-grad-unknown|7.3|-|a gradient of another size than its shape ends with UNKNOWN
ref2-labels-internal|7.3|-|labels of another number than positions end with INTERNAL
ref2-weights-internal|7.3|-|a shard_range that is no number ends with INTERNAL
ref2-weights-garbage-all|7.3|-|a shard_range that is no number stands for all layers
ref2-weights-absent-invalid|7.3|-|weights of absent layers end with INVALID_ARGUMENT
ref2-weights-absent-unavailable|7.3|-|weights of absent layers end with UNAVAILABLE
ref2-checkpoint-hash-ignored|4.3|-|model_hash of a request for a checkpoint is ignored
ref2-checkpoint-success-text|7.3|-|a checkpoint that is sent has success false and the error_message ok
ref2-gradient-status|7.3|-|a gradient that is refused ends with FAILED_PRECONDITION
ref2-gradient-no-reason-hash|7.3|-|a gradient of another model hash is refused without a reason
ref2-gradient-hash-unchecked|2.3|-|model_hash of a gradient is not checked
ref2-garbage-as-empty|7.3|-|bytes that are no message are taken for an empty one
ref2-garbage-internal|7.3|-|bytes that are no message end with INTERNAL
ref2-not-found-again|7.3|-|a peer that answers NOT_FOUND is called again (only a peer sees it)
rel2-status-gpu-sum|2.1|-|gpu_memory_used is the sum over all GPUs, and above gpu_memory_total
rel2-metrics-minute-per-second|2.1|-|requests_per_minute counts per second
rel2-metrics-p99-lowest|2.1|-|p99_latency_ms is the lowest latency
rel2-metrics-today-total|2.1|-|earned_today is above earned_total
rel2-send-from-to-swapped|2.1|-|from and to of a transfer result have changed places
rel2-send-amount-net|2.1|-|the amount of a transfer result is less its fee
rel2-send-memo-escaped|2.1|-|the memo of a transfer result is escaped for HTML
rel2-transaction-id-second|2.1|-|transfers within one second have the same transaction_id
rel2-history-send-positive|2.1|-|the amount of a send is positive in the history
rel2-history-total-page|4.1|-|total of the history is the number of entries on the page
rel2-history-offset-zero|4.1|-|offset of the history is shown as 0
rel2-history-proof-other|2.1|-|proof_id of a reward is not the id of a proof
rel2-balance-staked-zero|2.1|-|balances.staked is 0 although staking has an amount
rel2-balance-total-minus|2.1|-|balances.total is what is available less what is staked
rel2-balance-multiplier-percent|2.1|-|staking.multiplier of the balance is in percent
rel2-balance-float32|2.1|-|amounts above 1000 went through a float of 32 bits
rel2-stake-days-months|4.1|-|duration_days is rounded up to whole months of 30 days
rel2-new-balance-available-before|2.1|-|new_balance.available is that before the stake
rel2-unstake-amount-rest|2.1|-|amount of an unstake result is what remains staked
rel2-unstake-date-today|2.1|-|available_date is today although there is a cooldown
rel2-peers-total-self|4.1|-|total of the peers counts the node itself
rel2-layers-mine-all|4.1|-|my_layer_count counts the layers of the whole model
rel2-network-total-no-drivers|2.1|-|nodes.total leaves out the drivers
rel2-network-used-mib|2.1|-|used_memory_gb is in MiB, and above total_memory_gb
rel2-network-layers-held|2.1|-|architecture.layers is the number of layers that the node holds
rel2-config-ports-default|1|-|the configuration shows the ports 8000 and 9000 wherever the node listens
rel2-updated-key-only|4.1|-|updated has keys without their section
rel2-global-agreement-hundred|2.1|-|hash_agreement_rate is 100.0 where all hashes agree
rel2-global-success-inverted|2.1|-|sync_success_rate is the share that failed
rel2-global-inner-total|2.1|-|inner_step_count is above inner_steps_total
rel2-global-progress-other|2.1|-|progress is the part that remains
rel2-global-node-id-other|2.1|-|local.node_id has not the prefix of the status
rel2-global-converging-diverged|2.1|-|is_converging is true while hashes differ
rel2-verify-agreement-hundredfold|4.1|-|hash_agreement is 10000%
rel2-verify-false-at-full|4.1|-|is_working is false although the network converges and all hashes agree
rel2-proofs-stats-page|2.1|-|total_submitted counts the proofs of the page
rel2-usage-total-completion|2.1|-|total_tokens leaves out the prompt
rel2-tokens-with-prompt|2.1|-|tokens_generated includes the prompt
rel2-id-of-second|2.1|-|results of one second have the same id
rel2-timing-total-queue|2.1|-|total_ms is below inference_ms
rel2-cost-thousandfold|2.1|-|cost.amount is that of a thousand such requests
rel2-tip-pair-mixed|2.2|-|the hash of the network identity is that of the block before its height
rel2-network-round-from-zero|2.2|-|training_round is one below the newest update
rel2-model-roots-swapped|2.2|-|training and serving root of the model have changed places
rel2-checkpoint-root-served|2.2|-|the root of checkpoint.json is that of the serving adapter
rel2-checkpoint-round-behind|4.2|-|checkpoint.json is the adapter before the latest
rel2-checkpoint-chain-old|2.2|-|chain_id of checkpoint.json is that of another chain
rel2-inference-genesis-old|2.2|-|genesis_id of the inference information is that of another chain
rel2-inference-root-training|2.2|-|the serving root of the inference information is the training root
rel2-queue-counts-all|2.2|-|queue_length counts requests that are finished
rel2-blocks-oldest|4.2|-|/api/blocks lists the oldest blocks
rel2-updates-oldest|4.2|-|/api/training lists the oldest updates
rel2-liquid-minus-locked|2.2|-|the total of an account is what is available less what is locked
rel2-supply-units|2.2|-|the supply is in whole units
rel2-validators-overlap|4.2|-|later pages of validators repeat the last row of the page before
rel2-block-request-is-hash|2.2|-|request_id of a transaction in a block is its hash
rel2-tx-request-is-hash|2.2|-|request_id of a broadcast transaction is its hash
rel2-request-refunded-too|3|-|a request with a response is expired and has a refund
rel2-dataset-formatted|4.2|-|dataset.json is formatted, so that it is not what the genesis is bound to
rel2-artifact-base64|4.2|-|binary artifacts are served in base64
rel2-rpc-block-latest|4.2|-|method block answers with the newest block whatever the height
rel2-reference-current|9|-|the view of the earlier chain's blocks shows the present chain
rel2-request-id-cut|2.3|-|request_id of a forward answer is cut to 16 letters
rel2-request-id-session|2.3|-|request_id of a forward answer has the session before it
rel2-forward-one-layer|4.3|-|a pass goes through one layer only and is not final
rel2-forward-first-of-batch|2.3|-|only the first sequence of a batch is answered
rel2-logits-shape-hidden|2.3|-|logits_shape ends with the hidden size
rel2-info-hash-serving|4.3|-|GetCheckpointInfo has the hash of another model than GetCheckpoint
rel2-checkpoint-zlib|2.3|-|checkpoint_data is compressed with zlib
rel2-checkpoint-raw|2.3|-|checkpoint_data is not compressed
rel2-checkpoint-hash-upper|2.3|-|model_hash of a checkpoint is in capital letters, that of its information is not
rel2-weights-end-excluded|2.3|-|the end of a shard_range is left out
rel2-round-echoed|2.3|-|current_round is the round of the request
rel2-round-unset-accepted|2.3|-|current_round is 0 for a gradient that is accepted
rel2-responder-port-default|2.3|-|the responder's port is 8000 wherever the node listens
rel2-responder-is-sender|2.3|-|the responder of a ping is its sender
rel2-dht-nearest-twice|4.3|-|a search lists the closest node twice
rel2-dht-not-sorted|4.3|-|a search lists the nodes that were known first
rel2-dht-first-bytes|4.3|-|distance is that of the first two bytes
rel2-value-empty-found|4.3|-|a key that nobody stored is found with an empty value
rel2-value-lower|4.3|-|a stored value is changed to small letters
rel2-value-json|4.3|-|a stored value comes back in quotes
rel2-back-shape-stale|4.3|-|grad_shape of the pass that goes back is that of the pass that came (only a peer sees it)
rel2-back-session-gone|4.3|-|the pass that goes back has no session_id (only a peer sees it)
rel2-back-request-new|4.3|-|the pass that goes back has a request_id of its own (only a peer sees it)
rel2-network-version-old|9|-|the network identity shows version 0.3.0
rel2-rpc-status-behind|4.2|-|the height of method status is one below that of its hash
eff2-metrics-two-workers|2.1|-|every second generation is counted in another process
eff2-rpc-calls-frozen|2.1|-|gRPC calls are not counted in rpc_calls
eff2-tokens-with-prompt|2.1|-|tokens_generated of the metrics includes prompts
eff2-usage-of-latest|2.1|-|usage of generations at the same time is that of the latest one
eff2-stop-regex|4.1|-|a stop sequence is taken for a regular expression
eff2-stop-any-case|4.1|-|the case of letters in a stop sequence does not matter
eff2-stop-in-prompt|4.1|-|a stop sequence in the prompt ends the text at once
eff2-stream-last-lost|6|-|the last token of a stream is never sent
eff2-stream-second-lost|6|-|the eighth token event of a stream is lost
eff2-history-skips-strangers|2.1|-|a transfer to an unknown address is not in the history
eff2-history-of-first|4.1|-|everybody reads the history of the first account
eff2-send-deduplicated|4.1|-|a transfer that is the same as an earlier one is answered and not made
eff2-stake-whole-units|2.1|-|the fraction of a stake is lost
eff2-stake-pending-too|2.1|-|staked money is pending, too
eff2-unstake-keeps-staked|3|-|unstaked money stays in what is staked
eff2-patch-false-ignored|4.1|-|false is listed in updated and not written
eff2-patch-memory-whole|4.1|-|max_memory_gb is cut to a whole number
eff2-patch-batch-power|4.1|-|batch_size is cut to a power of two
eff2-patch-steps-lost|4.1|-|diloco_steps is listed in updated and not written
eff2-patch-race|4.1|-|of two changes at the same time one is lost
eff2-expired-forgotten|3|-|requests that have expired cannot be looked up
eff2-tx-nonce-kept|2.2|-|next_nonce stays as it is after a transaction
eff2-tx-not-pending|3|-|a request that was accepted cannot be polled
eff2-value-expires|4.3|-|a stored value is gone after three seconds
eff2-back-twice|4.3|-|the gradient goes back twice (only a peer sees it)
lim2-prompt-nul|4.1|-|a prompt with the letter U+0000 makes the node fail
lim2-temperature-stream-any|8|-|a stream may have a temperature above 2
lim2-default-tokens-stream|4.1|-|without max_tokens a stream has 50 tokens
lim2-max-tokens-stream-unread|4.1|-|a stream does not look at max_tokens
lim2-max-tokens-plus-one|4.1|-|one token more than max_tokens is generated
lim2-max-tokens-with-prompt|4.1|-|max_tokens includes the tokens of the prompt
lim2-history-one-short|4.1|-|a page of the history has limit less one entries
lim2-requests-of-thirty-blocks|8|-|requests of more than 30 blocks ago cannot be looked up
lim2-artifact-cut|4.2|-|an artifact is cut to 32 KiB
lim2-forward-batch-one|2.3|-|a pass of more than one sequence is refused
lim2-message-decimal-mb|8|-|the server takes messages of up to 100 million bytes
lim2-send-four-mib|8|-|the server sends messages of up to 4 MiB
lim2-deadline-minute|8|-|a gradient that goes back has a deadline of a minute (only a peer sees it)
lim2-deadline-half-second|8|-|a gradient that goes back has a deadline of half a second (only a peer sees it)
lim2-wait-in-seconds|8|-|a gradient that goes back is tried again after four seconds and then eight (only a peer sees it)
"""
)
