import type { Fault } from "./faults.ts";

const refusals: [string, string][] = [
  [
    "ref-402-strict",
    "A transfer of exactly what is available, its fee included, ends with 402 (NA-ERR-030).",
  ],
  [
    "ref-absent-unavailable",
    "A pass to an absent layer ends with UNAVAILABLE, not NOT_FOUND (GR-CODE-004, GR-CODE-013).",
  ],
  [
    "ref-absent-weights-empty",
    "GetWeights of an absent layer answers OK without data (GR-WEIGHT-001, GR-WEIGHT-002).",
  ],
  ["ref-amount-array", "An amount in an array of one is taken by the wallet routes (NA-WALLET-050)."],
  [
    "ref-amount-negative",
    "A transfer or an unstake of a negative amount is made (NA-WALLET-037, NA-WALLET-018).",
  ],
  ["ref-array-of-one", "A number of POST /inference in an array of one is taken (NA-INF-043)."],
  ["ref-artifact-prefix", "An artifact is found by the first 16 digits of its digest (NT-RULE-067)."],
  ["ref-backward-unknown-ok", "Gradients of a pass that nobody has made are accepted (PL-BWD-013)."],
  ["ref-checkpoint-internal", "A checkpoint that does not exist is called INTERNAL (GR-CODE-015)."],
  ["ref-dotted-keys", "PATCH /config takes dotted keys (NA-PATCH-119)."],
  [
    "ref-expired-code",
    "The code of the answer to an expired token is TOKEN_EXPIRED, not UNAUTHORIZED (NA-AUTH-003).",
  ],
  [
    "ref-fee-not-covered",
    "A transfer of all that is available is accepted though it also costs a fee (NA-ERR-024).",
  ],
  ["ref-fraction-refused", "Amounts that are not whole are refused (NA-WALLET-060)."],
  [
    "ref-gradient-other-model",
    "A gradient with the model_hash of another model is accepted (GR-GOSSIP-006).",
  ],
  ["ref-hash-drops-minimum", "With a model_hash, min_version is not looked at (GR-CKPT-016)."],
  ["ref-key-03", "Public keys that begin with 03 are refused (NT-RULE-060)."],
  [
    "ref-negative-counts-back",
    "A negative target_shard counts back from the last layer (PL-FWD-011, PL-FWD-012).",
  ],
  ["ref-no-receiver", "A transfer without a receiver goes to the second account (NA-WALLET-051)."],
  ["ref-memo-quotes", "A transfer fails with 500 for a quote or a line break in its memo (NA-WALLET-054)."],
  ["ref-nowhere-listed", "A sender without an address is listed by the DHT (DH-027, DH-018)."],
  [
    "ref-only-whole-section",
    "A change of one key alone is refused where that of several is accepted (NA-PATCH-114).",
  ],
  ["ref-other-chain", "A request that is signed for another chain is accepted (NT-RULE-047)."],
  ["ref-own-version-late", "A checkpoint is not returned for its own version as min_version (GR-CKPT-012)."],
  ["ref-partial-weights", "GetWeights of a range with an absent layer returns the others (GR-WEIGHT-005)."],
  [
    "ref-past-expiry",
    "A request that is past its expiry when it is broadcast is still completed (NT-RULE-048).",
  ],
  ["ref-reference-delete", "DELETE removes a view of the earlier chain (NT-RULE-020, NT-RULE-031)."],
  ["ref-rpc-block-needs-height", "The method block of /rpc refuses a call without a height (NT-RULE-018)."],
  ["ref-short-key-internal", "A DHT key or ID of another length ends with INTERNAL (GR-CODE-015)."],
  ["ref-stake-409", "A stake of more than is available ends with 409, not 402 (NA-ERR-022)."],
  [
    "ref-stream-402-event",
    "A stream that cannot be paid for is a stream with an error in it, not a 402 (NA-ERR-027).",
  ],
  ["ref-stream-one-message", "A second message in StreamInference ends the call with an error (GR-OP-022)."],
  ["ref-stream-truthy", "A stream parameter that is an object or an array counts as true (NA-INF-039)."],
];

const routes: [string, string][] = [
  ["rte-config-put", "The configuration is changed with PUT; PATCH gets 405 (NA-ROUTE-014)."],
  ["rte-error-html", "A 404 of the node API is a page of HTML, not the error body (NA-ERR-012)."],
  [
    "rte-healthz-catching-up",
    "/healthz says that the node is catching up, with status 200, not 503 (NT-RULE-002).",
  ],
  ["rte-signup-login", "/signup redirects to /login, not to /join (NT-RULE-010)."],
  ["rte-nan-loss", "The loss of GET /network is NaN, which is no JSON (GEN-010)."],
  ["rte-twice-key", "The entries of GET /layers have the key index twice (GEN-011)."],
  ["rte-no-jobs", "The query path /jobs is not served, /job is (NT-RULE-004, NT-RULE-044)."],
  ["rte-no-shard-info", "The service does not have GetShardInfo (GR-OP-014)."],
  ["rte-grpc-package", "The service is called NodeService without its package (GR-NAME-001)."],
  [
    "rte-no-work-result",
    "POST /work/result does not exist though POST /work/poll does (NT-ROUTE-017, NT-RULE-033).",
  ],
  ["rte-sse-last-blank", "No blank line follows the last event of a stream (NA-SSE-015)."],
  ["rte-sse-pretty", "The JSON of an event is spread over several lines (NA-SSE-019)."],
  ["rte-sse-openai-done", "A line data: [DONE] follows the final event (NA-SSE-007, NA-SSE-001)."],
  ["rte-stream-unary", "StreamInference is a unary operation (GR-OP-001)."],
  ["rte-text-plain", "GET /proofs has Content-Type text/plain (GEN-012)."],
  [
    "rte-training-v1",
    "The training verification /global lies below /api/v1/training (GEN-015, TR-ROUTE-001).",
  ],
  ["rte-unknown-200", "A path that does not exist is answered with 200 (NA-ERR-017)."],
  ["rte-layers-idle", "GET /layers does not exist while training is switched off (NA-ROUTE-018)."],
];

const of = (kind: string, list: [string, string][]): Fault[] =>
  list.map(([id, text]) => ({ id, kind, text }));
export const REFUSALS: Fault[] = of("refusals", refusals);
export const ROUTES: Fault[] = of("routes", routes);
