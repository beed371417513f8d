# encoding: utf-8
# The single faults: id => [kind, section, what is wrong]. The switches are in the code: on?('id').
FAULTS = <<'TABLE'.lines.map(&:chomp).reject(&:empty?).to_h { |l| id, *rest = l.split('|', 4); [id, rest.freeze] }.freeze
transfers-race|effects|2.1|Transfers at the same time start from the same balance, so that some are not taken.
receiver-not-credited|effects|2.1|The receiver of a transfer gets nothing.
receiver-pays-fee|effects|2.1|The receiver gets the amount less the fee.
fee-not-taken|effects|2.1|The fee of a transfer is named but not taken from the sender.
self-transfer-loses-amount|effects|2.1|A transfer to oneself takes the amount and never returns it.
self-transfer-doubles|effects|2.1|A transfer to oneself gives the amount twice.
transfer-not-in-history|effects|2.1|A transfer is made but not listed.
transfer-listed-twice|effects|2.1|A transfer is listed twice in its sender's history.
history-at-receiver-only|effects|2.1|A transfer to another account is listed with the receiver, not with the sender.
transfer-without-memo-not-listed|effects|2.1|A transfer without a memo is not listed.
unknown-receiver-not-listed|effects|4.1|A transfer to an address without an account here is made but not listed.
history-joins-same-receiver|effects|2.1|Transfers to one receiver shortly after one another are joined into one entry.
stake-not-taken|effects|2.1|A stake takes nothing from what is available.
stake-taken-twice|effects|2.1|A stake takes its amount twice.
stake-replaces-former|effects|2.1|A stake replaces what was staked before instead of adding to it.
stake-also-pending|effects|2.1|What is staked is also pending.
stake-always-thirty-days|effects|4.1|A stake is locked for 30 days whatever its request says.
unstake-takes-everything|effects|3|An unstake of a part ends the whole stake.
unstake-keeps-stake|effects|3|An unstake takes nothing from what is staked.
unstake-available-at-once|effects|3|Unstaked money is available at once, without its cooldown.
charge-main-account|effects|2.1|Every generation is charged to the first account.
charge-taken-twice|effects|2.1|A generation takes its cost twice.
stopped-generation-charged-in-full|effects|2.1|A generation that a stop sequence ends is charged for max_tokens.
learning-rate-not-stored|effects|4.1|A change of training.learning_rate is reported as done but not stored.
changes-race|effects|4.1|Of changes at the same time some are lost.
section-replaced-by-change|effects|4.1|A change within training puts the other keys of training back to their first values.
only-first-key-changed|effects|4.1|Of several keys in a change only the first is changed.
gradients-not-passed-on|effects|4.3|Accepted gradients are not passed on to the previous node.
gradients-sent-twice|effects|4.3|Gradients go to the previous node twice.
gradients-to-first-sender|effects|4.3|Gradients of every pass go to the sender of the first pass.
dht-store-keeps-nothing|effects|4.3|A store is reported as done but keeps nothing.
dht-keeps-one-value|effects|4.3|A store drops the values that were stored before.
same-session-answer-cached|effects|4.3|A pass of a session is answered with the result of its first pass of that shape.
counts-lost-at-once|effects|2.1|Generations at the same time are not all counted.
status-loss-null|fields|2.1|training.loss of the status is null.
status-layers-as-range|fields|2.1|layers of the status is a text like 3-5.
status-without-peer-count|fields|2.1|The status lacks peer_count.
status-enabled-as-text|fields|2.1|training.enabled of the status is a text.
status-step-renamed|fields|2.1|training.step of the status is called steps.
gpu-memory-fraction|fields|2.1|gpu_memory_used has a fraction.
metrics-without-rpc-calls|fields|2.1|The metrics lack network.rpc_calls.
steps-per-hour-fraction|fields|2.1|steps_per_hour has a fraction.
rewards-null|fields|2.1|rewards of the metrics is null.
health-checks-list|fields|2.1|checks of the health is an array.
health-without-storage|fields|2.1|The health lacks checks.storage.
text-as-array|fields|2.1|text of a result is an array of tokens.
cost-as-number|fields|2.1|cost of a result is a plain number.
result-without-timing|fields|2.1|A result lacks timing.
result-without-finish-reason|fields|2.1|A result lacks finish_reason.
usage-without-total|fields|2.1|usage lacks total_tokens.
balances-not-nested|fields|2.1|The balances stand beside the address, not within balances.
balances-as-text|fields|2.1|The balances are texts.
balance-without-staking|fields|2.1|The balance lacks staking.
staking-without-multiplier|fields|2.1|staking lacks multiplier.
transaction-id-renamed|fields|2.1|transaction_id of a transfer result is called id.
memo-null-when-empty|fields|2.1|The memo of a transfer result is null where it is empty.
stake-without-new-balance|fields|2.1|A stake result lacks new_balance.
cooldown-as-phrase|fields|2.1|An unstake result gives the cooldown as a phrase under another name.
peer-layers-object|fields|2.1|layers of a peer is an object.
parameters-as-number|fields|2.1|architecture.parameters is a number.
config-diloco-nested|fields|2.1|training.diloco_steps stands in a further object.
tracker-url-null|fields|2.1|tracker_url is null.
proof-reward-object|fields|2.1|reward of a proof is an object.
proof-stats-not-nested|fields|4.1|The statistics stand beside the proofs, not within stats.
data-shards-count|fields|2.1|data_shards_covered is a number.
global-without-diloco|fields|2.1|The global verification lacks diloco.
verify-without-global-loss|fields|4.1|The quick verification lacks metrics.global_loss.
updated-as-object|fields|4.1|updated is an object with the new values.
patch-without-restart-required|fields|4.1|The answer to a change lacks restart_required.
limit-as-text|fields|4.1|limit of the transaction list is a text.
expired-token-accepted|guards|5|An expired token is accepted.
expired-token-accepted-for-writing|guards|5|An expired token is refused for reading but accepted by the routes that change something.
token-prefix-enough|guards|5|A token that begins with a valid one is accepted.
token-in-any-case|guards|5|A token is accepted in other letter case.
any-scheme-accepted|guards|5|A token under another scheme than Bearer is accepted.
token-in-query-accepted|guards|5|A token in the query is accepted without a header.
empty-bearer-accepted|guards|5|A Bearer header without a token is served.
peers-without-token|guards|4.1|GET /peers needs no token.
balance-without-token|guards|5|GET /wallet/balance without a header serves the main account.
unstake-without-token|guards|5|POST /wallet/unstake without a header works on the main account.
stream-without-token|guards|5|A stream is served without a valid token.
change-made-before-token|guards|5|A change of the configuration is made although its token is then refused.
connection-remembers-token|guards|5|A connection keeps its token for requests without one.
connection-stays-refused|guards|5|After a refusal all further requests on the connection are refused.
refusal-blocks-token|guards|5|After a 402 the next request of the token is refused with 401.
every-token-main-account|guards|5|Every valid token reads the main account.
token-shared-between-threads|guards|5|Requests at the same moment may be served with one another's account.
body-judged-before-token|guards|5|A body that is no JSON is refused before the token is looked at.
query-judged-before-token|guards|5|A bad limit is refused before the token is looked at.
expired-token-403|guards|7.1|An expired token yields 403.
401-code-renamed|guards|7.1|The code of an unknown token is INVALID_TOKEN.
401-with-details|guards|7.1|A 401 has details.
missing-token-403|guards|5|A request without a header yields 403.
training-needs-token|guards|4.1|GET /api/training/global needs a token.
header-names-exact|guards|5|The header authorization is read only when it is spelled Authorization.
temperature-zero-refused|limits|4.1|A temperature of 0 is refused.
high-temperature-clamped|limits|8|A temperature above 2 is accepted.
top-p-one-refused|limits|4.1|A top_p of 1 is refused.
top-k-above-forty-refused|limits|4.1|A top_k above 40 is refused.
empty-stop-refused|limits|4.1|An empty array of stop sequences is refused.
one-token-too-many|limits|4.1|One token more than max_tokens is generated.
default-max-tokens-128|limits|4.1|Without max_tokens up to 128 tokens are generated.
default-max-tokens-64|limits|4.1|Without max_tokens only 64 tokens are generated.
prompt-lessens-room|limits|4.1|The tokens of the prompt are taken from max_tokens.
max-tokens-ignored-in-stream|limits|4.1|A stream does not heed max_tokens.
only-first-stop|limits|4.1|Only the first of several stop sequences counts.
transactions-limit-ignored|limits|4.1|A page of transactions does not heed its limit.
proofs-limit-ignored|limits|4.1|A page of proofs does not heed its limit.
proofs-limit-remembered|limits|4.1|The limit of a page of proofs also bounds the pages after it.
blocks-limit-plus-one|limits|4.2|A page of blocks has one entry more than its limit.
grpc-messages-up-to-4-mib|limits|8|gRPC messages above 4 MiB are refused.
dht-id-of-32-bytes|limits|8|The node's DHT id has 32 bytes.
dht-value-cut|limits|4.3|A stored value is cut to 255 letters.
only-64-requests-kept|limits|8|Only the latest 64 finished requests can be looked up.
request-id-cut-to-36|limits|2.3|A request_id in an answer is cut to 36 letters.
send-amount-positive|numbers|4.1|A send is listed with a positive amount.
balance-in-atoms|numbers|2.1|available of the balance is in atoms.
fee-in-atoms|numbers|2.1|The fee of a transfer result is in atoms.
uptime-in-milliseconds|numbers|2.1|uptime_seconds counts milliseconds.
total-in-seconds|numbers|2.1|total_ms is in seconds.
timestamps-local-zone|numbers|2|Timestamps are in a zone two hours from UTC.
dates-day-first|numbers|2|Dates are written day first.
metrics-timestamp-hour-behind|numbers|2|The timestamp of the metrics is an hour behind.
history-timestamp-epoch|numbers|2.1|Timestamps of the history are seconds since 1970.
hash-agreement-in-percent|numbers|2.1|hash_agreement_rate is 100 instead of 1.
hash-agreement-as-fraction|numbers|4.1|hash_agreement of the quick verification is a fraction.
sync-rate-as-ratio|numbers|2.1|sync_success_rate is successes divided by failures.
status-loss-nan|numbers|4|training.loss of the status is written as NaN.
p99-minus-one|numbers|2.1|p99_latency_ms is -1.
native-amounts-as-numbers|numbers|2.2|Native amounts are JSON numbers.
pb-loss-number|numbers|2.3|loss of a forward answer is at number 11.
pb-loss-float|numbers|2.3|loss of a forward answer is a float of 32 bits.
pb-forward-answer-first-two|numbers|2.3|request_id and success of a forward answer are exchanged.
pb-target-shard-zigzag|numbers|2.3|target_shard is read as sint32.
pb-labels-number|numbers|2.3|training_labels is read from number 13.
pb-grad-output-number|numbers|2.3|grad_output is read from number 6.
pb-gossip-hash-number|numbers|2.3|model_hash and signature of a gradient are exchanged.
pb-current-round-number|numbers|2.3|current_round is at number 4.
pb-params-text|numbers|2.3|params is a string.
pb-dht-port-number|numbers|2.3|port of a DHTNodeInfo is at number 4.
pb-found-number|numbers|2.3|found is at number 5.
pb-store-value-number|numbers|2.3|value of a store is read from number 4.
grpc-reads-packed-only|numbers|2.3|Repeated numbers are read only when packed.
tensors-as-float64|numbers|2.3|Tensors in answers have 8 bytes for each value.
checkpoint-not-compressed|numbers|2.3|Checkpoint data is not an LZ4 frame.
missing-prompt-is-empty|refusals|4.1|A body without a prompt is accepted.
stream-of-any-type|refusals|4.1|A stream of any type is accepted as true.
refusal-inside-stream|refusals|7.1|A stream that is refused for its body is answered with 200 and an event with the error.
unpaid-stream-has-status-200|refusals|7.1|A stream that costs too much is answered with 200 and an error event.
402-as-400|refusals|7.1|A balance that is too low yields 400.
402-details-as-text|refusals|7.1|required and available of a 402 are texts.
required-is-the-gap|refusals|7.1|required of a 402 is what is missing, not what is needed.
transfer-of-too-much-done|refusals|7.1|A transfer of more than is available is made.
refused-transfer-in-history|refusals|7.1|A transfer that is refused with 402 is in the history.
fee-not-required|refusals|7.1|A transfer of all that is available is accepted although it also costs a fee.
missing-amount-of-last-body|refusals|4.1|A transfer without an amount takes that of the request before.
array-of-one-taken|refusals|4.1|A number in an array is taken.
text-read-as-number|refusals|4.1|A text is read as a number, and no number as 0.
negative-amount-taken|refusals|3|A negative amount is moved the other way.
whole-amount-refused|refusals|4.1|A whole amount without a decimal point is refused.
unstake-of-too-much-clamped|refusals|3|An unstake of more than is staked unstakes all and is reported as done.
config-values-unchecked|refusals|4.1|A change is stored whatever the type of its value.
refused-change-half-done|refusals|4.1|A change that is refused for one key has changed those before it.
dotted-keys-taken|refusals|4.1|A change with dotted keys is taken.
error-body-flat|refusals|7.1|error in a failure is a text.
unknown-path-200|refusals|7.1|A path that does not exist is answered with success.
429-as-503|refusals|7.1|Too many requests yield 503 with the code RATE_LIMITED.
429-retry-after-float|refusals|7.1|retry_after is not a whole number.
bad-limit-crashes|refusals|4.1|A limit that is no number makes the node fail.
absent-layer-unavailable|refusals|7.3|A pass to an absent layer ends with UNAVAILABLE.
negative-layer-counts-from-end|refusals|7.3|A layer below 0 is the last one.
bad-labels-without-reason|refusals|4.3|A forward answer with success false has no error_message.
wrong-gradient-drops-pass|refusals|4.3|After wrong gradients the right ones of the pass are refused.
refused-gradient-clears-passes|refusals|4.3|A refusal of gradients of an unknown pass drops all kept passes.
absent-weights-empty|refusals|4.3|Weights of an absent layer are answered with OK and no data.
partly-absent-weights-served|refusals|7.3|Of a range with absent layers the present ones are returned.
unknown-hash-gives-latest|refusals|4.3|A checkpoint of an unknown hash is the latest one.
gossip-refusal-without-reason|refusals|7.3|A gradient is refused without a reason.
gossip-of-other-model-accepted|refusals|2.3|A gradient of another model is accepted.
gossip-gradients-read-as-text|refusals|2.3|Gradients that are no UTF-8 are refused.
dht-short-id-unknown-error|refusals|7.3|A search for an id of another length ends with UNKNOWN.
refused-store-stored|refusals|4.3|A store that is reported as refused is kept.
block-above-is-tip|refusals|4.2|A block above the height of the chain is answered with the newest.
artifact-by-prefix|refusals|4.2|An artifact is found under the beginning of its digest.
odd-keys-refused|refusals|4.2|Public keys that begin with 03 are refused.
unsigned-poll-served|refusals|4.2|A poll that nobody has signed is answered with success.
work-garbage-crashes|refusals|4.2|A worker message that is no JSON makes the node fail.
unknown-request-pending|refusals|2.2|A request that nobody has made is shown as pending.
rpc-engine-methods-open|refusals|4.2|POST /rpc serves net_info and other methods of the engine.
registration-still-open|refusals|4.2|A registration is answered with a new key.
node-id-new-each-time|relations|2.1|node_id of the status is another one each time.
config-grpc-port-next|relations|1|grpc_port of the configuration is port plus 1.
status-ignores-enabled-change|relations|2.1|The status does not follow a change of training.enabled.
layer-index-from-one|relations|2.1|The layer list counts its indices from 1.
gpu-total-in-mebibytes|relations|2.1|Memory in use is above all memory.
total-tokens-without-prompt|relations|2.1|total_tokens does not count the prompt.
prompt-tokens-of-words|relations|4.1|prompt_tokens is the same for every prompt.
result-id-of-prompt|relations|2.1|Results of the same prompt have the same id.
cost-below-charge|relations|2.1|A generation takes more than the cost in its result.
transfer-id-of-the-second|relations|2.1|Transfers of the same second have the same transaction_id.
history-amount-with-fee|relations|2.1|A send is listed with amount and fee together.
memo-cut|relations|2.1|The memo of a transfer result is cut to 16 letters.
new-balance-before-stake|relations|2.1|new_balance has what was available before the stake.
stake-unlock-a-day-late|relations|2.1|unlock_date of a stake is a day after start_date plus duration_days.
later-stake-unlocks-with-first|relations|2.1|The balance unlocks all on the day of the first stake.
available-date-today|relations|3|available_date is the day of the request.
total-of-page|relations|4.1|total of the transactions is the number on the page.
offset-counts-pages|relations|4.1|offset counts pages of limit entries.
verified-counts-all|relations|2.1|total_verified counts all proofs.
stream-not-counted|relations|2.1|A stream is not counted in requests_total.
prompt-counted-as-generated|relations|2.1|tokens_generated of the metrics counts the prompt.
counted-as-asked|relations|2.1|tokens_generated counts max_tokens of a generation that ended early.
metrics-timestamp-cached|relations|2.1|The timestamp of the metrics stays while the figures change.
verify-blind-to-hashes|relations|4.1|is_working is true while the models have different hashes.
stop-in-any-case|relations|4.1|A stop sequence ends the text in any letter case.
stop-only-at-token-end|relations|4.1|The text goes on behind a stop sequence to the end of its token.
stop-ignored-in-stream|relations|4.1|A stream does not end at a stop sequence.
updated-without-section|relations|4.1|updated names keys without their section.
last-token-not-streamed|relations|6|The last token is not streamed.
streamed-tokens-trimmed|relations|6|Streamed tokens lack their white space.
stream-prompt-tokens-zero|relations|6|The usage of a stream counts no prompt.
final-event-counted|relations|6|The usage of a stream counts the final event as a token.
index-from-one|relations|6|The index of token events begins with 1.
final-token-empty|fields|6|The token of the final event is empty.
final-without-usage|fields|6|The final event lacks usage.
openai-done-line|relations|6|A line data: [DONE] follows the final event.
events-without-blank-line|relations|6|No blank line stands between events.
stream-as-json-type|relations|6|The stream has the type application/json.
stream-without-final|effects|6|A stream has no final event.
network-hash-of-parent|relations|2.2|The network identity has the hash of the block before.
inference-other-chain-id|relations|2.2|The inference information names another chain.
checkpoint-of-earlier-round|relations|4.2|The checkpoint is not that of the newest update.
blocks-with-few-transactions-left-out|relations|4.2|Blocks with few transactions are left out of the list.
training-before-ignored|relations|4.2|before of the training history is ignored.
key-parity-ignored|relations|4.2|Keys that begin with 02 and 03 share an account.
transaction-hash-is-request-id|relations|2.2|The hash of a transaction is its request id.
genesis-digest-of-other-dataset|relations|4.2|The genesis names another digest than that of the dataset.
artifact-trailing-newline|relations|4.2|The content of an artifact has a further line end.
rpc-height-ignored|relations|4.2|POST /rpc gives the newest block for every height.
validator-owner-null|fields|2.2|owner of a validator is null.
completed-without-response|fields|2.2|The response of a completed request is null.
expired-without-refund|fields|2.2|The refund of an expired request is null.
dht-responder-id-random|relations|4.3|The responder has another DHT id in each answer.
dht-sorted-by-difference|relations|4.3|Closest nodes are chosen by difference instead of XOR.
dht-buckets-by-first-byte|relations|4.3|Of nodes whose ids begin alike only four are kept.
dht-changed-address-listed-twice|relations|4.3|A node whose address has changed is listed twice.
dht-lists-without-address|relations|2.3|A node that named no address is listed without one.
dht-key-cut|relations|4.3|Values of keys with the same first 8 bytes overwrite one another.
value-search-without-nodes|relations|4.3|An unsuccessful DHTFindValue lists no nodes.
min-version-ignored|relations|4.3|A checkpoint is returned that is older than min_version.
weights-always-all|relations|2.3|Every range gives the weights of all layers.
only-first-sequence-computed|relations|2.3|Only the first sequence of a batch is computed.
hidden-states-instead-of-logits|relations|2.3|The last shard answers with hidden states and is_final false.
training-pass-without-loss|relations|2.3|A training pass has no loss.
gradient-a-value-short|relations|2.3|grad_output of gradients that go back lacks a value.
gradients-to-http-port|numbers|1|Gradients go to the HTTP port of the previous node.
gradients-again-without-pause|effects|7.3|After UNAVAILABLE gradients are sent again at once.
gradients-again-after-not-found|effects|7.3|After NOT_FOUND gradients are sent again.
round-grows-with-refusals|relations|2.3|Each refused gradient names another round.
route-send-called-transfer|routes|4.1|POST /wallet/send is called /wallet/transfer.
route-proofs-under-wallet|routes|4.1|GET /proofs is under /wallet.
route-verify-under-v1|routes|4.1|The quick verification is under /api/v1.
route-stake-by-put|routes|4.1|A stake is made by PUT.
route-config-by-put|routes|4.1|The configuration is changed by PUT instead of PATCH.
route-layers-missing|routes|4.1|GET /layers is missing.
route-prefix-v1-only|routes|9|The node API is under /v1 instead of /api/v1.
stream-by-default|routes|4.1|Without stream the answer is a stream.
chunked-body-ignored|routes|4.1|A body that is sent in chunks is not read.
charset-refused|routes|4.1|A body with a charset beside its media type is refused.
query-first-parameter-only|routes|4.1|Only the first parameter of a query is read.
query-not-decoded|routes|4.1|Percent encoding in a query is not decoded.
route-checkpoint-without-suffix|routes|4.2|The checkpoint is at /api/model/checkpoint.
route-block-by-query|routes|4.2|A block is at /api/block?height=.
route-artifacts-without-algorithm|routes|4.2|Artifacts are at /artifacts/<digest>.
route-work-result-missing|routes|4.2|POST /work/result is missing.
registration-404|routes|4.2|The old registration endpoints answer 404.
login-redirects-to-root|routes|4.2|Old login paths redirect to / instead of /join.
reference-delete-works|routes|9|DELETE removes a view of the reference chain.
rpc-jobs-missing|routes|4.2|Of the query paths /job and /jobs only the first is served.
rpc-height-needed|routes|4.2|POST /rpc does not serve block without a height.
op-store-renamed|routes|4.3|DHTStore is called DHTStoreValue.
op-swarm-status-missing|routes|4.3|GetSwarmStatus is missing.
op-stream-inference-one-way|routes|4.3|StreamInference takes one message only.
op-gossip-transaction-unimplemented|routes|4.3|GossipTransaction ends with UNIMPLEMENTED.
grpc-service-in-other-package|routes|4.3|The service is sixth.NodeService.
grpc-port-plus-one|routes|1|gRPC is served at the HTTP port plus 1.
grpc-unknown-field-refused|routes|4.3|A message with a field that the document does not have is refused.
TABLE
