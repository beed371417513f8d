package node;

/** id | what is unusual though permitted. */
final class Peculiarities {
    static final String TABLE = """
            other-currency | The currency code is ZED-9.
            nothing-staked | No account has anything staked; staking shows zeros.
            validation-422 | Refused input gets 422 VALIDATION_ERROR instead of 400.
            time-offset | Timestamps end in +00:00 and have no fraction.
            keys-sorted | Object keys come in reverse alphabetical order.
            extra-fields | Every JSON object answered has an additional field.
            pretty-json | JSON is indented over several lines.
            ascii-json | Characters beyond ASCII are written as backslash-u escapes.
            exponent-numbers | Decimals are written with an exponent, 12.5E0.
            slow-answers | Every answer takes 700 ms longer.
            chunked | Bodies are sent in chunks of 50 bytes, without Content-Length.
            no-keep-alive | Connections are closed after each answer.
            limit-refused | A limit above the maximum is refused instead of reduced.
            page-max-10 | Pages have at most 10 entries, 5 by default.
            rate-limit-low | More than 20 inference calls in 5 seconds are refused with 429.
            min-stake-10 | The smallest stake is 10 units.
            fee-free | Transfers cost no fee.
            inference-free | Inference costs nothing.
            transfer-submitted | The status of a transfer is submitted.
            max-tokens-512 | max_tokens above 512 is refused.
            unknown-parameter-refused | Inference bodies with unknown parameters are refused.
            finish-reasons | finish_reason is eos or stop_sequence where others say stop.
            sse-crlf | Lines of the event stream end in CR LF.
            sse-comments | The event stream begins with a comment.
            tracker-read-only | tracker_url cannot be changed: 409 READ_ONLY.
            unknown-config-ignored | Unknown configuration keys are ignored and not reported.
            status-syncing | The status is syncing.
            diverged | Hash agreement is 75%: the training verification shows its problem shape.
            healthz-204 | Readiness is 204 without a body.
            unknown-account-404 | An account that the chain does not know is 404.
            indexer-lags | The index of training updates is nine blocks behind and says so.
            slow-blocks | Idle blocks come every three seconds.
            slow-provider | The provider takes 2.5 seconds.
            rpc-error-http-400 | JSON-RPC errors have HTTP status 400.
            redirect-absolute | The redirects to /join name an absolute address.
            dht-unsorted | The K closest nodes come farthest first.
            sender-required | DHT calls without a sender are INVALID_ARGUMENT.
            sequence-limit | Sequences of more than 4096 positions are RESOURCE_EXHAUSTED.
            unknown-graph-status | A backward pass without a forward pass is INVALID_ARGUMENT instead of success false.
            gossip-signature-needed | Gradients without a signature are not accepted.
            """;

    private Peculiarities() {}
}
