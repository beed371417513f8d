import type { Fault } from "./faults.ts";

const inline: [string, string][] = [
  ["fld-401-details", "A 401 has details (NA-ERR-005)."],
  [
    "fld-atoms-decimals",
    "The amounts of an account are units with decimals, not atoms (NT-RULE-011, NT-RULE-029).",
  ],
  ["fld-block-no-prompt", "The transactions of a block do not show the prompt (NT-RULE-052, 2.2)."],
  ["fld-find-value-responder", "DHTFindValue names no responder (DH-017)."],
  ["fld-gradient-no-reason", "A gradient that is not accepted has no reason (GR-GOSSIP-001)."],
  ["fld-index-from-one", "The index of the first token event is 1 (NA-SSE-002)."],
  ["fld-limit-default", "The list of transactions always says that limit is 20 (NA-QUERY-010)."],
  [
    "fld-memo-plain",
    "Letters beyond ASCII in the memo of a transfer result are question marks (NA-WALLET-032).",
  ],
  ["fld-nonce-last", "next_nonce is the last nonce that was used, and -1 for a new account (NT-RULE-079)."],
  [
    "fld-no-refund-record",
    "The record of an expired request says nothing of its refund (NT-RULE-062, ST-004).",
  ],
  ["fld-owner-null", "The owner of each validator is null (NT-RULE-055)."],
  ["fld-receive-negative", "What was received is in the history with an amount below zero (NA-WALLET-057)."],
  ["fld-send-positive", "A send in the history has an amount above zero (NA-QUERY-007, NA-WALLET-012)."],
  [
    "fld-updated-sections",
    "updated lists the sections that were changed, not the dotted paths (NA-PATCH-101).",
  ],
  [
    "fld-results-null",
    "The execution results are null in the list of blocks, though each block has them (NT-RULE-066).",
  ],
];

const onEach = (list: any[], change: (entry: any) => void): void => list.forEach(change);

const patched: Fault[] = [
  {
    id: "fld-timestamp-space",
    kind: "fields",
    on: "GET /wallet/transactions",
    text: "In the timestamps of the history a space stands between date and time, not a T (GEN-020).",
    patch: (b) =>
      onEach(b.transactions, (t) => {
        t.timestamp = t.timestamp.replace("T", " ");
      }),
  },
  {
    id: "fld-unlock-datetime",
    kind: "fields",
    on: "POST /wallet/stake",
    text: "start_date and unlock_date of a stake result are timestamps, not dates (GEN-009).",
    patch: (b) => {
      b.stake.start_date += "T00:00:00Z";
      b.stake.unlock_date += "T00:00:00Z";
    },
  },
  {
    id: "fld-agreement-fraction",
    kind: "fields",
    on: "GET /training/verify",
    text: "hash_agreement in the quick verification is the text 1.0, not a percentage (TR-RULE-006).",
    patch: (b) => {
      b.metrics.hash_agreement = "1.0";
    },
  },
  {
    id: "fld-sync-rate-percent",
    kind: "fields",
    on: "GET /training/global",
    text: "sync_success_rate is 94, not a fraction from 0 to 1 (TR-RULE-003).",
    patch: (b) => {
      b.sync_success_rate = 94;
    },
  },
  {
    id: "fld-progress-percent",
    kind: "fields",
    on: "GET /training/global",
    text: "diloco.progress is a percentage, not the share of the inner steps that are done (TR-RULE-016).",
    patch: (b) => {
      b.diloco.progress *= 100;
    },
  },
  {
    id: "fld-confirmed-capitals",
    kind: "fields",
    on: "POST /wallet/send",
    text: "The status of a transfer is CONFIRMED, in other letters than the document shows (NA-SANE-049).",
    patch: (b) => {
      b.status = "CONFIRMED";
    },
  },
  {
    id: "fld-address-url",
    kind: "fields",
    on: "GET /peers",
    text: "The address of a peer is a URL, not host:port (NA-SANE-008).",
    patch: (b) =>
      onEach(b.peers, (p) => {
        p.address = `http://${p.address}/`;
      }),
  },
  {
    id: "fld-cost-text",
    kind: "fields",
    on: "POST /inference",
    text: "cost.amount of a result is a string, not a number (NA-INF-RESULT-020).",
    patch: (b) => {
      b.cost.amount = b.cost.amount.toFixed(6);
    },
  },
  {
    id: "fld-uptime-float",
    kind: "fields",
    on: "GET /status",
    text: "uptime_seconds has a fraction; it must be an int (NA-STATUS-006).",
    patch: (b) => {
      b.uptime_seconds += 0.25;
    },
  },
  {
    id: "fld-402-required-text",
    kind: "fields",
    on: "error 402",
    text: "required and available in the details of a 402 are strings, not numbers (NA-ERR-010, NA-ERR-011).",
    patch: (b) => {
      b.error.details.required = String(b.error.details.required);
      b.error.details.available = String(b.error.details.available);
    },
  },
  {
    id: "fld-reward-no-role",
    kind: "fields",
    on: "GET /wallet/transactions",
    text: "The details of a reward in the history have no role (NA-HISTORY-021).",
    patch: (b) =>
      onEach(b.transactions, (t) => {
        if (t.type === "reward") delete t.details.role;
      }),
  },
  {
    id: "fld-final-no-total",
    kind: "fields",
    on: "final event",
    text: "The usage of the final event has no total_tokens (NA-SSE-FINAL-011).",
    patch: (b) => {
      b.usage = { ...b.usage, total_tokens: undefined };
    },
  },
];

export const FIELDS: Fault[] = [...inline.map(([id, text]) => ({ id, kind: "fields", text })), ...patched];
