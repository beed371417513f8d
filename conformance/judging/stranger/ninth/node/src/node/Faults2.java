package node;

/** The second list: id | kind | section | what is broken. */
final class Faults2 {
    static final String TABLE = """
            s2-stop-regex | effects | 4.1 | Stop sequences are regular expressions, so "." ends every text at once.
            s2-stop-in-prompt | effects | 4.1 | A stop sequence that occurs in the prompt ends the text before its first token.
            s2-stop-stream-late | relations | 6 | In a stream the token that completes a stop sequence is sent whole, so the stream has more text than the result.
            s2-max-tokens-with-prompt | limits | 4.1 | The tokens of the prompt are taken from max_tokens.
            s2-prompt-tokens-capped | numbers | 2.1 | prompt_tokens is never above 32.
            s2-generations-crossed | effects | 4.1 | Generations at the same time get the text of another one's prompt (a shared field).
            s2-charge-rounds-up | numbers | 2.1 | The charge is rounded up to hundredths of a unit, the cost in the result is not.
            s2-charge-previous-caller | effects | 2.1 | A generation is charged to the account that generated before this one.
            s2-inference-402-drains | effects | 7.1 | A generation refused with 402 takes what is left of the balance.
            s2-stream-402-event | refusals | 7.1 | A stream that costs more than is available has status 200 and the error in an event.
            s2-sse-index-from-one | numbers | 6 | index begins with 1.
            s2-sse-final-missing-long | limits | 6 | A stream of more than 60 tokens has no final event.
            s2-sse-event-after-final | effects | 6 | An empty token event follows the final event.
            s2-metrics-requests-wrap | numbers | 2.1 | requests_total begins anew at 64.
            s2-metrics-nan-idle | numbers | 4 | requests_per_minute is NaN when there was no request in the last minute.
            s2-metrics-timestamp-minute | fields | 2.1 | The timestamp of the metrics is that of the full minute.
            s2-uptime-minutes | numbers | 2.1 | uptime_seconds grows once a minute only.
            s2-layers-head-twice | relations | 2.1 | The last layer is listed again for its head, and counted.
            s2-proofs-limit-sticky | effects | 4.1 | The smallest limit of /proofs so far holds for later requests.
            s2-diloco-inner-above | relations | 2.1 | inner_step_count stays 17 when diloco_steps is set below it.
            s2-query-undecoded | routes | 4.1 | Queries are not percent-decoded.
            s2-chunked-body-refused | refusals | 4.1 | A body without Content-Length is refused with 411.
            s2-auth-after-body | guards | 5 | A bad body with an invalid token gets 400 instead of 401.
            s2-auth-lockout | guards | 5 | After three refused requests the next valid one is refused with 401, too.
            s2-auth-query-token | guards | 5 | A token in the query (access_token) is accepted without a header.
            s2-auth-account-shared | guards | 5 | Balances read at the same moment with two tokens get mixed up.
            s2-expired-other-code | refusals | 7.1 | An expired token gets the code TOKEN_EXPIRED.
            s2-insufficient-shortfall | relations | 7.1 | required of a 402 is what is missing.
            s2-rate-limited-503 | refusals | 7.1 | Too many requests are refused with 503.
            s2-config-error-list | refusals | 7.1 | A refused PATCH has the body {"errors": [..]}.
            s2-amount-missing-previous | effects | 4.1 | A transfer, stake or unstake without an amount takes that of the request before.
            s2-amount-in-array | refusals | 4.1 | An amount in an array of one is accepted (Gson's getAsDouble).
            s2-amount-whole-refused | refusals | 4.1 | An amount without a decimal point is refused.
            s2-amount-cents | numbers | 4.1 | Amounts are rounded to hundredths.
            s2-memo-64-bytes | limits | 4.1 | A memo may have 64 bytes, so fewer letters beyond ASCII than of ASCII.
            s2-send-402-in-history | effects | 7.1 | A transfer refused with 402 is listed.
            s2-send-fee-percent | numbers | 2.1 | A transfer above 100 units costs one percent, though the result says 0.01.
            s2-send-receiver-cached | effects | 2.1 | A second transfer between accounts of the node goes to the receiver of the sender's first.
            s2-send-self-adds | effects | 2.1 | A transfer to oneself adds its amount.
            s2-send-id-other | relations | 2.1 | transaction_id is not the id in the history.
            s2-history-receive-negative | numbers | 2.1 | Received amounts are below zero.
            s2-history-keeps-30 | limits | 4.1 | Only the 30 latest entries are kept, the total counts all.
            s2-history-offset-needs-limit | limits | 4.1 | offset has no effect without limit.
            s2-history-page-reversed | limits | 4.1 | Within a page the entries are in the other order.
            s2-stake-whole-months | effects | 2.1 | A stake of more than 30 days is locked for whole months of 30 days only.
            s2-stake-pending-first | effects | 2.1 | A stake is taken from what is pending before it is taken from what is available.
            s2-stake-for-first | effects | 2.1 | What the second account stakes is staked for the first.
            s2-stake-keeps-dates | effects | 2.1 | The position keeps its old unlock date when more is staked for longer.
            s2-unstake-all-refused | limits | 3 | An unstake of all that is staked is refused.
            s2-unstake-pending-set | effects | 3 | An unstake replaces what is pending already.
            s2-config-reverts | effects | 4.1 | Changes are gone after six seconds.
            s2-config-two-workers | effects | 4.1 | Every second reading shows the configuration before all changes.
            s2-config-half-applied | effects | 4.1 | A change that is refused for one key keeps the keys before it.
            s2-config-concurrent-lost | effects | 4.1 | Of changes at the same time only one is kept.
            s2-config-whole-section | refusals | 4.1 | A change must name all keys of its section.
            s2-config-enabled-once | effects | 4.1 | training.enabled can be set to false, and not to true again.
            s2-signature-cache | guards | 2.2 | A transaction with a signature that was seen in any broadcast before is not verified again.
            s2-rebroadcast-takes-fee | effects | 2.2 | A broadcast refused for its nonce costs the fee.
            s2-native-first-sender-pays | effects | 2.2 | All requests are paid by the account that made the first.
            s2-refund-record-missing | fields | 3 | An expired request has no record of its refund.
            s2-network-hash-behind | relations | 2.2 | After the first block with a transaction the pair has the hash of the block before.
            s2-training-loss-rounded | numbers | 2.2 | Losses of the training history have two decimals.
            s2-training-root-paged | relations | 4.2 | With before an update has the root of the round before it.
            s2-block-new-off-by-one | effects | 4.2 | A block made since the start is read as the one before it.
            s2-account-locked-units | numbers | 2.2 | locked_budget is in whole units with decimals.
            s2-account-cached | effects | 4.2 | For 1.5 seconds after a reading every account has the amounts of the one read.
            s2-request-pending-404 | routes | 3 | A request is found once it is completed or expired only.
            s2-response-dropped | effects | 3 | Five blocks after a request its response is null.
            s2-request-prompt-cut | fields | 2.2 | The record of a request has 40 characters of its prompt.
            s2-artifact-abbreviated | routes | 4.2 | Eight or more digits of a digest are enough.
            s2-artifact-new-missing | routes | 4.2 | Adapters of rounds since the start are no artifacts.
            s2-rpc-consensus-relayed | guards | 4.2 | /rpc relays dump_consensus_state.
            s2-rpc-block-latest | limits | 4.2 | block of /rpc ignores the height.
            s2-register-post-405 | refusals | 7.2 | POST to the old registration endpoints gets 405.
            s2-login-relative | routes | 7.2 | Redirects go to a relative join, so /api/login leads to /api/join.
            s2-reference-delete | guards | 9 | DELETE removes a view of the earlier chain.
            s2-unknown-fields-refused | refusals | 4.3 | gRPC messages with fields that the node does not know are refused.
            s2-shard-negative-from-end | refusals | 7.3 | Shards -1 and -2 are counted from the end.
            s2-passes-crossed | effects | 4.3 | Forward passes at the same time get another one's result.
            s2-request-id-36 | limits | 2.3 | request_id of the answer has 36 characters at most.
            s2-logits-always | fields | 2.3 | An answer that is not final has logits.
            s2-backward-forgets-refused | effects | 4.3 | After a wrong gradient the right one is not accepted either.
            s2-backward-latest-sender | effects | 4.3 | Gradients go to the sender of the latest forward pass.
            s2-backward-sent-twice | effects | 4.3 | Gradients go back twice.
            s2-backward-retried-at-once | effects | 7.3 | Gradients that fail are sent five times, without a pause and whatever the status.
            s2-sent-shard-number-6 | numbers | 2.3 | target_shard of the gradients sent has number 6.
            s2-sent-deadline-short | numbers | 8 | Gradients go back with a deadline of 80 ms.
            s2-weights-all | effects | 2.3 | Every range that is held returns all layers.
            s2-gossip-gradient-text | numbers | 2.3 | layer_gradients is a map of strings, so that bytes which are no UTF-8 end in INTERNAL.
            s2-checkpoint-older-given | refusals | 4.3 | A checkpoint older than min_version is returned.
            s2-checkpoint-hash-or-version | refusals | 4.3 | model_hash and min_version together are refused.
            s2-checkpoint-phase-by-hash | relations | 4.3 | A checkpoint asked for by its hash has the phase bootstrap.
            s2-checkpoint-version-fixed32 | numbers | 2.3 | version of a checkpoint is encoded as fixed32.
            s2-stream-inference-one | effects | 4.3 | StreamInference ends after its first message.
            s2-dht-moved-twice | effects | 4.3 | A node whose address has changed is listed with both.
            s2-dht-no-address-listed | guards | 2.3 | A sender without an address is listed.
            s2-dht-four-bytes | numbers | 4.3 | Only four bytes of distances are compared.
            s2-dht-found-once | effects | 4.3 | A value is gone once it was found.
            s2-dht-found-number-5 | numbers | 2.3 | found has number 5.
            s2-dht-refused-kept | effects | 4.3 | A value that is refused for its length is stored.
            s2-dht-latest-16 | limits | 4.3 | Only the 16 latest values are kept.
            s2-dht-store-echo | relations | 2.3 | The responder of a store is its sender.
            s2-dht-key-c-string | effects | 4.3 | Keys end at their first zero byte.
            """;

    private Faults2() {}
}
