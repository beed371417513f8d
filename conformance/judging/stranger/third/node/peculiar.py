"""Unusual things that the document permits. Importing this starts nothing."""

# id | section | requirement or quotation | what
_TEXT = """
accepted-with-reason|4.3|GR-GOSSIP-001|a gradient that is accepted has a reason too
account-unknown-404|2.2|The interface states the purpose of each resource, and specifies neither field names nor types|an account that the chain does not know is answered with 404
bad-422|7.1|NA-ERR-013|bad requests get 422
bad-codes|7.1|NA-ERR-013|the code of a bad request is E_SCHEMA
bearer-exact-case|5|NA-AUTH-011|only Bearer with a capital letter is taken
checkpoint-not-found|7.3|GR-CODE-010|a checkpoint that is not here ends with NOT_FOUND
dht-does-not-learn|4.3|DH-012|the senders of DHT calls are not listed
empty-details-400|7.1|details is optional, and its content depends on the code|failures other than 401, 402 and 429 have empty details
error-request-id|2|Additional fields and additional values of open lists are allowed everywhere|errors have a request_id
extra-fields|2|Additional fields and additional values of open lists are allowed everywhere|the status has a region with a null in it
extra-headers|4|GEN-012|answers have headers of their own
finish-other-word|2.1|NA-INF-027|finish_reason is max_tokens where max_tokens has ended the text
forward-success-false|7.3|An application can also report a failure in an ordinary response|a bad tensor is answered with success false and an error_message
gradients-never|4.3|GR-GOSSIP-002|no gradient is accepted
health-false|2.1|NA-HEALTH-001|healthy is false
health-other-words|2.1|NA-SANE-011|two health checks have other words than ok
healthz-503|7.2|NT-RULE-001|/healthz answers 503: the node is catching up
history-no-charges|2.1|NA-SEEN-001|charges of generations are not in the history
history-oldest-first|4.1|NA-QUERY-013|the history begins with the oldest entry
inference-free|2.1|NA-WALLET-023|generations have a cost that nobody is charged
json-charset|4|GEN-012|Content-Type has a charset
json-indent|4|GEN-010|JSON is indented, with its keys sorted
json-utf8|4|GEN-010|JSON has letters in UTF-8 instead of escapes
k-three|4.3|DH-011|K is 3
k-twenty|4.3|DH-011|K is 20
k-unordered|4.3|DH-016|the closest nodes are listed in no particular order
layer-other-status|3|ST-006|one layer is loading
layers-all-listed|2.1|NA-SANE-019|the layer list has the layers of the whole model
layers-unordered|1|GEN-007|the layers of the status are in falling order
limit-refused|8|NA-ERR-016|a limit above 100 is refused instead of reduced
lz4-other-level|8|the example uses level 1|the checkpoint is compressed with another level
memo-required|2.1|NA-WALLET-035|a transfer without a memo is refused
money-ints|2|number (any number)|amounts without a fraction have no decimal point
native-error-text|7.2|NT-SILENT-006|errors of the native API are plain text
no-checkpoint|4.3|GR-CKPT-003|the node has no checkpoint
no-fee|2.1|NA-WALLET-005|transfers have no fee
no-gpu|2.1|NA-STATUS-028|the node has no GPU: both figures are 0
no-kv-cache|2.3|GR-PIPELINE-FORWARD-RESPONSE-06|no cache is returned although use_cache is true
no-stake-nulls|2.1|where staking.amount is above 0|dates of the staking are null while nothing is staked
no-www-authenticate|7.1|NA-ERR-001|a 401 has no WWW-Authenticate
open-ops-invalid|4.3|GR-SILENT-002|empty transactions and stakes end with INVALID_ARGUMENT
open-ops-unavailable|7.3|GR-CODE-001|SwarmForward ends with UNAVAILABLE
parameters-short|2.1|NA-NETWORK-018|architecture.parameters is 1.2B
peer-ipv6|2.1|NA-SANE-008|a peer has an IPv6 address in brackets
peers-empty|4.1|NA-PEERS-001|the node has no peers
percent-space|4.1|TR-RULE-006|hash_agreement is written 100.0 %
phase-other-word|2.3|the model's phase; bootstrap and early are examples|the phase is granite
prompt-empty-refused|4.1|NA-ERR-013|an empty prompt is refused
proofs-oldest-first|4.1|NA-QUERY-015|the proofs begin with the oldest
range-needed|2.3|GR-SILENT-005|GetWeights without a range ends with NOT_FOUND
redirect-301|7.2|NT-RULE-010|old paths redirect with 301
redirect-absolute|7.2|NT-RULE-010|the redirect names /join with its host
responder-grpc-port|2.3|DH-026|the port of the responder is that of gRPC
role-other-word|2.1|NA-STATUS-010|the role is archivist
rpc-http-400|4.2|NT-SILENT-003|errors of /rpc have the HTTP status 400
self-free|2.1|NA-WALLET-007|a transfer to oneself has no fee
send-201|4.1|NA-ROUTE-006|a transfer is answered with 201
send-other-status|3|ST-008|the status of a transfer is settling
short-texts|4.1|NA-INF-035|the model ends each text after 24 tokens
size-uncompressed|2.3|GR-CKPT-006|total_size is that of the data before compression
sse-at-once|6|NA-SSE-013|all events come at once, with a Content-Length
sse-charset|6|NA-SSE-008|the Content-Type of a stream has a charset
sse-extra-fields|6|Additional fields and additional values of open lists are allowed everywhere|token events have one more field
sse-joined|6|NA-SSE-011|a token event carries up to four tokens
sse-pieces|6|NA-SSE-011|a token is spread over two token events
stake-keeps-start|2.1|NA-WALLET-020|a further stake keeps the begin of the first
stake-result-of-all|2.1|NA-WALLET-017|the amount of a stake result is all that is staked
stake-unit-least|2.1|NA-WALLET-005|less than one unit cannot be staked
stake-week-least|2.1|NA-WALLET-005|a stake is for at least seven days
status-other-word|3|known states|the status of the node is warming
stop-text-included|4.1|NA-INF-013|the text ends with the stop sequence instead of before it
store-first-wins|4.3|DH-010|a second value under a key is refused
store-needs-address|4.3|DH-019|a value without a colon is refused
store-refused|4.3|DH-019|every store is refused
time-offset|2|GEN-008|timestamps end with +00:00
time-seconds-history|2|GEN-008|past timestamps have whole seconds
total-without-pending|2.1|NA-SANE-009|balances.total leaves out what is pending
trailing-slash|7.1|NA-ERR-017|a path of the node API may end with a slash
training-diverged|4.1|TR-RULE-001|one model has another hash, and both verifications say so
trend-other-word|2.1|TR-RULE-007|loss_trend is plateau
unknown-receiver-refused|4.1|NA-ERR-013|a transfer to an unknown address is refused
unstake-success-false|3|NA-WALLET-024|an unstake of more than is staked is answered with success false
unstake-week-always|3|ST-005|the cooldown is 7 days, however long the stake is still locked
work-sponsor|2.2|the sponsor if there is one|the work status has a sponsor
"""

PECULIAR = []
for _line in _TEXT.strip().splitlines():
    _id, _section, _sentence, _what = _line.split("|", 3)
    PECULIAR.append({"id": _id, "section": _section, "sentence": _sentence, "what": _what})
