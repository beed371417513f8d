// Unusual things that the document allows. None of them is a violation.
const list = (rows) => rows.trim().split('\n').map((r) => { const [id, allowed, ...what] = r.split('|').map((s) => s.trim()); return { id, allowed, what: what.join('|') }; });
export const PECULIARITIES = list(`
p-extra-fields | "Additional fields are allowed everywhere" | every JSON object has two more fields
p-reverse-keys | nothing orders the keys | the keys of all objects are in the opposite order
p-pretty | JSON | bodies are indented
p-ascii | JSON | characters outside ASCII are written as \\u escapes
p-slashes | JSON | slashes are written as \\/
p-newline | JSON | white space before and after the JSON
p-exponents | number is any number | amounts and losses are written with an exponent, 1.3E+3
p-charset | GEN-012 | Content-Type has other letter case and a charset with quotes
p-gzip | HTTP | bodies are compressed where the client accepts it
p-chunked | HTTP | bodies come slowly, in seven chunks
p-close | HTTP | each connection is closed after one answer
p-headers | HTTP | more headers, in unusual letter case
p-all-slow | no limit of time is given | every answer takes a quarter of a second
p-slow | no limit of time is given | an inference takes 0.7 s, and its timing says so
p-time-seconds | GEN-008 | timestamps have no fraction, and a Z
p-time-nanos | GEN-008 | timestamps have nine digits after the point
p-long-node-id | NA-STATUS-002 | node_id is long and has spaces and other characters
p-no-peers | nothing asks for peers | there are no peers
p-not-training | NA-STATUS-017 | training is disabled
p-diverged | TR-RULE-008 OBSERVE | the models have diverged; the node says so in both verifications
p-trend | "improving is known" | loss_trend is flat
p-percent-decimals | TR-RULE-006 | hash_agreement is "100.00 %"
p-role-validator | GEN-005 | the role is validator
p-role-new | open list | the role is driver+validator
p-status-draining | open list | the status is draining
p-unhealthy | NA-HEALTH | healthy is false, with other words
p-layer-type | NA-SEEN-002 OBSERVE | the type of a layer is linear
p-layer-status | ST-006 OBSERVE | the status of a layer is warming-up
p-finish-words | NA-INF-027 OBSERVE | finish_reason is stop_sequence or max_tokens
p-temp0-random | NA-INF-028 open | temperature 0 gives different texts
p-unknown-refused | NA-INF-029 open | unknown parameters of an inference are refused
p-maxtokens-cap-64 | NA-INF-003 | max_tokens above 64 counts as 64
p-inference-free | NA-INF-025 | the cost is 0
p-sse-big-tokens | NA-SSE-011 open | a token event carries up to 24 characters
p-sse-single | NA-SSE-011, NA-SSE-013 open | a stream has one token event with the whole text
p-sse-slow | no limit of time is given | 15 ms between the events
p-422 | NA-ERR-013 open | bad bodies get 422
p-unicode-errors | messages are free | messages of errors are not ASCII
p-402-more | details may have more | details of a 402 has shortfall
p-www-authenticate | HTTP | a 401 has WWW-Authenticate
p-bearer-strict | NA-AUTH-011 open | only the spelling Bearer is accepted
p-fee-zero | NA-WALLET-005 open | transfers cost nothing
p-minimum-amounts | NA-WALLET-005 open | transfers below 0.01 are refused
p-minimum-stake | NA-WALLET-005 open | stakes below 1 or 7 days are refused
p-cooldown-21 | cooldown_days is free | the cooldown is 21 days
p-transfer-pending | ST-008 OBSERVE | the status of a transfer is pending
p-created-201 | "returns a transfer result"; no status is given | a transfer is answered with 201
p-no-receive-entry | nothing asks for it | the receiver's history does not show a transfer
p-total-without-pending | NA-SANE-009 open | balances.total leaves out pending
p-oldest-first | no order is given | the history begins with the oldest entry
p-default-limit-3 | no default is given | a page without limit has 3 entries
p-limit-cap-25 | NA-ERR-016 open | a limit above 25 counts as 25
p-proofs-newest-first | no order is given | the newest proofs come first
p-threads-fixed | NA-PATCH-107 open | resources.cpu_threads cannot be changed
p-restart-always | NA-PATCH-107 open | restart_required is always true, though the new values are shown
p-rate-tight | NA-ERR-015 open | 60 requests at once and 20 a second are allowed for each route
p-dht-k-3 | DH-011 open | K is 3
p-dht-k-40 | DH-011 open | K is 40, so all known nodes are listed
p-dht-reverse | no order is given | the closest nodes are listed with the farthest of them first
p-dht-first-wins | DH-010 open | a second store under a key does not replace the first value, and is answered with success
p-dht-strict-keys | DH-014 open | a key that is not 20 bytes long is refused
p-dht-forgets-senders | nothing asks for it | a sender is not entered into the table
p-dht-refuses-stores | DH-019 | every store is refused with success false
p-ckpt-size-plain | GR-CKPT-006 open | total_size is the size before compression
p-ckpt-not-found | 7.3 | an unknown checkpoint gets NOT_FOUND instead of success false
p-phase | "bootstrap and early are examples" | the phase is another word, not ASCII
p-fwd-success-false | 7.3 (against GR-CODE-002, which is a SHOULD: at most a remark) | a bad forward pass gets success false with a reason instead of INVALID_ARGUMENT
p-fwd-hidden-too | not forbidden | the last hidden states come with the logits
p-gossip-lenient | not specified | a negative ttl is accepted and not passed on
p-grpc-trailers | gRPC | additional trailing metadata
p-grpc-slow | below the recommended deadline | every call takes 0.6 s
p-unpacked | protobuf | repeated numbers are not packed
p-unknown-fields | "Additional fields are allowed everywhere" | every gRPC answer has a field 99
p-live-chain | nothing forbids it | the native chain makes a block every 2 s
p-native-ascending | no order is given | pages of blocks and updates are ascending
p-before-inclusive | NT-PAGE-002 | the page may begin with the height or round that before names
p-native-page-5 | no default is given | a page of blocks has 5 entries without limit
p-native-text-errors | NT-SILENT-006 open | errors of the native API are plain text
p-catching-up | NT-RULE-002 | /healthz answers 503 while the node catches up
p-redirect-308 | "redirect" | old login paths redirect with 308
p-redirect-absolute | "redirect" | the Location is an absolute URL
p-openai | section 10: "a node need not serve these routes" | OpenAI's routes are served too (sound)
`);
