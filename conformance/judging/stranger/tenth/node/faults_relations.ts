import type { Fault } from "./faults.ts";

const list: [string, string][] = [
  [
    "rel-account-cached",
    "/api/account answers with the account that was read first (NT-RULE-059, NT-RULE-027).",
  ],
  [
    "rel-back-to-last-sender",
    "Gradients of all passes go back to where the first pass came from (PL-BWD-009).",
  ],
  [
    "rel-back-shape-short",
    "grad_shape of gradients that go back lacks the batch, so it does not give their size (PL-BWD-005).",
  ],
  ["rel-402-available-total", "available in the 402 of a transfer counts what is staked, too (NA-ERR-020)."],
  [
    "rel-blocks-empty-left-out",
    "Every seventh block, where it is empty, is left out of the list (NT-PAGE-006).",
  ],
  [
    "rel-checkpoint-by-version-other",
    "A checkpoint that is asked for by version has the data of the one before (GR-CKPT-018).",
  ],
  [
    "rel-cooldown-hours",
    "cooldown_days of an unstake counts hours, so available_date does not agree (ST-005, NA-WALLET-062).",
  ],
  [
    "rel-cost-shown-less",
    "The cost in a result is a tenth of what is taken from the balance (NA-WALLET-023).",
  ],
  [
    "rel-dataset-reformatted",
    "The data set is served in another form, so its digest is not that of the genesis (NT-RULE-056).",
  ],
  [
    "rel-final-usage-max",
    "completion_tokens of the final event is one more, so total_tokens is not the sum (NA-SSE-010).",
  ],
  [
    "rel-forward-cached-by-shape",
    "A pass of the same shape is answered with the result of the first one (PL-FWD-014).",
  ],
  ["rel-graph-by-request", "Two passes of two sessions with one request_id are kept as one (PL-BWD-010)."],
  ["rel-hash-is-id", "The request ID is the hash of the transaction (NT-RULE-013, NT-RULE-040)."],
  ["rel-keys-alike", "Keys that begin with the same eight bytes share one value (DH-022)."],
  [
    "rel-metrics-max-tokens",
    "tokens_generated of the metrics counts max_tokens where a text ends early (NA-COUNT-007).",
  ],
  ["rel-network-pair", "The pair in block of /api/network has the hash of the block before (NT-RULE-068)."],
  ["rel-new-balance-old", "new_balance of a stake result is the balance before the stake (NA-WALLET-016)."],
  ["rel-record-prompt", "The record of a request has its prompt in small letters (NT-RULE-054)."],
  [
    "rel-total-without-charges",
    "total of the history does not count the charges that its pages list (NA-QUERY-011).",
  ],
  [
    "rel-response-changes",
    "The response of a completed request is generated anew at each reading (NT-RULE-081).",
  ],
  [
    "rel-responder-id-changes",
    "The responder of DHTPing has another node ID than that of the other operations (DH-002, DH-017).",
  ],
  ["rel-round-behind", "The training round of the network is three behind the newest update (NT-RULE-075)."],
  [
    "rel-round-of-sender",
    "current_round of an accepted gradient is the next one, not the receiver's (GR-GOSSIP-005).",
  ],
  [
    "rel-rpc-block-latest",
    "The method block of /rpc answers with the newest block for every height (NT-RULE-057).",
  ],
  ["rel-rpc-chain", "The status of /rpc names another chain than /api/network (NT-RULE-070, NT-RULE-043)."],
  [
    "rel-sender-same-port",
    "Gradients go back to the HTTP port of sender_url, not 1000 above (CL-PORT-001, CL-URL-001).",
  ],
  [
    "rel-status-enabled-fixed",
    "training.enabled of the status does not follow the configuration (NA-PATCH-116, NA-SANE-017).",
  ],
  [
    "rel-stop-counts-max",
    "A text that ends at a stop sequence counts max_tokens in usage (NA-COUNT-007, NA-INF-023).",
  ],
  ["rel-stream-prompt-tokens", "A stream counts one prompt token more than a result does (NA-SSE-017)."],
  ["rel-tx-id-same", "Two equal transfers have the same transaction_id (NA-WALLET-048)."],
  ["rel-update-roots-vary", "The root of an update depends on the limit of its page (NT-PAGE-011)."],
  ["rel-connected-later", "connected_since of the peers lies in the future (GEN-019)."],
  ["rel-reference-present", "The blocks of the earlier chain are those of the present one (NT-RULE-045)."],
];

export const RELATIONS: Fault[] = list.map(([id, text]) => ({ id, kind: "relations", text }));
