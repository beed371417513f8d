// Faults of the kinds numbers, refusals, relations and routes.
export const numbers = `
gradients-to-http-port | numbers | 1 | gradients go to the HTTP port of the previous node
grpc-port-off-by-one | numbers | 1 | grpc_port of the configuration is port plus 1001
uptime-in-ms | numbers | 2.1 | uptime_seconds is in milliseconds
ram-used-negative | numbers | 2.1 | ram_used overflows 32 bits and is below zero
latency-in-seconds | numbers | 2.1 | latencies are added to the average in seconds
metrics-timestamp-local | numbers | 2 | the timestamp of the metrics is in local time
metrics-timestamp-hour-ahead | numbers | 2 | the timestamp of the metrics is an hour ahead of the Date header
send-timestamp-with-space | numbers | 2 | a transfer's timestamp has a space instead of the T
timing-microseconds | numbers | 2.1 | the timing of a result is in microseconds
cost-in-atoms | numbers | 2.1 | the cost is in atoms
fee-in-atoms | numbers | 2.1 | the fee of a transfer is in atoms
send-listed-positive | numbers | 2.1 | the amount of a listed send is above zero
received-listed-negative | numbers | 2.1 | a received amount is listed below zero
cooldown-in-hours | numbers | 2.1 | cooldown_days is in hours
hash-agreement-percent | numbers | 2.1 | hash_agreement_rate is a percentage
verify-hash-fraction | numbers | 4.1 | hash_agreement of the quick verification is a fraction
prompt-tokens-constant | numbers | 4.1 | prompt_tokens is always the same
supply-in-units | numbers | 2.2 | the supply is in whole units with decimals
account-digits-lost | numbers | 2.2 | large balances lose digits
index-from-one | numbers | 6 | the index of token events begins with 1
index-stands-still | numbers | 6 | an index occurs twice in a stream
forward-target-at-9 | numbers | 2.3 | target_shard is read from number 9
forward-session-and-request-swapped | numbers | 2.3 | session_id and request_id are read from each other's numbers
forward-logits-at-9 | numbers | 2.3 | logits and logits_shape have each other's numbers
forward-loss-float | numbers | 2.3 | the loss of a pass is a float
backward-success-at-2 | numbers | 2.3 | success and error_message of a backward answer are exchanged
backward-grad-shape-at-3 | numbers | 2.3 | grad_output and grad_shape are read from each other's numbers
gossip-hash-at-4 | numbers | 2.3 | model_hash of a gradient is read from number 4
gossip-gradients-strings | numbers | 2.3 | gradients are read as text
weights-range-at-2 | numbers | 2.3 | shard_range is read from number 2
checkpoint-size-at-8 | numbers | 2.3 | total_size is at number 8
checkpoint-min-version-at-3 | numbers | 2.3 | min_version is read from number 3
dht-found-at-3 | numbers | 2.3 | found and nodes of DHTFindValue are exchanged
dht-store-value-at-4 | numbers | 2.3 | the value of a store is read from number 4
listed-ports-above | numbers | 4.3 | listed ports are above 65535
logits-half-precision | numbers | 2.3 | logits have half of the bytes that their shape and format give
`;
export const refusals = `
native-past-expiry-accepted | refusals | 3 | a request past its block of expiry is accepted and completed
stake-checks-total | refusals | 7.1 | a stake may use what is staked already
unauthorized-code-lowercase | refusals | 7.1 | the code of a 401 is written unauthorized
fails-when-busy | refusals | 4.1 | the third generation at the same time gets 500
prompt-optional | refusals | 4.1 | a body without a prompt is accepted
prompt-emoji-refused | refusals | 4.1 | a prompt with characters outside the basic plane is refused
max-tokens-fraction-accepted | refusals | 4.1 | max_tokens with a fraction is accepted
wrong-type-default | refusals | 4.1 | a max_tokens of the wrong type is replaced by the default
stream-object-truthy | refusals | 4.1 | a stream parameter that is an object is taken for true
temperature-wrapped-in-stream | refusals | 4.1 | a temperature in an array is ignored where a stream is asked for
stream-refused-in-event | refusals | 6 | a stream with a bad body gets 200 and an event with an error
unpaid-stream-in-event | refusals | 7.1 | a stream that cannot be paid gets 200 and an event with an error
wrapped-amount-accepted | refusals | 4.1 | an amount in an array is accepted
amount-integers-only | refusals | 4.1 | an amount with decimals is refused
negative-transfer-draws | refusals | 3 | a transfer of less than nothing draws money from its receiver
receiver-remembered | refusals | 4.1 | a transfer without a receiver goes to that of the transfer before
insufficient-funds-code | refusals | 7.1 | a 402 has the code INSUFFICIENT_FUNDS
refused-transfer-charges-fee | refusals | 7.1 | a transfer that is refused with 402 costs its fee
refused-transfer-listed | refusals | 7.1 | a transfer that is refused with 402 is listed
stake-excess-takes-all | refusals | 7.1 | a stake of too much is refused and stakes what there is
unstake-excess-all | refusals | 3 | an unstake of too much unstakes everything with success
generation-overdraws | refusals | 7.1 | a generation that costs more than is available is made
whole-balance-refused | refusals | 7.1 | a transfer of all that is available, its fee included, gets 402
fee-not-checked | refusals | 7.1 | a transfer of all that is available is accepted although it costs a fee
config-any-type | refusals | 4.1 | batch_size takes a value of any type
config-mixed-partly | refusals | 4.1 | a change that is refused for one key changes those before it
error-flat | refusals | 7.1 | the body of a 401 has no object named error
unauthorized-details | refusals | 7.1 | a 401 has details
unknown-request-pending | refusals | 2.2 | a request that nobody has made is pending
register-registers | refusals | 7.2 | the old registration still registers
login-410 | refusals | 7.2 | old login paths answer 410 instead of redirecting
reference-put-stores | refusals | 9 | a PUT changes a view of the reference chain
native-chain-unchecked | refusals | 2.2 | a request that is signed for another chain is accepted
absent-layer-computed | refusals | 7.3 | a pass to an absent layer is computed by the first layer
negative-shard-from-end | refusals | 7.3 | a negative target_shard counts from the end
backward-refusal-without-reason | refusals | 7.3 | a backward pass that fails has no error_message
weights-absent-internal | refusals | 7.3 | weights of an absent layer get INTERNAL
weights-partial-range | refusals | 7.3 | a range with an absent layer gets the weights of the others
checkpoint-refusal-silent | refusals | 7.3 | a checkpoint that does not exist is refused without a reason
checkpoint-newest-instead | refusals | 4.3 | a checkpoint that does not exist is replaced by the newest
gossip-refusal-without-reason | refusals | 7.3 | a gradient that is not accepted gets no reason
gossip-any-model-hash | refusals | 2.3 | a gradient of another model is accepted
garbage-internal | refusals | 7.3 | a message that cannot be read gets INTERNAL
key-length-out-of-range-status | refusals | 7.3 | a key of another length gets OUT_OF_RANGE
refused-store-stores | refusals | 4.3 | a store that is reported as refused stores its value
`;
export const relations = `
transaction-hash-is-request-id | relations | 2.2 | the hash of a transaction in a block is its request ID
unreachable-senders-listed | relations | 2.3 | the DHT lists senders that name no address
checkpoint-min-version-ignored | relations | 4.3 | a checkpoint is older than min_version asks for
config-node-id-differs | relations | 2.1 | node_id of the configuration is not that of the status
status-enabled-stale | relations | 2.1 | the status does not follow a change of training.enabled
status-layers-not-held | relations | 2.1 | the status lists a layer that the layer list does not have
gpu-used-above-total | relations | 2.1 | gpu_memory_used is above gpu_memory_total
p99-below-average | relations | 2.1 | p99_latency_ms is below avg_latency_ms
total-tokens-wrong | relations | 2.1 | total_tokens leaves out the tokens of the prompt
total-ms-below-inference | relations | 2.1 | total_ms is below inference_ms
asked-tokens-counted | relations | 2.1 | the metrics count the tokens that were asked for
id-repeated | relations | 2.1 | two results that resemble each other have the same id
send-listed-other-id | relations | 2.1 | a transfer is listed under another id
memo-lowercased | relations | 2.1 | the memo of a transfer result is in lower case
stake-new-balance-old | relations | 2.1 | new_balance of a stake is that of before the stake
available-date-today | relations | 3 | available_date of an unstake is today
peers-with-itself-uncounted | relations | 2.1 | the peer list has one more entry than its total
total-is-page | relations | 4.1 | total of the transaction list is the length of the page
total-frozen | relations | 4.1 | total does not grow with new entries
proofs-verified-all | relations | 2.1 | total_verified counts proofs that are not verified
reward-proofs-unknown | relations | 2.1 | the rewards of the history name no proof that is listed
updated-last-part | relations | 4.1 | updated has the last parts of keys and not dotted paths
sync-rate-inconsistent | relations | 2.1 | sync_success_rate does not follow from the counts
verify-trend-other | relations | 4.1 | loss_trend differs between the two verifications
verify-ignores-divergence | relations | 4.1 | is_working is true while the models have diverged
stream-cumulative | relations | 6 | each token event has the whole text so far
stream-usage-prompt-extra | relations | 6 | a stream counts one more token of the prompt
available-counts-staked | relations | 7.1 | available of a 402 counts what is staked
network-pair-frozen | relations | 2.2 | the hash of the network identity stays while its height grows
network-other-genesis | relations | 2.2 | the network names another genesis than the other resources
checkpoint-round-old | relations | 4.2 | the round of the checkpoint is not that of the newest update
artifact-newline | relations | 4.2 | an artifact does not have its digest
request-cached | relations | 4.2 | every request is answered with the record of the first
rpc-block-of-before | relations | 4.2 | /rpc returns the block before the height
distance-as-difference | relations | 4.3 | the closest nodes are found by difference instead of XOR
moved-node-listed-twice | relations | 4.3 | a node whose port has changed is listed twice
keys-by-first-eight-bytes | relations | 4.3 | keys that begin alike share a value
info-version-older | relations | 4.3 | GetCheckpointInfo names an older version than GetCheckpoint returns
checkpoint-hash-without-version | relations | 4.3 | min_version is ignored beside a hash
request-id-cut | relations | 2.3 | request_id is cut after 36 letters
logits-one-sequence | relations | 2.3 | the answer to a batch has one sequence
logits-of-pass-before | relations | 4.3 | a pass is answered with the logits of the pass before
gossip-round-grows-by-refusal | relations | 2.3 | each refusal names a later round
`;
export const routes = `
api-without-v1 | routes | 9 | the node API is under /api
training-under-v1 | routes | 9 | the training routes are under /api/v1
config-put | routes | 4.1 | the configuration is changed with PUT
unstake-delete | routes | 4.1 | an unstake is a DELETE
patch-answers-config | routes | 4.1 | a change is answered with the configuration
history-bare-list | routes | 4.1 | the transactions are a bare array
json-as-text | routes | 4.1 | JSON answers have the type text/plain
unknown-path-200 | routes | 7.1 | a path that does not exist gets 200
body-charset-refused | routes | 4.1 | a body with a charset beside its type is refused
chunked-body-refused | routes | 4.1 | a body in chunks is refused
stream-flag-ignored | routes | 4.1 | with stream true the answer is one JSON result
events-one-newline | routes | 6 | no blank line stands between events
event-on-several-lines | routes | 6 | the JSON of an event is on several lines
no-final-event | routes | 6 | a stream has no final event
openai-done-line | routes | 6 | data: [DONE] follows the final event
json-duplicate-key | routes | 4 | the status has a key twice
json-nan | routes | 4 | the metrics have a NaN
healthz-404 | routes | 4.2 | /healthz does not exist
block-path-plural | routes | 4.2 | a block is at /api/blocks/<height>
request-id-in-path | routes | 4.2 | the id of a request is in the path
no-work-result | routes | 4.2 | /work/result does not exist
no-reference | routes | 4.2 | nothing is served of the reference chain
artifact-in-json | routes | 4.2 | an artifact is inside a JSON document
rpc-without-abci-query | routes | 4.2 | /rpc does not serve abci_query
rpc-jobs-path-missing | routes | 4.2 | /jobs is no query path
service-in-package-v1 | routes | 4.3 | the gRPC service is in package node.v1
grpc-at-port-plus-one | routes | 1 | gRPC is served at the HTTP port plus 1
no-get-swarm-status | routes | 4.3 | GetSwarmStatus does not exist
no-stream-inference | routes | 4.3 | StreamInference does not exist
dht-names-camel | routes | 4.3 | the DHT operations are called DhtPing and so on
find-node-streams | routes | 4.3 | DHTFindNode answers with two messages
`;
