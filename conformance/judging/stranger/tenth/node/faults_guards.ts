import type { Fault } from "./faults.ts";

const guards: [string, string][] = [
  ["grd-any-scheme", "A token is taken with any scheme, such as Basic (NA-AUTH-033)."],
  ["grd-bare-token", "A token is taken without the word Bearer (NA-AUTH-033)."],
  [
    "grd-body-first",
    "The body is judged before the token: an invalid token with a bad body gets 400 (NA-AUTH-025).",
  ],
  ["grd-empty-token", "The header Bearer without a token is served as the first account (NA-AUTH-033)."],
  ["grd-expired-infers", "POST /inference serves an expired token (NA-AUTH-002, NA-AUTH-018)."],
  ["grd-expired-reads", "An expired token still reads (NA-AUTH-002)."],
  ["grd-expired-writes", "POST /wallet/send serves an expired token (NA-AUTH-018)."],
  ["grd-forged-poll", "POST /work/poll serves a message with the signature of other content (NT-RULE-053)."],
  ["grd-forged-request", "A signed request with a wrong signature is accepted (NT-RULE-046)."],
  ["grd-forged-result", "POST /work/result answers success to a wrong signature (NT-RULE-053)."],
  [
    "grd-last-account",
    "A request without a token is served as the account of the last request (NA-AUTH-027).",
  ],
  ["grd-stream-open", "POST /inference with stream true serves a request without a token (NA-AUTH-020)."],
  ["grd-while-generating", "While a generation is made, requests without a token are served (NA-AUTH-035)."],
  ["grd-open-patch", "PATCH /config does not ask for a token (NA-AUTH-007, NA-AUTH-019)."],
  ["grd-open-unstake", "POST /wallet/unstake does not ask for a token (NA-AUTH-008, NA-AUTH-019)."],
  ["grd-query-skips", "GET /proofs with a limit does not ask for a token (NA-AUTH-033, NA-AUTH-034)."],
  [
    "grd-rpc-commit",
    "/rpc takes broadcast_tx_commit, another method of the consensus engine (4.2 rule 2, NT-RULE-005).",
  ],
  [
    "grd-rpc-engine",
    "/rpc serves net_info, genesis and other methods of the consensus engine (4.2 rule 2, NT-RULE-005).",
  ],
  ["grd-token-case", "A token in capitals is taken for the one in small letters (NA-AUTH-021)."],
  ["grd-token-cut", "The beginning of a token is enough (NA-AUTH-021)."],
  ["grd-token-in-query", "A token in the query is taken (NA-AUTH-033, NA-AUTH-017)."],
  ["grd-token-prefix", "A token with something appended is taken (NA-AUTH-021)."],
  [
    "grd-unsigned-result",
    "POST /work/result answers success to a message that nobody has signed (NT-RULE-039).",
  ],
  [
    "grd-b-refused-send",
    "POST /wallet/send refuses the valid token of the second account with 401 (NA-AUTH-005, NA-AUTH-022).",
  ],
  [
    "grd-shared-account",
    "Of two balances that are read at the same moment, one is that of the other token (NA-AUTH-026).",
  ],
];

const limits: [string, string][] = [
  ["lim-training-before-ignored", "/api/training ignores before, though /api/blocks does not (NT-PAGE-003)."],
  [
    "lim-before-is-offset",
    "before of blocks and updates is read as a number of entries to skip (NT-PAGE-002).",
  ],
  ["lim-before-too-low", "A page of blocks that continues below before leaves out one entry (NT-PAGE-010)."],
  ["lim-block-above", "A height above that of the chain is answered with the newest block (NT-RULE-065)."],
  [
    "lim-bucket-of-four",
    "No more than four nodes are kept whose IDs begin with the same byte (DH-030, DH-012).",
  ],
  ["lim-context-shared", "The tokens of the prompt are taken from max_tokens (NA-INF-042)."],
  ["lim-default-128", "Without max_tokens up to 128 tokens are generated, not 100 (NA-INF-004)."],
  ["lim-forty-contacts", "A node that comes after forty others is not known (DH-032, DH-006)."],
  ["lim-grpc-4mib", "gRPC messages of more than 4 MiB are refused (LIM-007)."],
  ["lim-hundred-jobs", "Only the latest 100 completed or expired jobs can be looked up (LIM-008)."],
  ["lim-native-one-more", "A page of blocks or updates has one entry more than limit (NT-PAGE-001)."],
  ["lim-no-deadline", "The call that brings gradients back has no deadline (CL-CALL-001, CL-CALL-004)."],
  [
    "lim-long-pause",
    "Between attempts to bring gradients back the pause is 4 s, not at most 2 s (CL-CALL-003).",
  ],
  ["lim-node-id-32", "The node ID of the responder has 32 bytes (LIM-010, DH-003)."],
  ["lim-offset-by-page", "offset counts pages, not entries (NA-QUERY-008)."],
  [
    "lim-offset-off-by-one",
    "With an offset the page begins one entry too late (NA-QUERY-008, NA-QUERY-014).",
  ],
  ["lim-one-graph", "Only the last pass is kept for gradients (PL-BWD-012, PL-BWD-011)."],
  ["lim-one-token-more", "One token more than max_tokens is generated (NA-INF-003)."],
  ["lim-page-least-one", "A page of transactions with limit 0 has an entry (NA-QUERY-020)."],
  ["lim-proofs-one-more", "GET /proofs returns one entry more than limit (NA-QUERY-005)."],
  ["lim-proofs-from-end", "A short page of proofs is the end of the list, not its beginning (NA-QUERY-009)."],
  ["lim-request-id-36", "The request_id of a pass is cut to 36 letters in the answer (PL-FWD-013)."],
  ["lim-temperature-clamped", "A temperature outside 0 to 2 is clamped instead of refused (NA-INF-007)."],
  ["lim-temperature-one", "A temperature above 1 is refused (NA-INF-006)."],
  ["lim-top-k-ten", "A top_k below 10 is refused (NA-INF-009)."],
  ["lim-value-255", "A stored value is cut to 255 letters (DH-021)."],
  ["lim-retry-after-hour", "After a burst retry_after says an hour, where a second is enough (NA-ERR-033)."],
];

const of = (kind: string, list: [string, string][]): Fault[] =>
  list.map(([id, text]) => ({ id, kind, text }));
export const GUARDS: Fault[] = of("guards", guards);
export const LIMITS: Fault[] = of("limits", limits);
