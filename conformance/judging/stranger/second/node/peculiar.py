"""What is unusual and permitted: id | section | sentence | what is unusual. The code asks for each by pec(id)."""

TEXT = """
address-long|2.1|NA-BALANCE-002|addresses have 131 characters
agreement-int|2.1|TR-GLOBAL-006|hash_agreement_rate is 1 instead of 1.0
bad-is-422|7.1|"Statuses and codes of other failures ... are not specified"|a bad body yields 422
bearer-any-case|5|NA-AUTH-005|the word Bearer is taken in any case
capacity-integers|2.1|NA-NETWORK-022|memory is given as a whole number
charges-not-listed|2.1|"reward and send are known"|charges for inference are not in the history
charset|4|GEN-012|Content-Type has a charset
checkpoint-large|8|LIM-001|the checkpoint has 6 MiB and is not compressible
chunked|4|"Bodies of requests and answers are JSON"|answers are sent in chunks
chunked-slow|4|"Bodies of requests and answers are JSON"|answers are sent in chunks with pauses
ckpt-refusal-not-found|7.3|GR-CODE-001|a checkpoint that is not here ends with NOT_FOUND
cooldown-long|2.1|NA-UNSTAKE-007|the cooldown is 45 days
cooldown-zero|2.1|NA-UNSTAKE-007|the cooldown is 0 days
cpu-integer|2.1|NA-STATUS-032|cpu_percent is a whole number
cpu-many-cores|2.1|NA-STATUS-032|cpu_percent adds up several cores and exceeds 100
dht-alone|4.3|DH-012|the node knows no other node at first
dht-few|4.3|DH-012|the node knows three other nodes at first
dht-long-values-refused|4.3|DH-019|a value of more than 2000 characters is refused
dht-nearest-last|4.3|DH-012|the closest nodes are listed with the closest last
dht-only-20-byte-keys|4.3|GR-CODE-011|a key that has not 20 bytes is refused by DHTStore
diverged|4.1|TR-RULE-001|three of four hashes agree, and is_working is false
empty-prompt-accepted|4.1|NA-INF-002|an empty prompt is accepted
ends-early|4.1|NA-INF-003|every generation ends after a few tokens
error-code-numbers|7.1|"Statuses and codes of other failures ... are not specified"|codes of other failures look like E400
error-details-empty|7.1|NA-ERR-004|other failures have empty details
extra-everywhere|2|"Additional fields and additional values of open lists are allowed everywhere"|every object has one more field, which is null
final-with-hidden|2.3|PL-FWD-002|the last shard answers with hidden states beside logits
finish-eos|2.1|NA-INF-027|finish_reason can be eos
free-inference|2.1|NA-INF-025|inference costs nothing
fwd-refuses-softly|7.3|"An application can also report a failure in an ordinary response"|a wrong tensor is refused with success false and a reason
g-explicit-defaults|2.3|GR-NUM-001|default values are written into messages
g-slow|8|LIM-005|each gRPC call takes 0.3 seconds longer
g-trailers|4.3|GR-OP-023|answers have trailing metadata
g-unknown-fields|2|"Additional fields ... are allowed everywhere"|answers have an unknown field with the number 900
g-unpacked|2.3|GR-PIPELINE-FORWARD-RESPONSE-09|repeated numbers are not packed
gone-empty|7.2|"The body of an error is not specified"|a 410 has an empty object
gone-text|7.2|"The body of an error is not specified"|a 410 has plain text
gossip-accepts-all|2.3|GR-GOSSIP-002|every gradient is accepted
health-degraded|2.1|NA-SANE-011|the node is not healthy
healthz-503|4.2|NT-RULE-002|the native node is catching up
healthz-text|4.2|NT-ROUTE-001|the readiness is plain text
history-default-5|4.1|NA-QUERY-010|without limit a page has 5 transactions
history-empty|2.1|NA-HISTORY-002|the history is empty at first
history-max-10|8|"nor the highest limit of a query"|a page has at most 10 transactions
history-oldest-first|4.1|NA-QUERY-008|the history begins with the oldest
huge-memory|2.1|NA-STATUS-030|memory figures exceed 2^43
index-error|2.2|NT-RULE-014|the explorer index has failed and lists nothing
json-compact|4|GEN-010|JSON has no spaces
json-pretty|4|GEN-010|JSON is indented
json-reversed|4|GEN-010|keys of objects come in reverse order
json-sorted|4|GEN-010|keys of objects are sorted
json-unescaped|4|GEN-010|letters that are not ASCII are not escaped
k-one|4.3|DH-012|K is 1
k-twenty|4.3|DH-012|K is 20
keepalive-off|4|"Bodies of requests and answers are JSON"|the connection is closed after each answer
latency-zero|2.1|NA-PEERS-014|latencies are 0
layer-loading|2.1|NA-LAYERS-014|layers have the status loading
layer-types|2.1|NA-LAYERS-010|layers have the type moe
layers-list-all|2.1|NA-SANE-019|the layer list has all layers of the model
layers-unordered|2.1|NA-STATUS-012|layers of the status are not sorted
layers-with-gap|2.1|GEN-007|the node holds layers 2 and 5
loss-zero|2.1|NA-STATUS-024|the loss is the whole number 0
many-layers|2.1|NA-LAYERS-004|the model has 320 layers, of which the node holds 280
max-tokens-clamped-40|4.1|NA-INF-003|at most 40 tokens are generated
money-integers|2.1|NA-BALANCE-006|amounts without a fraction are JSON integers
multiplier-one|2.1|NA-STAKE-014|the multiplier is the whole number 1
native-before-inclusive|4.2|NT-PAGE-002|before includes its own height or round
native-default-3|4.2|NT-PAGE-001|without limit a native page has 3 entries
native-max-8|8|"nor the highest limit of a query"|a native page has at most 8 entries
network-huge|2.1|NA-NETWORK-004|the network has millions of nodes
network-tiny|2.1|NA-NETWORK-004|the network has one node
never-calls-back|4.3|DH-001|the node never calls those that ping it
never-ends|4.1|NA-INF-003|no generation ends before max_tokens
no-cache|4|"Bodies of requests and answers are JSON"|answers have Cache-Control no-store
no-cache-given|2.3|GR-PIPELINE-FORWARD-RESPONSE-06|a forward pass gives no KV cache although it is asked to
no-checkpoint|4.3|GR-CKPT-003|there is no checkpoint yet
no-fee|2.1|NA-SEND-010|transfers cost no fee
no-gpu|2.1|NA-STATUS-028|the node has no GPU
no-sponsor|2.2|NT-ROUTE-015|there is no sponsor
no-syncs|2.1|TR-RULE-004|there was no exchange of gradients yet
no-updates|2.2|NT-ROUTE-005|the training history is empty
node-id-long|2.1|NA-STATUS-002|node_id has 165 characters
nothing-staked|2.1|NA-BALANCE-016|nothing is staked at first
one-layer|2.1|GEN-007|the node holds one layer
params-huge|2.3|GR-GET-CHECKPOINT-INFO-RESPONSE-04|params exceeds 32 bits
patch-all-restart|4.1|NA-PATCH-111|every change needs a restart
patch-refusal-200|4.1|NA-PATCH-110|a refused change is answered with 200 and success false
patch-threads-restart|4.1|NA-PATCH-111|a change of cpu_threads needs a restart
peer-no-layers|2.1|NA-PEERS-012|peers hold no layers
peers-empty|4.1|NA-PEERS-002|there are no peers
peers-ipv6|2.1|NA-SANE-008|addresses of peers are IPv6
peers-many|4.1|NA-PEERS-002|there are 60 peers
percent-plain|4.1|TR-RULE-006|hash_agreement is 100% without a decimal
phase-other|2.3|GR-GET-CHECKPOINT-RESPONSE-05|the phase is consolidation
proof-rewards-unverified|2.1|NA-SANE-024|unverified proofs have a reward too
proof-types|2.1|NA-SEEN-003|some proofs have the type backward
proofs-default-5|4.1|NA-QUERY-009|without limit a page has 5 proofs
proofs-empty|4.1|NA-PROOFS-002|there are no proofs
redirect-301|7.2|NT-RULE-010|old login paths redirect with 301
redirect-303|7.2|NT-RULE-010|old login paths redirect with 303
redirect-307|7.2|NT-RULE-010|old login paths redirect with 307
redirect-308|7.2|NT-RULE-010|old login paths redirect with 308
redirect-absolute|7.2|NT-RULE-010|old login paths redirect to an absolute URL
role-driver|1|GEN-005|the node is a driver and holds the first layers
role-driver-validator|1|GEN-005|the node holds all layers and calls itself driver
role-new|1|GEN-005|the role is archivist
role-worker|1|GEN-005|the node is a worker and holds layers in the middle
rpc-errors-400|4.2|NT-RULE-005|a method that /rpc does not serve yields 400
self-transfer-once|2.1|NA-WALLET-007|a transfer to oneself is listed once
server-header|4|"Bodies of requests and answers are JSON"|answers have unusual headers
shards-empty|2.1|TR-GLOBAL-020|no data shards are covered
slow|8|LIM-005|each HTTP answer takes 0.3 seconds longer
slow-errors|7.1|NA-ERR-012|each refusal takes 0.3 seconds longer
slow-inference|2.1|NA-INF-034|each generation takes 0.3 seconds longer
stake-min-days-7|2.1|NA-ROUTE-008|stakes of fewer than 7 days are refused
stakes-not-listed|2.1|"reward and send are known"|stakes are not in the history
staking-nulls|2.1|NA-BALANCE-016|staking of an account that has staked nothing has a note beside its amount 0
status-draining|2.1|"the reference node also uses draining"|the status is draining
status-other|2.1|NA-SANE-010|the status is warming_up
stop-kept|4.1|NA-INF-013|the text ends with the stop sequence instead of before it
stream-batches|6|NA-SSE-003|a token event carries several tokens
stream-charset|6|NA-SSE-008|the Content-Type of a stream has a charset
stream-extra|6|"Additional fields ... are allowed everywhere"|token events have one more field
stream-final-index|6|NA-SSE-FINAL-001|the final event has an index too
stream-slow|6|NA-SSE-003|there are pauses between events
stream-slow-end|6|NA-SSE-005|there is a pause before the final event
supply-small|2.2|NT-RULE-011|the supply is one unit
time-milliseconds|2|GEN-008|timestamps have milliseconds
time-nanoseconds|2|GEN-008|timestamps have nine decimals and a Z
time-z|2|GEN-008|timestamps end with Z
tokens-huge|2.1|TR-GLOBAL-018|global_tokens exceeds 2^48
total-size-raw|2.3|GR-CKPT-010|total_size is the size before compression
total-without-pending|2.1|NA-BALANCE-012|the total does not include pending money
training-off|2.1|NA-STATUS-018|training is switched off at first
transfer-pending|3|ST-008|the status of a transfer is pending
trend-stable|2.1|TR-RULE-007|loss_trend is stable
unknown-account-404|4.2|NT-ROUTE-008|an account that the chain does not know yields 404
unstake-refusal-200|2.1|NA-UNSTAKE-002|an unstake of too much is answered with 200 and success false
uptime-huge|2.1|NA-STATUS-006|uptime_seconds exceeds 10^9
version-odd|9|GEN-014|the version is no number and has a Greek letter
wallet-off-chain|2.1|NA-SEND-002|transfers of the node API do not show on the native chain
weights-plain|2.3|GR-WEIGHT-RESPONSE-01|weights are not compressed
whole-model|2.1|GEN-007|the node holds all layers
www-authenticate|7.1|NA-AUTH-001|a 401 has the header WWW-Authenticate
"""
PECULIAR = [
    dict(zip(("id", "section", "sentence", "what"), l.split("|")), kind="peculiar")
    for l in TEXT.strip().splitlines()
]
