package node;

import java.util.LinkedHashMap;
import java.util.Map;

/** id | kind | section | what is broken. */
final class Faults {
    static final String TABLE = """
            status-layers-doubles | fields | 2.1 | Layer indices in the node status are written 4.0, 5.0 as Gson writes doubles.
            status-layers-differ | relations | 2.1 | The node status leaves out the last layer that /layers lists.
            uptime-iso-duration | fields | 2.1 | uptime_seconds is a Duration string such as PT12S.
            status-peer-count-off | relations | 2.1 | peer_count is one more than the total of /peers.
            status-training-enabled-stale | effects | 4.1 | The status goes on showing training.enabled true after a PATCH set it to false.
            status-node-id-signed | relations | 2.1 | The node id of the status is built with Integer.toHexString of signed bytes and differs from the other routes.
            status-ram-float | fields | 2.1 | ram_used is not an int.
            metrics-stream-not-counted | effects | 2.1 | Streamed requests are left out of requests_total.
            metrics-p99-below-avg | relations | 2.1 | p99_latency_ms is half of avg_latency_ms.
            metrics-timestamp-local | fields | 2.1 | The metrics timestamp is a LocalDateTime of another time zone, without a zone.
            metrics-camel-case | fields | 2.1 | gradients_submitted is written gradientsSubmitted.
            health-checks-bools | fields | 2.1 | The checks of /health are bools.
            health-peers-missing | fields | 2.1 | The check peers is missing.
            peer-address-slash | fields | 2.1 | Peer addresses begin with a slash, as InetAddress prints them.
            peer-layers-null | fields | 2.1 | layers is null for peers with the role driver.
            peer-since-java | fields | 2.1 | connected_since is a java.util.Date in words.
            peers-map | fields | 4.1 | peers is an object keyed by id instead of an array.
            layer-index-from-zero | relations | 2.1 | /layers counts from 0 although the node holds layers 4 to 7.
            layers-total-is-mine | relations | 4.1 | total_layers is the number of layers held here, not of the model.
            network-step-behind | relations | 2.1 | global_step of /network differs from global_steps of the training verification.
            json-as-text-plain | routes | 4 | GET /network has the media type text/plain.
            global-agreement-percent | fields | 2.1 | hash_agreement_rate is 100.0 where 1.0 means 100%.
            global-sync-int-division | relations | 2.1 | sync_success_rate is an integer division and gives 0.
            global-is-getter-names | fields | 2.1 | is_converging is named converging, as bean mappers do.
            global-verified-contradicts | relations | 2.1 | training_verified is false although all indicators are healthy and verify says it works.
            global-tokens-overflow | fields | 2.1 | global_tokens has overflowed an int and is negative.
            verify-agreement-unscaled | relations | 4.1 | hash_agreement says 1.0% for a rate of 1.0.
            verify-global-loss-string | fields | 4.1 | global_loss is a string with a decimal comma.
            verify-not-working-with-metrics | fields | 4.1 | is_working is false in the success shape, without action.
            training-under-v1 | routes | 1 | The training-verification routes are below /api/v1.
            proofs-limit-ignored | limits | 4.1 | limit of /proofs is ignored.
            config-grpc-port-default | relations | 1 | grpc_port is always 9000.
            config-resources-not-applied | effects | 4.1 | Changes below resources are reported but not made.
            config-siblings-reset | effects | 4.1 | Changing batch_size sets the other training numbers to zero.
            config-updated-leaf-names | fields | 4.1 | updated holds batch_size instead of training.batch_size.
            config-learning-rate-not-reported | relations | 4.1 | updated leaves out training.learning_rate.
            config-restart-missing-false | fields | 4.1 | restart_required is missing when it would be false.
            config-int-from-string | refusals | 4.1 | A string is accepted for batch_size.
            config-learning-rate-float32 | effects | 4.1 | A learning rate goes through a float and comes back as 0.0010000000474974513.
            config-put | routes | 4.1 | The configuration is changed by PUT; PATCH is 405.
            balance-total-b-off | relations | 2.1 | The second account's total leaves out its stake.
            balance-cached | effects | 4.1 | The available balance is that of the first call.
            balance-pending-null | fields | 2.1 | pending is null when nothing is pending.
            wallet-float32 | relations | 2.1 | Amounts go through a float, so larger ones come back inexact.
            staking-dates-array | fields | 2.1 | start_date is an array of year, month, day.
            staking-unlock-off-by-one | relations | 2.1 | unlock_date is one day short of the duration.
            send-fee-not-checked | refusals | 7.1 | The fee is not counted when the balance is checked, and the balance becomes negative.
            send-exact-balance-refused | limits | 7.1 | A transfer that with its fee takes exactly the whole balance is refused with 402.
            send-race | effects | 4.1 | Of transfers made at the same time only some are debited.
            send-not-debited-small | effects | 4.1 | Transfers of less than one unit are not debited.
            amount-int-overflow | limits | 4.1 | Amounts above 2^31 units overflow an int, so the check of the balance is passed by some.
            amount-negative-accepted | refusals | 4.1 | Negative amounts are accepted and add to the balance.
            send-to-optional | refusals | 4.1 | A transfer without a receiver goes to some address.
            memo-html-escaped | fields | 4.1 | The memo comes back with HTML entities.
            memo-url-decoded | fields | 4.1 | A plus sign in the memo becomes a space.
            send-id-repeats | relations | 2.1 | Equal transfers get the same transaction id.
            send-timestamp-month-name | fields | 2.1 | The timestamp of a transfer is in words, as DateFormat prints it.
            send-status-capitals | fields | 3 | The status of a transfer is CONFIRMED.
            history-to-missing-new | fields | 2.1 | New send entries lack to.
            history-offset-pages | limits | 4.1 | offset counts pages instead of entries.
            history-limit-one-more | limits | 4.1 | A page has one entry more than limit.
            history-total-is-page | relations | 4.1 | total is the number of entries of the page.
            history-ids-per-page | relations | 2.1 | Ids of history entries number the page.
            history-no-memo-send | effects | 4.1 | Transfers without a memo do not appear in the history.
            history-past-end-500 | refusals | 4.1 | An offset behind the last entry ends in 500.
            stake-replaces | effects | 4.1 | A second stake replaces the first, which is lost.
            stake-unlock-30-only | relations | 2.1 | unlock_date is at most 30 days away whatever the duration.
            stake-duration-byte | relations | 2.1 | duration_days is kept in a byte: 200 becomes -56.
            stake-local-date | relations | 2.1 | start_date is taken in a time zone where it is tomorrow.
            stake-dates-week-year | fields | 2 | start_date is formatted with YYYY-MM-DD, whose last part is the day of the year.
            stake-new-balance-before | relations | 2.1 | new_balance is the balance before the stake.
            stake-against-total | refusals | 7.1 | A stake is checked against the total balance instead of the available one.
            unstake-not-moved | effects | 3 | Unstaking succeeds and changes nothing.
            unstake-available-at-once | effects | 3 | An unstaked amount is available at once, without the cooldown.
            unstake-date-off | relations | 2.1 | available_date is one day later than cooldown_days says.
            insufficient-403-unstake | refusals | 7.1 | Too large an unstake is refused with 403 instead of 402.
            insufficient-details-strings | refusals | 7.1 | required and available are strings.
            insufficient-available-stale | relations | 7.1 | available of the 402 is always 5000.
            unauthorized-403 | refusals | 7.1 | Refused tokens get status 403.
            unauthorized-html-wallet | refusals | 7.1 | Wallet routes answer 401 with Jetty's HTML page.
            error-message-null | refusals | 7.1 | message of errors other than 401 is null.
            unknown-route-html | refusals | 7.1 | Unknown node API routes get Jetty's HTML page.
            malformed-json-500 | refusals | 4 | A body that is no JSON ends in 500.
            validation-200 | refusals | 7.1 | Refused input is answered with 200 and an error object.
            rate-limited-ms | refusals | 7.1 | retry_after is in milliseconds.
            rate-limited-float | refusals | 7.1 | retry_after is a double.
            auth-patch-config-open | guards | 4.1 | PATCH /config works without a token.
            auth-missing-400 | guards | 7.1 | A missing header gets 400 instead of 401.
            auth-last-session | guards | 5 | Without a valid header the caller is taken for the last one that had one.
            auth-token-prefix | guards | 5 | A token that begins with a valid one is accepted.
            auth-header-cache | guards | 5 | On a kept connection a token in capitals is taken for the earlier one in small letters, by Jetty's header cache.
            auth-token-ignore-case | guards | 5 | Tokens are compared without regard to case.
            auth-inference-any-token | guards | 5 | POST /inference accepts any bearer token.
            auth-expired-send | guards | 7.1 | An expired token may still send.
            auth-unknown-500 | guards | 7.1 | An unknown token ends in 500.
            auth-second-account-as-first | guards | 5 | The history shows the first account's entries to everyone.
            auth-any-scheme | guards | 5 | A Basic or other scheme with the token is accepted.
            body-latin1 | effects | 4 | Bodies are read as ISO 8859-1, so texts beyond ASCII come back garbled.
            response-latin1 | effects | 4 | Answers are encoded in ISO 8859-1 although they are JSON.
            body-limit-8k | limits | 4.1 | Bodies of more than 8 KiB are refused.
            content-type-exact | refusals | 5 | application/json with a charset is refused with 415.
            max-tokens-default-16 | limits | 4.1 | max_tokens is 16 when it is not given.
            max-tokens-plus-one | limits | 4.1 | One token more than max_tokens is generated.
            max-tokens-string-accepted | refusals | 4.1 | max_tokens as a string is accepted.
            temperature-unbounded | refusals | 8 | Temperatures above 2 are accepted.
            temperature-negative-accepted | refusals | 8 | Negative temperatures are accepted.
            temperature-two-refused | limits | 8 | A temperature of exactly 2 is refused.
            top-p-one-refused | limits | 4.1 | top_p 1.0 is refused when it is given.
            stop-ignored-stream | effects | 4.1 | Stop sequences have no effect in streams.
            stop-first-only | effects | 4.1 | Only the first stop sequence has an effect.
            stop-leaks | effects | 4.1 | The stop sequences of one request go on to hold for later ones.
            stream-string-true | refusals | 4.1 | stream as a string is accepted.
            prompt-optional | refusals | 4.1 | A request without a prompt is answered.
            prompt-limit-255 | limits | 4.1 | Prompts of more than 255 characters are refused.
            usage-missing-length | fields | 2.1 | usage is missing when the text was cut at max_tokens.
            tokens-generated-includes-prompt | relations | 2.1 | tokens_generated counts the prompt too.
            finish-null-length | fields | 2.1 | finish_reason is null when the text was cut at max_tokens.
            cost-differs | relations | 2.1 | cost.amount is twice what is taken from the balance.
            timing-strings | fields | 2.1 | The timing values are strings with units.
            inference-b-not-charged | effects | 2.1 | The second account is not charged for inference.
            stream-not-charged | effects | 2.1 | Streamed inference is not charged.
            inference-charges-max | effects | 2.1 | The charge is for max_tokens, though cost is for the tokens generated.
            concurrent-refused | effects | 4.1 | A second inference at the same time ends in 500.
            text-url-encoded-plus | fields | 2.1 | Spaces of the text are plus signs.
            sse-media-type-json | routes | 6 | The stream has the media type application/json.
            sse-single-newline | fields | 6 | Events are not separated by blank lines.
            sse-index-wraps-10 | fields | 6 | index begins anew after 9.
            sse-tokens-trimmed | relations | 6 | Tokens lack their spaces, so they do not join to the text.
            sse-pretty-json | fields | 6 | The JSON of token events runs over several lines of which only the first has data:.
            sse-stops-at-20 | effects | 6 | Streams end after 20 tokens, with a usage that counts more.
            sse-plain-done | fields | 6 | The final event is a bare [DONE], without JSON.
            sse-usage-off-by-one | relations | 6 | usage of the final event counts one token too many.
            sse-last-token-lost | effects | 6 | The last token event is not sent.
            sse-not-closed | effects | 6 | The stream stays open after the final event.
            healthz-200-not-ready | refusals | 7.2 | /healthz answers 200 while it says that the node is catching up.
            chain-stalls | effects | 7.2 | Blocks stop after a few and /healthz goes on answering 200.
            network-height-differs-from-pair | relations | 2.2 | height and the height of the observed pair differ by two.
            network-round-differs | relations | 2.2 | training_round is five behind the training history.
            genesis-hash-differs | relations | 2.2 | genesis_hash is not that of the published genesis.
            atoms-as-numbers | fields | 2.2 | Monetary fields are JSON numbers.
            atoms-scientific | fields | 2.2 | Monetary fields are doubles in strings, 2.0E9.
            supply-int-overflow | fields | 2.2 | The total supply has gone through an int.
            checkpoint-stale-after-update | effects | 4.2 | The checkpoint stays behind after an accepted worker result.
            model-training-root-differs | relations | 2.2 | The training root of the model is that of the round before.
            artifact-utf8-mangled | relations | 4.2 | Artifacts go through a String and come out with other bytes.
            dataset-not-genesis-bound | relations | 4.2 | The data set is not the one the genesis binds.
            training-before-is-height | limits | 4.2 | before of /api/training is taken as a height.
            training-loss-chain-broken | relations | 2.2 | loss_before is the same as loss_after of the same update.
            blocks-before-inclusive | limits | 4.2 | before of /api/blocks returns the named height itself, so pages overlap.
            blocks-limit-one-less | limits | 4.2 | A page of blocks has one fewer than limit.
            blocks-skip-empty | effects | 4.2 | Empty blocks are missing from /api/blocks.
            blocks-recent-is-first | effects | 4.2 | /api/blocks lists the oldest blocks instead of the recent ones.
            block-future-latest | refusals | 4.2 | A height that is not yet committed returns the newest block.
            block-tx-undecoded | fields | 2.2 | The transactions of a single block are not decoded.
            block-single-hash-differs | relations | 2.2 | The hash of a block differs between list and single block.
            account-total-without-locked | relations | 2.2 | The total liquid balance leaves out the locked budget.
            account-nonce-last-used | effects | 2.2 | next_nonce is the last one used.
            account-balance-int32 | fields | 2.2 | Balances above 2^31 atoms wrap around as an int does.
            inference-serving-root-is-training | relations | 2.2 | The serving root of the service is the newest training root.
            queue-size-includes-finished | relations | 2.2 | The queue size counts finished jobs.
            response-changes | relations | 3 | The text of a completed response differs each time it is read.
            expiry-never | effects | 3 | Requests without a response never expire.
            expiry-ten-late | effects | 3 | Requests expire ten blocks after their expiry height.
            refund-not-paid | effects | 3 | The refund record exists but the money does not come back.
            native-charged-twice | effects | 2.2 | The price is taken twice from the available balance.
            native-lock-kept | effects | 2.2 | The locked budget stays locked after completion.
            request-id-is-tx-hash | relations | 2.2 | The application request id is the transaction hash.
            request-unknown-200 | refusals | 4.2 | An unknown request id is shown as pending.
            broadcast-never-in-block | effects | 4.2 | Broadcast transactions appear in no block.
            jobs-retain-16 | limits | 8 | Only the latest 16 finished jobs can be looked up.
            tx-signature-unchecked | guards | 5 | Forged signatures are accepted.
            tx-chain-id-unchecked | guards | 2.2 | Transactions for another chain are accepted.
            tx-nonce-reuse | guards | 2.2 | Used nonces are accepted.
            tx-expiry-unchecked | refusals | 2.2 | A request whose expiry has passed is accepted.
            tx-limit-1k | limits | 8 | Transactions of more than 1 KiB are refused.
            rpc-private-key-exposed | guards | 4.2 | A method returns a private key.
            rpc-block-hash-differs | relations | 4.2 | block of /rpc has another hash than /api/block.
            rpc-jobs-path-missing | routes | 4.2 | /jobs is no query path.
            work-signature-unchecked | guards | 5 | Worker messages with forged signatures are accepted.
            work-attempts-not-counted | effects | 4.2 | Polling does not lower the remaining attempts.
            work-result-not-on-chain | effects | 4.2 | An accepted result makes no update.
            work-result-moved | routes | 4.2 | Results go to /work/submit.
            legacy-register-works | refusals | 4.2 | Legacy registration gives out an API key.
            signup-redirects-to-login | routes | 4.2 | Old signup paths redirect to /login.
            reference-writable | guards | 9 | A view of the earlier chain accepts POST.
            grpc-4-mib-limit | limits | 8 | Messages of more than 4 MiB, the default of grpc-java, are refused.
            grpc-port-plus-one | routes | 1 | gRPC is on the HTTP port plus 1.
            grpc-not-held-unknown | numbers | 7.3 | A layer that is not held gives UNKNOWN.
            grpc-invalid-as-internal | numbers | 7.3 | Bad requests give INTERNAL.
            grpc-needs-token | guards | 5 | gRPC calls without a token are UNAUTHENTICATED.
            shard-unheld-served | refusals | 7.3 | A shard that is not held is answered with another one.
            is-final-field-8 | numbers | 2.3 | is_final and logits have exchanged their field numbers.
            logits-last-position-only | relations | 2.3 | logits hold the last position only, though the shape names all.
            loss-as-float32 | numbers | 2.3 | loss is encoded as a float.
            loss-sum-not-mean | relations | 2.3 | loss grows with the number of labels.
            tensor-big-endian-out | numbers | 2.3 | Tensors are returned in Java's byte order, unlike those received.
            first-batch-row-only | effects | 4.3 | Rows after the first of a batch are taken as zeros.
            output-from-previous-call | effects | 4.3 | A forward pass returns the result of the one before it.
            past-ignored | effects | 2.3 | past_key_values have no effect.
            cache-not-returned | effects | 2.3 | use_cache returns no past_key_values.
            shape-length-unchecked | refusals | 7.3 | A shape that does not fit the bytes is accepted.
            backward-first-shard-not-propagated | effects | 4.3 | Only the last shard sends its gradients on.
            backward-grad-unchanged | effects | 4.3 | The gradient is passed on without going through the layers.
            backward-unknown-success | refusals | 4.3 | A backward pass without a forward pass succeeds.
            backward-session-lost | fields | 2.3 | The propagated call has no session_id.
            graph-key-without-session | effects | 2.3 | Passes of different sessions with the same request id are mixed up.
            graph-one-only | effects | 4.3 | A forward pass makes the node forget all earlier ones.
            weights-range-half-open | limits | 2.3 | A range of layers leaves out its last one.
            weights-unheld-empty | refusals | 7.3 | Layers that are not held give an empty answer.
            checkpoint-min-version-exclusive | limits | 4.3 | min_version equal to the version is refused.
            checkpoint-hash-ignored | effects | 4.3 | model_hash has no effect.
            checkpoint-not-compressed | fields | 2.3 | checkpoint_data is not an LZ4 frame.
            checkpoint-version-differs | relations | 2.3 | The version differs from that of the checkpoint info.
            checkpoint-failure-silent | fields | 7.3 | A failed GetCheckpoint has no error_message.
            gossip-hash-unchecked | refusals | 2.3 | A gradient for another model is accepted.
            gossip-round-echoed | relations | 2.3 | current_round is the sender's round.
            gossip-round-zigzag | numbers | 2.3 | current_round is encoded as sint32.
            gossip-large-refused | limits | 8 | Gradients above 1 MiB are not accepted.
            dht-id-sha256 | fields | 8 | The node id is 32 bytes long.
            dht-port-string | numbers | 2.3 | port is encoded as a string.
            dht-signed-distance | relations | 4.3 | Distances are compared as signed bytes, so the K nodes are not the closest.
            dht-nodes-field-3 | numbers | 2.3 | nodes of DHTFindNodeResponse have number 3.
            dht-key-as-utf8 | effects | 4.3 | Keys go through a String, so different binary keys are the same.
            dht-store-no-overwrite | effects | 4.3 | A second store of a key leaves the first value.
            dht-value-limit-32 | limits | 2.3 | Values of more than 32 bytes are refused.
            dht-missing-not-found-status | numbers | 4.3 | A missing key gives the status NOT_FOUND.
            dht-missing-no-nodes | effects | 4.3 | A missing key returns no nodes.
            dht-key-length-unchecked | refusals | 8 | Ids and keys of any length are accepted.
            gossip-proof-unimplemented | routes | 4.3 | GossipProof is UNIMPLEMENTED.
            """;

    private Faults() {}

    /** Ids and their kinds, in the order of the table. */
    static Map<String, String> all() {
        Map<String, String> m = new LinkedHashMap<>();
        (TABLE + Faults2.TABLE).lines().filter(l -> l.contains("|")).forEach(l -> {
            String[] f = l.split("\\|");
            m.put(f[0].trim(), f[1].trim());
        });
        return m;
    }
}
