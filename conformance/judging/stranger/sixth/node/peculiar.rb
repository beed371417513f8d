# encoding: utf-8
# Unusual but permitted: id => what is unusual. The switches are in the code: pec?('id').
PECULIAR = <<'TABLE'.lines.map(&:chomp).reject(&:empty?).to_h { |l| l.split('|', 2) }.freeze
p-slow-answers|Each answer takes 0.2 s longer.
p-chunked-bodies|Bodies are sent in chunks of 100 bytes.
p-connection-close|Each connection serves one request.
p-lower-case-headers|Header names in lower case.
p-extra-headers|Further headers.
p-charset|A charset beside the media types.
p-pretty-json|JSON with white space and lines.
p-escaped-json|JSON with escapes for all foreign letters.
p-reversed-fields|Fields in reverse order.
p-extra-fields|A further field in each object.
p-numbers-as-ints|Numbers without a fraction are written as integers.
p-other-error-texts|Other codes and texts of errors, some in French.
p-offset-timestamps|Timestamps end in +00:00.
p-long-node-id|A node_id of 66 letters.
p-long-transaction-ids|Transaction ids of 67 letters.
p-default-limit-50|The default limit of transactions is 50.
p-oldest-first|Transactions and proofs begin with the oldest.
p-no-transfer-fee|Transfers cost nothing.
p-percent-fee|The fee of a transfer is 1 percent.
p-fee-entries|Fees are entries of their own in the history.
p-no-receive-entries|Incoming transfers are not listed.
p-dear-generations|Generations cost fifty times as much.
p-max-tokens-512|The highest max_tokens is 512.
p-status-draining|status is draining.
p-no-peers|There are no peers.
p-all-layers-listed|The layer list has the layers of the whole model.
p-diverged|The nodes have different models, and both verifications say so.
p-refused-change-success-false|A refused change is answered with success false.
p-sse-one-event|The whole text is one token event.
p-native-ascending|Pages of blocks and updates run upwards.
p-native-max-25|The highest limit of blocks and updates is 25.
p-permanent-redirect|Old login paths redirect with 308.
p-rpc-errors-400|Errors of JSON-RPC have the status 400.
p-grpc-fields-reversed|Fields of messages in reverse order.
p-grpc-defaults-written|Default values are written out.
p-grpc-unknown-fields|Messages have a field that the document does not have.
p-grpc-unpacked|Repeated numbers are sent one by one.
p-dht-k-8|K is 8.
p-dht-k-40|K is 40.
p-dht-farthest-first|Closest nodes are listed with the farthest first.
p-checkpoint-not-found-status|A checkpoint that does not exist ends with NOT_FOUND.
p-total-size-uncompressed|total_size measures the data before compression.
p-forward-refuses-in-answer|Bad passes are refused with success false.
p-gradients-sent-once|Gradients are sent to the previous node once at most.
TABLE
