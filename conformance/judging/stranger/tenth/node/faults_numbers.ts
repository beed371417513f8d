import type { Fault } from "./faults.ts";
import { MAP_ENTRY, type Field, type Schema } from "./codec.ts";

const field = (s: Schema, type: string, name: string): Field => s[type].find((f) => f.name === name)!;

/** The field has another number. */
const renumber =
  (type: string, name: string, number: number) =>
  (s: Schema): void => {
    field(s, type, name).number = number;
  };

/** Two fields have each other's number. */
const swap =
  (type: string, a: string, b: string) =>
  (s: Schema): void => {
    const [x, y] = [field(s, type, a), field(s, type, b)];
    [x.number, y.number] = [y.number, x.number];
  };

const retype =
  (type: string, name: string, kind: string) =>
  (s: Schema): void => {
    field(s, type, name).kind = kind;
  };

const FWD = "PipelineForwardRequest";
const ANSWER = "PipelineForwardResponse";
const INFO = "GetCheckpointInfoResponse";

const list: [string, string, ((s: Schema) => void)?][] = [
  [
    "num-info-hash-version",
    "GetCheckpointInfoResponse has model_hash at 1 and version at 2 (GR-NUM-001).",
    swap(INFO, "version", "model_hash"),
  ],
  [
    "num-logits-final",
    "PipelineForwardResponse has logits at 7 and is_final at 8 (GR-NUM-001).",
    swap(ANSWER, "is_final", "logits"),
  ],
  [
    "num-loss-float",
    "loss of PipelineForwardResponse is a float, not a double (GR-PIPELINE-FORWARD-RESPONSE-10).",
    retype(ANSWER, "loss", "float"),
  ],
  [
    "num-gossip-round-4",
    "current_round of GossipGradientResponse is at 4, not 3 (GR-GOSSIP-GRADIENT-RESPONSE-03).",
    renumber("GossipGradientResponse", "current_round", 4),
  ],
  [
    "num-found-three",
    "DHTFindValueResponse has found at 3 and nodes at 4 (GR-DHT-FIND-VALUE-RESPONSE-03, -04).",
    swap("DHTFindValueResponse", "found", "nodes"),
  ],
  [
    "num-store-success-1",
    "DHTStoreResponse has success at 1 and responder at 2 (GR-DHT-STORE-RESPONSE-01, -02).",
    swap("DHTStoreResponse", "success", "responder"),
  ],
  [
    "num-store-value-4",
    "The value of a DHTStoreRequest is read from 4, not 3 (DH-025).",
    renumber("DHTStoreRequest", "value", 4),
  ],
  [
    "num-port-text",
    "port of DHTNodeInfo is a string, not an int32 (GR-DHT-NODE-INFO-03).",
    retype("DHTNodeInfo", "port", "string"),
  ],
  [
    "num-hash-phase",
    "GetCheckpointResponse has phase at 4 and model_hash at 5 (GR-CKPT-004, GR-NUM-001).",
    swap("GetCheckpointResponse", "model_hash", "phase"),
  ],
  [
    "num-params-double",
    "params of GetCheckpointInfoResponse is a double, not an int64 (GR-GET-CHECKPOINT-INFO-RESPONSE-04).",
    retype(INFO, "params", "double"),
  ],
  [
    "num-only-packed",
    "hidden_shape is read packed only, not one by one (GR-FORM-002).",
    (s) => {
      field(s, FWD, "hidden_shape").onlyPacked = true;
    },
  ],
  [
    "num-source-target",
    "source_shard of a pass is read from 10 and target_shard from 9 (GR-CODE-004, 2.3).",
    swap(FWD, "source_shard", "target_shard"),
  ],
  [
    "num-labels-sender",
    "training_labels are read from 12 and sender_url from 11 (PL-FWD-008, 2.3).",
    swap(FWD, "training_labels", "sender_url"),
  ],
  [
    "num-cache-past",
    "past_key_values are read from 8 and use_cache from 7 (2.3, PL-FWD-018).",
    swap(FWD, "past_key_values", "use_cache"),
  ],
  [
    "num-min-version-3",
    "min_version of GetCheckpointRequest is read from 3, not 2 (GR-CKPT-001).",
    renumber("GetCheckpointRequest", "min_version", 3),
  ],
  [
    "num-shard-range-2",
    "shard_range of WeightRequest is read from 2, not 1 (GR-WEIGHT-003).",
    renumber("WeightRequest", "shard_range", 2),
  ],
  [
    "num-gradients-text",
    "layer_gradients are read as texts, and refused where they are not UTF-8 (GR-NUM-002).",
    () => {
      MAP_ENTRY[1].kind = "string";
    },
  ],
  [
    "num-gradient-hash-4",
    "model_hash of a gradient is read from 4 and timestamp from 3 (GR-GOSSIP-007).",
    swap("GossipGradientRequest", "model_hash", "timestamp"),
  ],
  [
    "num-back-session",
    "A backward pass is read with session_id at 2 and request_id at 1 (PL-BWD-008).",
    swap("PipelineBackwardRequest", "session_id", "request_id"),
  ],
  [
    "num-back-answer",
    "PipelineBackwardResponse has error_message at 1 and success at 2 (GR-PIPELINE-BACKWARD-RESPONSE-01).",
    swap("PipelineBackwardResponse", "success", "error_message"),
  ],
  [
    "num-shape-zigzag",
    "The shapes in PipelineForwardResponse are written as sint64, so they are twice as large (2.3).",
    (s) => {
      retype(ANSWER, "hidden_shape", "sint64")(s);
      retype(ANSWER, "logits_shape", "sint64")(s);
    },
  ],
  ["num-unknown-refused", "A message with a field that the document does not have is refused (GR-FORM-001)."],
  [
    "num-order-refused",
    "A message whose fields are not in the order of their numbers is refused (GR-FORM-001).",
  ],
  [
    "num-sent-backward-swapped",
    "PipelineBackwardRequest is sent with request_id at 1 and session_id at 2 (CL-MSG-002).",
  ],
];

export const NUMBERS: Fault[] = list.map(([id, text, schema]) => ({ id, kind: "numbers", text, schema }));
