import type { Fault } from "./faults.ts";

const list: [string, string][] = [
  [
    "eff-402-still-takes",
    "A transfer that is refused with 402 still takes the fee; it must take nothing (NA-ERR-023).",
  ],
  ["eff-count-race", "Of generations at the same time only one is counted (NA-COUNT-008)."],
  ["eff-charge-other", "A generation is charged to the other account (NA-WALLET-033)."],
  [
    "eff-charge-rounded",
    "A charge is rounded up to 0.01, so more is taken than the cost says (NA-WALLET-023).",
  ],
  ["eff-checkpoint-raw", "checkpoint_data is not compressed as an LZ4 frame (2.3, GR-CKPT-014)."],
  ["eff-lock-stays", "What was locked for a signed request stays locked when it is completed (NT-RULE-080)."],
  [
    "eff-no-refund",
    "An expired request has a record of its refund, but the atoms are not given back (section 3, ST-004).",
  ],
  ["eff-patch-race", "Of changes of several keys at the same time all but one are lost (NA-PATCH-118)."],
  ["eff-replay-charges", "A signed request that is broadcast once more is charged once more (NT-RULE-051)."],
  ["eff-distance-four-bytes", "The distance in the DHT looks at the first four bytes only (DH-030, DH-016)."],
  ["eff-value-taken", "A stored value is found once and is gone afterwards (DH-023)."],
  ["eff-first-sequence-only", "A pass of two sequences is answered with the first only (PL-FWD-010)."],
  ["eff-past-ignored", "past_key_values make no difference to a pass (PL-FWD-019)."],
  [
    "eff-fraction-lost",
    "The receiver of a transfer gets the whole units only, not the decimals (NA-WALLET-011).",
  ],
  [
    "eff-history-wrong-account",
    "What was received is listed in the history of the sender (NA-WALLET-012, NA-WALLET-034).",
  ],
  [
    "eff-stranger-unlisted",
    "A transfer to an address that nobody uses is not in the history (NA-WALLET-047).",
  ],
  ["eff-no-memo-unlisted", "A transfer without a memo is not in the history (NA-WALLET-035)."],
  ["eff-stake-replaces", "A second stake replaces the first, whose amount is lost (NA-WALLET-014)."],
  ["eff-unlock-first", "The balance shows the earliest unlock date for all that is staked (NA-WALLET-028)."],
  ["eff-unstake-replaces", "A second unstake replaces the pending amount of the first (NA-WALLET-055)."],
  [
    "eff-stop-any-case",
    "A stop sequence ends the text in other letters, too: great and small are equal (NA-INF-041).",
  ],
  ["eff-stop-first-only", "Only the first of several stop sequences ends the text (NA-INF-036)."],
  [
    "eff-stop-within-token",
    "A stop sequence within a token, or across two, does not end the text (NA-INF-013).",
  ],
  ["eff-stream-no-stop", "A stream does not end at a stop sequence (NA-SSE-016)."],
  ["eff-stream-stripped", "The tokens of a stream come without their white space (NA-SSE-018, NA-SSE-021)."],
  [
    "eff-stream-tokens-uncounted",
    "The tokens of a stream are not counted in tokens_generated (NA-COUNT-005).",
  ],
  [
    "eff-texts-crossed",
    "Of generations at the same time some have the text of the prompt of another (NA-INF-047).",
  ],
  [
    "eff-patch-partly",
    "A change that is refused for one key still changes the keys before it (NA-PATCH-115).",
  ],
  ["eff-patch-forgotten", "A change of the configuration is gone after it was read twice (NA-PATCH-117)."],
  ["eff-refusal-sticks", "After one refused backward pass all others are refused (PL-BWD-006)."],
  [
    "eff-wrong-gradient-drops",
    "Gradients of a wrong shape drop the kept pass, so that right ones are refused (PL-BWD-007).",
  ],
  ["eff-sent-back-twice", "Gradients go back twice to a node that has taken them (PL-BWD-004)."],
  ["eff-no-pause", "Gradients are sent again without a pause after UNAVAILABLE (CL-CODE-008, CL-CODE-001)."],
  [
    "eff-race-transfer",
    "Two transfers at the same moment that are together more than is available are both made (NA-ERR-031).",
  ],
];

export const EFFECTS: Fault[] = list.map(([id, text]) => ({ id, kind: "effects", text }));
