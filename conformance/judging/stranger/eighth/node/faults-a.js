// Faults of the kinds effects, fields, guards and limits.
export const effects = `
native-refund-lost | effects | 3 | an expired request is not refunded to its account
counted-one-at-a-time | effects | 2.1 | of generations at the same time only one is counted
gradients-retried-not-found | effects | 7.3 | gradients that were answered with NOT_FOUND are sent again
gradients-no-pause | effects | 7.3 | gradients that were answered with UNAVAILABLE are sent again without a pause
send-listed-twice | effects | 2.1 | a transfer to another account is twice in the sender's history
send-listed-late | effects | 2.1 | a transfer is in the transaction list only 8 seconds after its success
stranger-transfer-unlisted | effects | 4.1 | a transfer to an address that nobody uses is not listed
self-transfer-doubles | effects | 2.1 | a transfer to oneself adds its amount to the balance
transfers-race | effects | 2.1 | of transfers at the same time only one is taken from the balance
stake-also-pending | effects | 2.1 | what is staked is pending as well
second-stake-replaces | effects | 2.1 | a second stake replaces what was staked before
later-stake-shortens | effects | 2.1 | a shorter second stake unlocks all before the first stake's date
stake-caps-days | effects | 4.1 | a stake is locked for 30 days at most
unstake-available-at-once | effects | 3 | unstaked money is available before its cooldown has passed
unstake-replaces-pending | effects | 3 | a second unstake replaces what is pending
charge-first-account | effects | 2.1 | generations of the second account are charged to the first
charge-never | effects | 2.1 | a generation has a cost and takes nothing
charge-stream-tenfold | effects | 2.1 | a stream costs ten times what its tokens cost
stop-only-first | effects | 4.1 | only the first of several stop sequences ends the text
stop-ignored-in-stream | effects | 4.1 | a stream does not end at a stop sequence
stop-within-token-only | effects | 4.1 | a stop sequence that spans two tokens is missed
stop-any-case | effects | 4.1 | a stop sequence in other letters ends the text
stream-not-counted | effects | 2.1 | streams are missing in requests_total
stream-tokens-counted-twice | effects | 2.1 | the tokens of a stream are counted twice
learning-rate-not-stored | effects | 4.1 | a change of the learning rate is reported and not made
config-replaces-section | effects | 4.1 | keys of a section that were not sent return to defaults
config-changes-race | effects | 4.1 | of changes at the same time one is lost
config-change-fades | effects | 4.1 | a change is undone a little more than a second later
eight-values-kept | effects | 4.3 | the ninth stored value drives out the first
gradients-sent-twice | effects | 4.3 | gradients go back a second time after they were taken
sender-url-of-first | effects | 4.3 | all gradients go back to the sender of the first pass
backward-refusal-forgets | effects | 4.3 | after wrong gradients for a pass the right ones are refused
native-never-completes | effects | 3 | a pending request is never completed
native-nonce-stays | effects | 2.2 | an accepted request leaves the next nonce as it is
`;
export const fields = `
training-without-loss | fields | 2.3 | a pass with labels returns no loss
version-missing | fields | 2.1 | the status has no version
rpc-calls-null | fields | 2.1 | network.rpc_calls is null
steps-per-hour-fraction | fields | 2.1 | steps_per_hour has a fraction
health-storage-missing | fields | 2.1 | the health report has no check of the storage
health-checks-booleans | fields | 2.1 | the health checks are bools instead of strings
text-renamed | fields | 2.1 | the text of a result is called output
timing-missing | fields | 2.1 | a result has no timing
pending-null-when-zero | fields | 2.1 | balances.pending is null where nothing is pending
staking-missing-without-stake | fields | 2.1 | the balance of an account without a stake has no staking
transaction-id-renamed | fields | 2.1 | a transfer result calls its transaction_id id
reward-details-missing | fields | 2.1 | reward entries have no details
cooldown-missing | fields | 2.1 | an unstake result has no cooldown_days
network-parameters-number | fields | 2.1 | architecture.parameters is a number
shards-count | fields | 2.1 | data_shards_covered is a count instead of an array
proofs-layer-null | fields | 2.1 | the layer of proofs that are not verified is null
restart-required-missing | fields | 4.1 | the answer to a change has no restart_required
verify-not-working-without-action | fields | 4.1 | is_working is false and there is no action
done-without-usage | fields | 6 | the final event has no usage
history-total-missing | fields | 4.1 | the transaction list has no total
supply-number | fields | 2.2 | the supply of the network is a JSON number
account-number-atoms | fields | 2.2 | the atoms of an account are a JSON number
account-nonce-missing | fields | 4.2 | an account has no next nonce
validator-bond-null | fields | 2.2 | the bond of validators is null
completed-response-null | fields | 2.2 | the response of completed requests is null
responder-without-address | fields | 2.3 | the responder of the DHT has no address
request-id-missing | fields | 2.3 | the answer to a pass has no request_id
logits-shape-missing | fields | 2.3 | logits come without their shape
`;
export const guards = `
open-peers | guards | 4.1 | the peers are listed without a token
missing-token-served | guards | 5 | reading routes serve requests without a header
empty-bearer-served | guards | 5 | the scheme Bearer with no token is served
unguarded-stream | guards | 5 | a stream is served without a valid token
token-in-query | guards | 5 | an access_token in the query replaces the bearer token
any-scheme | guards | 5 | a token is accepted with any scheme
bare-token | guards | 5 | a token is accepted without the word Bearer
token-prefix | guards | 5 | a token that only begins with a valid one is accepted
token-case | guards | 5 | tokens are compared without regard to case
expired-reads | guards | 5 | an expired token still reads
expired-writes | guards | 5 | an expired token still changes things
expired-other-code | guards | 5 | an expired token gets the code TOKEN_EXPIRED
unauthorized-403 | guards | 7.1 | an unknown token gets 403
missing-token-400 | guards | 5 | a request without a header gets 400
lockout-after-refusals | guards | 5 | after three wrong tokens a valid one is refused once
connection-keeps-account | guards | 5 | a connection remembers the account of its last valid token
connection-sticks-refused | guards | 5 | a connection on which a token was refused refuses valid ones
connection-first-account | guards | 5 | later tokens on a connection read the account of the first
body-before-token | guards | 5 | a bad body is refused before a bad token
query-before-token | guards | 5 | a bad query is refused before a bad token
config-patch-unauthorised-acts | guards | 5 | a change of batch_size that is refused for its token is made
unknown-token-guest | guards | 5 | an unknown token reads a guest's balance
metrics-guarded | guards | 4.1 | the metrics need a token
training-guarded | guards | 4.1 | the training routes need a token
history-shared | guards | 5 | the history shows the entries of all accounts
work-unsigned-accepted | guards | 4.2 | worker messages that nobody signed are taken
work-result-unchecked | guards | 5 | the signature of /work/result is not checked
native-signature-unchecked | guards | 5 | the signature of a broadcast request is not checked
rpc-opens-net-info | guards | 4.2 | /rpc serves net_info of the consensus engine
rpc-opens-unsafe-flush | guards | 4.2 | /rpc serves unsafe_flush_mempool
`;
export const limits = `
one-graph-kept | limits | 4.3 | the graph of a pass is lost as soon as there is another pass
training-oldest-first | limits | 4.2 | a short page of the training history has the oldest updates
default-max-tokens-128 | limits | 4.1 | without max_tokens up to 128 tokens are generated
one-token-too-many | limits | 4.1 | one token more than max_tokens is generated
stream-ignores-max-tokens | limits | 6 | a stream has at least 100 tokens whatever max_tokens is
prompt-counts-towards-max | limits | 4.1 | the tokens of the prompt lessen max_tokens
temperature-zero-refused | limits | 4.1 | temperature 0 is refused
temperature-two-refused | limits | 8 | temperature 2 is refused
temperature-no-maximum | limits | 8 | a temperature above 2 is accepted
top-k-above-vocabulary-refused | limits | 4.1 | a top_k above 32 is refused
max-tokens-zero-default | limits | 4.1 | max_tokens 0 generates 100 tokens
stop-empty-array-refused | limits | 4.1 | an empty array of stop sequences is refused
limit-one-more | limits | 4.1 | a page of transactions has one entry more than its limit
limit-zero-all | limits | 4.1 | limit 0 lists all transactions
limit-not-repeated | limits | 4.1 | the transaction list repeats 20 instead of the limit
offset-as-page | limits | 4.1 | offset is read as the number of a page
offset-ignored-without-limit | limits | 4.1 | offset is ignored where no limit is given
offset-off-by-one | limits | 4.1 | a page begins one entry before its offset
proofs-limit-ignored | limits | 4.1 | the limit of the proofs is ignored
proofs-limit-remembered | limits | 4.1 | without a limit the proofs use the limit that was asked for before
blocks-before-is-after | limits | 4.2 | before lists the blocks above the height
blocks-skip-at-bound | limits | 4.2 | a page of blocks leaves out the newest one below its bound
training-before-is-height | limits | 4.2 | before of the training history is read as a height
training-limit-ignored | limits | 4.2 | the limit of the training history is ignored
finished-jobs-64 | limits | 8 | only the latest 64 finished requests can be looked up
grpc-four-mib | limits | 8 | a gRPC message above 4 MiB is refused
values-cut-at-255 | limits | 4.3 | stored values are cut after 255 letters
stream-takes-one-message | limits | 4.3 | StreamInference takes one message only
short-ids-learnt | limits | 8 | the DHT lists nodes whose ID is not 20 bytes long
gradients-ten-attempts | limits | 8 | gradients are sent up to ten times
gradients-without-deadline | limits | 8 | the call with gradients has no deadline
`;
