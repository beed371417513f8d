// Unusual behaviour that the interface permits: id | section of the interface | what is unusual.
const lines = `
reversed-fields | 2 | the fields of JSON answers are in reverse order
extra-fields | 2 | JSON objects have additional fields
indented-json | 4 | JSON answers are indented
escaped-json | 4 | letters beyond ASCII are escaped in JSON
trailing-newline | 4 | JSON answers end with a newline
chunked-bodies | 4 | answers come in small chunks
slow-answers | 4 | answers take 150 ms longer
json-charset | 4 | Content-Type names a charset
more-headers | 4 | answers have additional headers
closes-connections | 4 | each connection is closed after one answer
other-error-texts | 7.1 | error messages are in another language
other-error-codes | 7.1 | an invalid body has another code
www-authenticate | 7.1 | a 401 has the header WWW-Authenticate
currency-code | 2.1 | the currency has another code
no-peers | 2.1 | there are no peers
many-peers | 2.1 | there are sixty peers
peer-with-ipv6 | 2.1 | a peer has an IPv6 address in brackets
peer-by-name | 2.1 | a peer's address is a host name
no-proofs | 2.1 | there are no proofs
short-history | 2.1 | the first account has two old entries
both-staked | 2.1 | both accounts have staked something at the start
draining | 2.1 | the node says that it is draining
no-gpu | 2.1 | there is no memory of a GPU
health-degraded | 2.1 | a health check has another word than ok
parameters-rounded | 2.1 | the number of parameters is written as 0.8K
metrics-zero-rewards | 2.1 | nothing was earned yet
all-layers-listed | 2.1 | the layer list has all layers of the model
diverged | 2.1 | the models have diverged, and the verifications say so
loss-trend-steady | 2.1 | loss_trend has another value
learning-rate-tiny | 2.1 | the learning rate is written in exponent form
max-memory-fraction | 2.1 | max_memory_gb has a fraction
foreign-words | 2.1 | generated text has foreign letters
emoji-words | 2.1 | generated text has characters outside the basic plane
text-begins-with-space | 2.1 | generated text begins with a space
ends-early | 2.1 | generations end by themselves after a few tokens
stop-included | 4.1 | the text ends with its stop sequence
reason-max-tokens | 2.1 | finish_reason is max_tokens where the maximum was reached
low-max-tokens | 4.1 | max_tokens is at most 512
prompt-token-more | 2.1 | each prompt has one more token for its beginning
slow-generation | 2.1 | each generation takes 400 ms longer
free-generations | 2.1 | generations cost nothing
dear-generations | 2.1 | a generated token costs 0.02
charges-not-listed | 2.1 | charges are not in the history
stakes-not-listed | 2.1 | stakes and unstakes are not in the history
received-not-listed | 2.1 | received amounts are not in the receiver's history
no-fees | 2.1 | transfers have no fee
dear-transfers | 2.1 | a transfer costs 0.75
known-addresses-only | 4.1 | transfers to unknown addresses are refused
no-cooldown | 3 | the cooldown has 0 days
long-cooldown | 3 | the cooldown has 45 days
total-without-pending | 2.1 | balances.total leaves out what is pending
transfer-status-final | 3 | the status of a transfer is final
oldest-first | 4.1 | the history begins with its oldest entry
short-pages | 4.1 | pages have 5 entries unless a limit is given
long-pages | 4.1 | pages of the history have 100 entries unless a limit is given
config-only-training | 4.1 | only the keys of training can be changed
stream-of-letters | 6 | each letter is a token event
stream-in-one-event | 6 | the whole text is one token event
stream-in-one-write | 6 | all events come at once
stream-split-writes | 6 | events are cut between packets
stream-charset | 6 | the type of a stream names a charset
short-native-pages | 4.2 | native pages have 5 entries unless a limit is given
before-inclusive | 4.2 | before includes the height or round that it names
index-behind | 2.2 | the explorer index is behind and has an error
blocks-name-requests | 2.2 | blocks of the list name their requests
native-price-zero | 2.2 | the fixed price is 0 atoms
provider-silent | 2.2 | the heartbeat of the provider is late
account-without-total | 2.2 | an account leaves out its liquid total
no-sponsor | 2.2 | there is no sponsor, and one stage is not available
native-plain-errors | 7.2 | native errors are plain text
healthz-503 | 7.2 | the node is catching up
healthz-text | 4.2 | /healthz answers with a plain text
permanent-redirects | 7.2 | old paths redirect with 308
redirect-with-host | 7.2 | old paths redirect to a full address
hidden-states-beside-logits | 2.3 | the last shard returns hidden states beside the logits
weights-compressed | 2.3 | weights are an LZ4 frame
phase-mature | 2.3 | the phase of the model is mature
one-checkpoint | 4.3 | there is only one checkpoint
checkpoint-not-found-status | 7.3 | a checkpoint that does not exist gets NOT_FOUND
size-uncompressed | 2.3 | total_size is not the length of the compressed data
gossip-needs-signature | 2.3 | gradients without a signature are refused
gossip-reason-always | 2.3 | an accepted gradient has a reason too
small-k | 4.3 | K is 4
responder-grpc-port | 2.3 | the responder names its gRPC port
lists-itself | 4.3 | the DHT lists the node itself as well
first-value-stays | 4.3 | a second value under a key does not replace the first
`;
export const peculiarities = lines.split('\n').filter(Boolean).map((line) => {
  const [id, section, text] = line.split('|').map((part) => part.trim());
  return { id, section, text };
});
