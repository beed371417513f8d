from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InferenceRequest(_message.Message):
    __slots__ = ("request_id", "prompt", "max_tokens", "temperature", "top_p", "top_k", "stop", "seed", "forwarded")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    FORWARDED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt: str
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    seed: int
    forwarded: ForwardedRequest
    def __init__(self, request_id: _Optional[str] = ..., prompt: _Optional[str] = ..., max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., seed: _Optional[int] = ..., forwarded: _Optional[_Union[ForwardedRequest, _Mapping[str, object]]] = ...) -> None: ...

class ForwardedRequest(_message.Message):
    __slots__ = ("paid", "frequency_penalty", "presence_penalty", "logprobs", "json_schema", "bare", "end_tokens")
    PAID_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    BARE_FIELD_NUMBER: _ClassVar[int]
    END_TOKENS_FIELD_NUMBER: _ClassVar[int]
    paid: bool
    frequency_penalty: float
    presence_penalty: float
    logprobs: int
    json_schema: str
    bare: bool
    end_tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, paid: _Optional[bool] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., logprobs: _Optional[int] = ..., json_schema: _Optional[str] = ..., bare: _Optional[bool] = ..., end_tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class InferenceResponse(_message.Message):
    __slots__ = ("request_id", "id", "text", "index", "is_final", "finish_reason", "tokens_generated", "usage", "timing", "cost", "forwarded")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    TOKENS_GENERATED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    FORWARDED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    id: str
    text: str
    index: int
    is_final: bool
    finish_reason: str
    tokens_generated: int
    usage: InferenceUsage
    timing: InferenceTiming
    cost: InferenceCost
    forwarded: ForwardedAnswer
    def __init__(self, request_id: _Optional[str] = ..., id: _Optional[str] = ..., text: _Optional[str] = ..., index: _Optional[int] = ..., is_final: _Optional[bool] = ..., finish_reason: _Optional[str] = ..., tokens_generated: _Optional[int] = ..., usage: _Optional[_Union[InferenceUsage, _Mapping[str, object]]] = ..., timing: _Optional[_Union[InferenceTiming, _Mapping[str, object]]] = ..., cost: _Optional[_Union[InferenceCost, _Mapping[str, object]]] = ..., forwarded: _Optional[_Union[ForwardedAnswer, _Mapping[str, object]]] = ...) -> None: ...

class ForwardedAnswer(_message.Message):
    __slots__ = ("waits", "model_hash", "logprobs", "notes", "trace", "failure")
    WAITS_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    waits: bool
    model_hash: str
    logprobs: TokenProbabilities
    notes: _containers.RepeatedScalarFieldContainer[str]
    trace: str
    failure: InferenceFailure
    def __init__(self, waits: _Optional[bool] = ..., model_hash: _Optional[str] = ..., logprobs: _Optional[_Union[TokenProbabilities, _Mapping[str, object]]] = ..., notes: _Optional[_Iterable[str]] = ..., trace: _Optional[str] = ..., failure: _Optional[_Union[InferenceFailure, _Mapping[str, object]]] = ...) -> None: ...

class TokenProbabilities(_message.Message):
    __slots__ = ("chosen", "top")
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    chosen: TokenProbability
    top: _containers.RepeatedCompositeFieldContainer[TokenProbability]
    def __init__(self, chosen: _Optional[_Union[TokenProbability, _Mapping[str, object]]] = ..., top: _Optional[_Iterable[_Union[TokenProbability, _Mapping[str, object]]]] = ...) -> None: ...

class TokenProbability(_message.Message):
    __slots__ = ("piece", "logprob")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    piece: bytes
    logprob: float
    def __init__(self, piece: _Optional[bytes] = ..., logprob: _Optional[float] = ...) -> None: ...

class InferenceFailure(_message.Message):
    __slots__ = ("kind", "message", "field", "retry_after")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    field: str
    retry_after: int
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., retry_after: _Optional[int] = ...) -> None: ...

class InferenceUsage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "total_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., total_tokens: _Optional[int] = ...) -> None: ...

class InferenceTiming(_message.Message):
    __slots__ = ("queue_ms", "inference_ms", "total_ms")
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    queue_ms: float
    inference_ms: float
    total_ms: float
    def __init__(self, queue_ms: _Optional[float] = ..., inference_ms: _Optional[float] = ..., total_ms: _Optional[float] = ...) -> None: ...

class InferenceCost(_message.Message):
    __slots__ = ("atoms", "currency")
    ATOMS_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    atoms: int
    currency: str
    def __init__(self, atoms: _Optional[int] = ..., currency: _Optional[str] = ...) -> None: ...

class PipelineForwardRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hidden_states", "hidden_shape", "attention_mask", "position_ids", "past_key_values", "use_cache", "source_shard", "target_shard", "training_labels", "sender_url")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_STATES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SHAPE_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_MASK_FIELD_NUMBER: _ClassVar[int]
    POSITION_IDS_FIELD_NUMBER: _ClassVar[int]
    PAST_KEY_VALUES_FIELD_NUMBER: _ClassVar[int]
    USE_CACHE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SHARD_FIELD_NUMBER: _ClassVar[int]
    TARGET_SHARD_FIELD_NUMBER: _ClassVar[int]
    TRAINING_LABELS_FIELD_NUMBER: _ClassVar[int]
    SENDER_URL_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hidden_states: bytes
    hidden_shape: _containers.RepeatedScalarFieldContainer[int]
    attention_mask: bytes
    position_ids: bytes
    past_key_values: _containers.RepeatedScalarFieldContainer[bytes]
    use_cache: bool
    source_shard: int
    target_shard: int
    training_labels: bytes
    sender_url: str
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hidden_states: _Optional[bytes] = ..., hidden_shape: _Optional[_Iterable[int]] = ..., attention_mask: _Optional[bytes] = ..., position_ids: _Optional[bytes] = ..., past_key_values: _Optional[_Iterable[bytes]] = ..., use_cache: _Optional[bool] = ..., source_shard: _Optional[int] = ..., target_shard: _Optional[int] = ..., training_labels: _Optional[bytes] = ..., sender_url: _Optional[str] = ...) -> None: ...

class PipelineForwardResponse(_message.Message):
    __slots__ = ("request_id", "success", "error_message", "hidden_states", "hidden_shape", "past_key_values", "is_final", "logits", "logits_shape", "loss")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_STATES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PAST_KEY_VALUES_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    LOGITS_FIELD_NUMBER: _ClassVar[int]
    LOGITS_SHAPE_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    success: bool
    error_message: str
    hidden_states: bytes
    hidden_shape: _containers.RepeatedScalarFieldContainer[int]
    past_key_values: _containers.RepeatedScalarFieldContainer[bytes]
    is_final: bool
    logits: bytes
    logits_shape: _containers.RepeatedScalarFieldContainer[int]
    loss: float
    def __init__(self, request_id: _Optional[str] = ..., success: _Optional[bool] = ..., error_message: _Optional[str] = ..., hidden_states: _Optional[bytes] = ..., hidden_shape: _Optional[_Iterable[int]] = ..., past_key_values: _Optional[_Iterable[bytes]] = ..., is_final: _Optional[bool] = ..., logits: _Optional[bytes] = ..., logits_shape: _Optional[_Iterable[int]] = ..., loss: _Optional[float] = ...) -> None: ...

class PipelineBackwardRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "grad_output", "grad_shape", "target_shard")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRAD_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    GRAD_SHAPE_FIELD_NUMBER: _ClassVar[int]
    TARGET_SHARD_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    grad_output: bytes
    grad_shape: _containers.RepeatedScalarFieldContainer[int]
    target_shard: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., grad_output: _Optional[bytes] = ..., grad_shape: _Optional[_Iterable[int]] = ..., target_shard: _Optional[int] = ...) -> None: ...

class PipelineBackwardResponse(_message.Message):
    __slots__ = ("success", "error_message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error_message: str
    def __init__(self, success: _Optional[bool] = ..., error_message: _Optional[str] = ...) -> None: ...

class GossipGradientRequest(_message.Message):
    __slots__ = ("node_id", "round_id", "model_hash", "timestamp", "batch_size", "loss", "layer_gradients", "signature", "ttl", "held_out", "opinions")
    class LayerGradientsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    LAYER_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    OPINIONS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    round_id: int
    model_hash: str
    timestamp: float
    batch_size: int
    loss: float
    layer_gradients: _containers.ScalarMap[str, bytes]
    signature: str
    ttl: int
    held_out: HeldOut
    opinions: _containers.RepeatedCompositeFieldContainer[Opinion]
    def __init__(self, node_id: _Optional[str] = ..., round_id: _Optional[int] = ..., model_hash: _Optional[str] = ..., timestamp: _Optional[float] = ..., batch_size: _Optional[int] = ..., loss: _Optional[float] = ..., layer_gradients: _Optional[_Mapping[str, bytes]] = ..., signature: _Optional[str] = ..., ttl: _Optional[int] = ..., held_out: _Optional[_Union[HeldOut, _Mapping[str, object]]] = ..., opinions: _Optional[_Iterable[_Union[Opinion, _Mapping[str, object]]]] = ...) -> None: ...

class HeldOut(_message.Message):
    __slots__ = ("previous_hash", "before", "after")
    PREVIOUS_HASH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    previous_hash: str
    before: float
    after: float
    def __init__(self, previous_hash: _Optional[str] = ..., before: _Optional[float] = ..., after: _Optional[float] = ...) -> None: ...

class Opinion(_message.Message):
    __slots__ = ("node_id", "assigned", "others")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    assigned: float
    others: float
    def __init__(self, node_id: _Optional[str] = ..., assigned: _Optional[float] = ..., others: _Optional[float] = ...) -> None: ...

class LayerCommand(_message.Message):
    __slots__ = ("action", "version", "source", "name", "feedback", "format", "parameters", "kept", "layer_gradients", "digests", "scales", "weights", "step", "tensors", "nodes", "model_hash", "first_row", "stop_row", "switched", "held_out_loss")
    class LayerGradientsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    ACTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    LAYER_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SCALES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    STOP_ROW_FIELD_NUMBER: _ClassVar[int]
    SWITCHED_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_LOSS_FIELD_NUMBER: _ClassVar[int]
    action: str
    version: str
    source: str
    name: str
    feedback: str
    format: int
    parameters: int
    kept: int
    layer_gradients: _containers.ScalarMap[str, bytes]
    digests: _containers.RepeatedScalarFieldContainer[str]
    scales: _containers.RepeatedScalarFieldContainer[float]
    weights: _containers.RepeatedScalarFieldContainer[float]
    step: int
    tensors: _containers.RepeatedCompositeFieldContainer[LayerTensor]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    model_hash: str
    first_row: int
    stop_row: int
    switched: bool
    held_out_loss: float
    def __init__(self, action: _Optional[str] = ..., version: _Optional[str] = ..., source: _Optional[str] = ..., name: _Optional[str] = ..., feedback: _Optional[str] = ..., format: _Optional[int] = ..., parameters: _Optional[int] = ..., kept: _Optional[int] = ..., layer_gradients: _Optional[_Mapping[str, bytes]] = ..., digests: _Optional[_Iterable[str]] = ..., scales: _Optional[_Iterable[float]] = ..., weights: _Optional[_Iterable[float]] = ..., step: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[LayerTensor, _Mapping[str, object]]]] = ..., nodes: _Optional[_Iterable[str]] = ..., model_hash: _Optional[str] = ..., first_row: _Optional[int] = ..., stop_row: _Optional[int] = ..., switched: _Optional[bool] = ..., held_out_loss: _Optional[float] = ...) -> None: ...

class LayerTensor(_message.Message):
    __slots__ = ("name", "shape", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    sha256: str
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., sha256: _Optional[str] = ...) -> None: ...

class LayerAnswer(_message.Message):
    __slots__ = ("missing", "layer_gradients", "tensors", "piece", "model_hashes", "waits", "tight")
    class LayerGradientsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    MISSING_FIELD_NUMBER: _ClassVar[int]
    LAYER_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASHES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    TIGHT_FIELD_NUMBER: _ClassVar[int]
    missing: str
    layer_gradients: _containers.ScalarMap[str, bytes]
    tensors: _containers.RepeatedCompositeFieldContainer[LayerTensor]
    piece: bytes
    model_hashes: _containers.RepeatedScalarFieldContainer[str]
    waits: str
    tight: bool
    def __init__(self, missing: _Optional[str] = ..., layer_gradients: _Optional[_Mapping[str, bytes]] = ..., tensors: _Optional[_Iterable[_Union[LayerTensor, _Mapping[str, object]]]] = ..., piece: _Optional[bytes] = ..., model_hashes: _Optional[_Iterable[str]] = ..., waits: _Optional[str] = ..., tight: _Optional[bool] = ...) -> None: ...

class GossipGradientResponse(_message.Message):
    __slots__ = ("accepted", "reason", "current_round")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CURRENT_ROUND_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    current_round: int
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., current_round: _Optional[int] = ...) -> None: ...

class WeightRequest(_message.Message):
    __slots__ = ("shard_range",)
    SHARD_RANGE_FIELD_NUMBER: _ClassVar[int]
    shard_range: str
    def __init__(self, shard_range: _Optional[str] = ...) -> None: ...

class WeightResponse(_message.Message):
    __slots__ = ("weights_data",)
    WEIGHTS_DATA_FIELD_NUMBER: _ClassVar[int]
    weights_data: bytes
    def __init__(self, weights_data: _Optional[bytes] = ...) -> None: ...

class GetCheckpointRequest(_message.Message):
    __slots__ = ("model_hash", "min_version")
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    MIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    model_hash: str
    min_version: int
    def __init__(self, model_hash: _Optional[str] = ..., min_version: _Optional[int] = ...) -> None: ...

class GetCheckpointResponse(_message.Message):
    __slots__ = ("success", "error_message", "version", "model_hash", "phase", "checkpoint_data", "total_size")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error_message: str
    version: int
    model_hash: str
    phase: str
    checkpoint_data: bytes
    total_size: int
    def __init__(self, success: _Optional[bool] = ..., error_message: _Optional[str] = ..., version: _Optional[int] = ..., model_hash: _Optional[str] = ..., phase: _Optional[str] = ..., checkpoint_data: _Optional[bytes] = ..., total_size: _Optional[int] = ...) -> None: ...

class GetCheckpointInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCheckpointInfoResponse(_message.Message):
    __slots__ = ("version", "model_hash", "phase", "params", "loss")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    version: int
    model_hash: str
    phase: str
    params: int
    loss: float
    def __init__(self, version: _Optional[int] = ..., model_hash: _Optional[str] = ..., phase: _Optional[str] = ..., params: _Optional[int] = ..., loss: _Optional[float] = ...) -> None: ...

class CheckpointChunk(_message.Message):
    __slots__ = ("checkpoint_id", "layer_idx", "param_name", "data", "chunk_idx", "total_chunks")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    LAYER_IDX_FIELD_NUMBER: _ClassVar[int]
    PARAM_NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHUNK_IDX_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    layer_idx: int
    param_name: str
    data: bytes
    chunk_idx: int
    total_chunks: int
    def __init__(self, checkpoint_id: _Optional[str] = ..., layer_idx: _Optional[int] = ..., param_name: _Optional[str] = ..., data: _Optional[bytes] = ..., chunk_idx: _Optional[int] = ..., total_chunks: _Optional[int] = ...) -> None: ...

class DHTNodeInfo(_message.Message):
    __slots__ = ("node_id", "ip", "port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    ip: str
    port: int
    def __init__(self, node_id: _Optional[bytes] = ..., ip: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class DHTPingRequest(_message.Message):
    __slots__ = ("sender",)
    SENDER_FIELD_NUMBER: _ClassVar[int]
    sender: DHTNodeInfo
    def __init__(self, sender: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ...) -> None: ...

class DHTPingResponse(_message.Message):
    __slots__ = ("responder",)
    RESPONDER_FIELD_NUMBER: _ClassVar[int]
    responder: DHTNodeInfo
    def __init__(self, responder: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ...) -> None: ...

class DHTFindNodeRequest(_message.Message):
    __slots__ = ("sender", "target_id")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    sender: DHTNodeInfo
    target_id: bytes
    def __init__(self, sender: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ..., target_id: _Optional[bytes] = ...) -> None: ...

class DHTFindNodeResponse(_message.Message):
    __slots__ = ("responder", "nodes")
    RESPONDER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    responder: DHTNodeInfo
    nodes: _containers.RepeatedCompositeFieldContainer[DHTNodeInfo]
    def __init__(self, responder: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ..., nodes: _Optional[_Iterable[_Union[DHTNodeInfo, _Mapping[str, object]]]] = ...) -> None: ...

class DHTFindValueRequest(_message.Message):
    __slots__ = ("sender", "key")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    sender: DHTNodeInfo
    key: bytes
    def __init__(self, sender: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ..., key: _Optional[bytes] = ...) -> None: ...

class DHTFindValueResponse(_message.Message):
    __slots__ = ("responder", "value", "nodes", "found")
    RESPONDER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    responder: DHTNodeInfo
    value: str
    nodes: _containers.RepeatedCompositeFieldContainer[DHTNodeInfo]
    found: bool
    def __init__(self, responder: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ..., value: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[DHTNodeInfo, _Mapping[str, object]]]] = ..., found: _Optional[bool] = ...) -> None: ...

class DHTStoreRequest(_message.Message):
    __slots__ = ("sender", "key", "value")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    sender: DHTNodeInfo
    key: bytes
    value: str
    def __init__(self, sender: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ..., key: _Optional[bytes] = ..., value: _Optional[str] = ...) -> None: ...

class DHTStoreResponse(_message.Message):
    __slots__ = ("responder", "success")
    RESPONDER_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    responder: DHTNodeInfo
    success: bool
    def __init__(self, responder: _Optional[_Union[DHTNodeInfo, _Mapping[str, object]]] = ..., success: _Optional[bool] = ...) -> None: ...

class SignedStatement(_message.Message):
    __slots__ = ("body", "public_key", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    public_key: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class GossipProofRequest(_message.Message):
    __slots__ = ("proof", "sender_id", "ttl")
    PROOF_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    proof: SignedStatement
    sender_id: str
    ttl: int
    def __init__(self, proof: _Optional[_Union[SignedStatement, _Mapping[str, object]]] = ..., sender_id: _Optional[str] = ..., ttl: _Optional[int] = ...) -> None: ...

class GossipProofResponse(_message.Message):
    __slots__ = ("accepted", "reason", "proof_id")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROOF_ID_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    proof_id: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., proof_id: _Optional[str] = ...) -> None: ...

class ProofValidationRequest(_message.Message):
    __slots__ = ("proof_id", "validator_id", "proof")
    PROOF_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_ID_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    proof_id: str
    validator_id: str
    proof: SignedStatement
    def __init__(self, proof_id: _Optional[str] = ..., validator_id: _Optional[str] = ..., proof: _Optional[_Union[SignedStatement, _Mapping[str, object]]] = ...) -> None: ...

class ProofValidationResponse(_message.Message):
    __slots__ = ("success", "error_message", "input_states", "input_shape", "attention_mask", "position_ids", "past_key_values", "output_states", "output_shape")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    INPUT_STATES_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_MASK_FIELD_NUMBER: _ClassVar[int]
    POSITION_IDS_FIELD_NUMBER: _ClassVar[int]
    PAST_KEY_VALUES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_STATES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error_message: str
    input_states: bytes
    input_shape: _containers.RepeatedScalarFieldContainer[int]
    attention_mask: bytes
    position_ids: bytes
    past_key_values: _containers.RepeatedScalarFieldContainer[bytes]
    output_states: bytes
    output_shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, success: _Optional[bool] = ..., error_message: _Optional[str] = ..., input_states: _Optional[bytes] = ..., input_shape: _Optional[_Iterable[int]] = ..., attention_mask: _Optional[bytes] = ..., position_ids: _Optional[bytes] = ..., past_key_values: _Optional[_Iterable[bytes]] = ..., output_states: _Optional[bytes] = ..., output_shape: _Optional[_Iterable[int]] = ...) -> None: ...

class ValidationVoteRequest(_message.Message):
    __slots__ = ("vote", "sender_id", "ttl")
    VOTE_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    vote: SignedStatement
    sender_id: str
    ttl: int
    def __init__(self, vote: _Optional[_Union[SignedStatement, _Mapping[str, object]]] = ..., sender_id: _Optional[str] = ..., ttl: _Optional[int] = ...) -> None: ...

class ValidationVoteResponse(_message.Message):
    __slots__ = ("accepted", "reason", "proof_status")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROOF_STATUS_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    proof_status: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., proof_status: _Optional[str] = ...) -> None: ...

class GossipTransactionRequest(_message.Message):
    __slots__ = ("transaction", "sender_id", "ttl")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    transaction: bytes
    sender_id: str
    ttl: int
    def __init__(self, transaction: _Optional[bytes] = ..., sender_id: _Optional[str] = ..., ttl: _Optional[int] = ...) -> None: ...

class GossipTransactionResponse(_message.Message):
    __slots__ = ("accepted", "reason", "transaction_hash", "application_id")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_HASH_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    transaction_hash: str
    application_id: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., transaction_hash: _Optional[str] = ..., application_id: _Optional[str] = ...) -> None: ...

class GossipStakeRequest(_message.Message):
    __slots__ = ("transaction", "sender_id", "ttl")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    transaction: bytes
    sender_id: str
    ttl: int
    def __init__(self, transaction: _Optional[bytes] = ..., sender_id: _Optional[str] = ..., ttl: _Optional[int] = ...) -> None: ...

class GossipStakeResponse(_message.Message):
    __slots__ = ("accepted", "reason", "transaction_hash", "application_id")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_HASH_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    transaction_hash: str
    application_id: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., transaction_hash: _Optional[str] = ..., application_id: _Optional[str] = ...) -> None: ...

class GetShardInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetShardInfoResponse(_message.Message):
    __slots__ = ("node_id", "role", "version", "model_name", "model_hash", "total_layers", "layers", "has_embedding", "has_head", "hidden_dim", "vocab_size", "context_length", "capacity", "numeric_class", "origin_hash", "weights_version", "model_hashes", "layer_ms", "move", "leaving")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_LAYERS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    HAS_EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    HAS_HEAD_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_DIM_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    NUMERIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_HASH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASHES_FIELD_NUMBER: _ClassVar[int]
    LAYER_MS_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    role: str
    version: str
    model_name: str
    model_hash: str
    total_layers: int
    layers: _containers.RepeatedScalarFieldContainer[int]
    has_embedding: bool
    has_head: bool
    hidden_dim: int
    vocab_size: int
    context_length: int
    capacity: NodeCapacity
    numeric_class: str
    origin_hash: str
    weights_version: int
    model_hashes: _containers.RepeatedScalarFieldContainer[str]
    layer_ms: float
    move: LayerMove
    leaving: bool
    def __init__(self, node_id: _Optional[str] = ..., role: _Optional[str] = ..., version: _Optional[str] = ..., model_name: _Optional[str] = ..., model_hash: _Optional[str] = ..., total_layers: _Optional[int] = ..., layers: _Optional[_Iterable[int]] = ..., has_embedding: _Optional[bool] = ..., has_head: _Optional[bool] = ..., hidden_dim: _Optional[int] = ..., vocab_size: _Optional[int] = ..., context_length: _Optional[int] = ..., capacity: _Optional[_Union[NodeCapacity, _Mapping[str, object]]] = ..., numeric_class: _Optional[str] = ..., origin_hash: _Optional[str] = ..., weights_version: _Optional[int] = ..., model_hashes: _Optional[_Iterable[str]] = ..., layer_ms: _Optional[float] = ..., move: _Optional[_Union[LayerMove, _Mapping[str, object]]] = ..., leaving: _Optional[bool] = ...) -> None: ...

class LayerMove(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class NodeCapacity(_message.Message):
    __slots__ = ("memory_total", "memory_used", "kv_total", "kv_used", "queue_depth", "active_sessions", "max_batch", "tokens_per_second", "session_messages")
    MEMORY_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    KV_TOTAL_FIELD_NUMBER: _ClassVar[int]
    KV_USED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SESSION_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    memory_total: int
    memory_used: int
    kv_total: int
    kv_used: int
    queue_depth: int
    active_sessions: int
    max_batch: int
    tokens_per_second: float
    session_messages: int
    def __init__(self, memory_total: _Optional[int] = ..., memory_used: _Optional[int] = ..., kv_total: _Optional[int] = ..., kv_used: _Optional[int] = ..., queue_depth: _Optional[int] = ..., active_sessions: _Optional[int] = ..., max_batch: _Optional[int] = ..., tokens_per_second: _Optional[float] = ..., session_messages: _Optional[int] = ...) -> None: ...

class SwarmForwardRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hidden_states", "hidden_shape", "attention_mask", "position_ids", "use_cache", "route", "answer_to", "reports", "answer")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_STATES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SHAPE_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_MASK_FIELD_NUMBER: _ClassVar[int]
    POSITION_IDS_FIELD_NUMBER: _ClassVar[int]
    USE_CACHE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TO_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hidden_states: bytes
    hidden_shape: _containers.RepeatedScalarFieldContainer[int]
    attention_mask: bytes
    position_ids: bytes
    use_cache: bool
    route: _containers.RepeatedCompositeFieldContainer[SwarmHop]
    answer_to: str
    reports: _containers.RepeatedCompositeFieldContainer[SwarmHopReport]
    answer: SwarmForwardResponse
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hidden_states: _Optional[bytes] = ..., hidden_shape: _Optional[_Iterable[int]] = ..., attention_mask: _Optional[bytes] = ..., position_ids: _Optional[bytes] = ..., use_cache: _Optional[bool] = ..., route: _Optional[_Iterable[_Union[SwarmHop, _Mapping[str, object]]]] = ..., answer_to: _Optional[str] = ..., reports: _Optional[_Iterable[_Union[SwarmHopReport, _Mapping[str, object]]]] = ..., answer: _Optional[_Union[SwarmForwardResponse, _Mapping[str, object]]] = ...) -> None: ...

class SwarmHop(_message.Message):
    __slots__ = ("node_id", "address", "first_layer", "last_layer")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    LAST_LAYER_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    address: str
    first_layer: int
    last_layer: int
    def __init__(self, node_id: _Optional[str] = ..., address: _Optional[str] = ..., first_layer: _Optional[int] = ..., last_layer: _Optional[int] = ...) -> None: ...

class SwarmForwardResponse(_message.Message):
    __slots__ = ("request_id", "success", "error_message", "logits", "logits_shape", "hops", "logit_ids", "delivered")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOGITS_FIELD_NUMBER: _ClassVar[int]
    LOGITS_SHAPE_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_IDS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    success: bool
    error_message: str
    logits: bytes
    logits_shape: _containers.RepeatedScalarFieldContainer[int]
    hops: _containers.RepeatedCompositeFieldContainer[SwarmHopReport]
    logit_ids: bytes
    delivered: bool
    def __init__(self, request_id: _Optional[str] = ..., success: _Optional[bool] = ..., error_message: _Optional[str] = ..., logits: _Optional[bytes] = ..., logits_shape: _Optional[_Iterable[int]] = ..., hops: _Optional[_Iterable[_Union[SwarmHopReport, _Mapping[str, object]]]] = ..., logit_ids: _Optional[bytes] = ..., delivered: _Optional[bool] = ...) -> None: ...

class SwarmHopReport(_message.Message):
    __slots__ = ("node_id", "first_layer", "last_layer", "queue_ms", "compute_ms", "network_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    LAST_LAYER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    first_layer: int
    last_layer: int
    queue_ms: float
    compute_ms: float
    network_ms: float
    def __init__(self, node_id: _Optional[str] = ..., first_layer: _Optional[int] = ..., last_layer: _Optional[int] = ..., queue_ms: _Optional[float] = ..., compute_ms: _Optional[float] = ..., network_ms: _Optional[float] = ...) -> None: ...

class SwarmStatusRequest(_message.Message):
    __slots__ = ("only_training",)
    ONLY_TRAINING_FIELD_NUMBER: _ClassVar[int]
    only_training: bool
    def __init__(self, only_training: _Optional[bool] = ...) -> None: ...

class SwarmStatusResponse(_message.Message):
    __slots__ = ("node_id", "status", "role", "model_hash", "total_layers", "layers", "capacity", "peers", "training")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_LAYERS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    status: str
    role: str
    model_hash: str
    total_layers: int
    layers: _containers.RepeatedScalarFieldContainer[int]
    capacity: NodeCapacity
    peers: _containers.RepeatedCompositeFieldContainer[SwarmPeer]
    training: TrainingStatus
    def __init__(self, node_id: _Optional[str] = ..., status: _Optional[str] = ..., role: _Optional[str] = ..., model_hash: _Optional[str] = ..., total_layers: _Optional[int] = ..., layers: _Optional[_Iterable[int]] = ..., capacity: _Optional[_Union[NodeCapacity, _Mapping[str, object]]] = ..., peers: _Optional[_Iterable[_Union[SwarmPeer, _Mapping[str, object]]]] = ..., training: _Optional[_Union[TrainingStatus, _Mapping[str, object]]] = ...) -> None: ...

class TrainingStatus(_message.Message):
    __slots__ = ("round_id", "state", "version", "model_hash", "pending_version", "pending_hash", "contributions", "figures", "momentum_hash", "left_s")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    PENDING_VERSION_FIELD_NUMBER: _ClassVar[int]
    PENDING_HASH_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_HASH_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    state: str
    version: int
    model_hash: str
    pending_version: int
    pending_hash: str
    contributions: _containers.RepeatedCompositeFieldContainer[ContributionNotice]
    figures: TrainingFigures
    momentum_hash: str
    left_s: float
    def __init__(self, round_id: _Optional[int] = ..., state: _Optional[str] = ..., version: _Optional[int] = ..., model_hash: _Optional[str] = ..., pending_version: _Optional[int] = ..., pending_hash: _Optional[str] = ..., contributions: _Optional[_Iterable[_Union[ContributionNotice, _Mapping[str, object]]]] = ..., figures: _Optional[_Union[TrainingFigures, _Mapping[str, object]]] = ..., momentum_hash: _Optional[str] = ..., left_s: _Optional[float] = ...) -> None: ...

class ContributionNotice(_message.Message):
    __slots__ = ("node_id", "digests")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_id: _Optional[str] = ..., digests: _Optional[_Iterable[str]] = ...) -> None: ...

class TrainingFigures(_message.Message):
    __slots__ = ("loss", "validation_loss", "steps", "tokens", "rounds", "successful_syncs", "failed_syncs", "data_shards")
    LOSS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_LOSS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSFUL_SYNCS_FIELD_NUMBER: _ClassVar[int]
    FAILED_SYNCS_FIELD_NUMBER: _ClassVar[int]
    DATA_SHARDS_FIELD_NUMBER: _ClassVar[int]
    loss: float
    validation_loss: float
    steps: int
    tokens: int
    rounds: int
    successful_syncs: int
    failed_syncs: int
    data_shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, loss: _Optional[float] = ..., validation_loss: _Optional[float] = ..., steps: _Optional[int] = ..., tokens: _Optional[int] = ..., rounds: _Optional[int] = ..., successful_syncs: _Optional[int] = ..., failed_syncs: _Optional[int] = ..., data_shards: _Optional[_Iterable[int]] = ...) -> None: ...

class SwarmPeer(_message.Message):
    __slots__ = ("node_id", "address", "role", "layers", "latency_ms", "capacity")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    address: str
    role: str
    layers: _containers.RepeatedScalarFieldContainer[int]
    latency_ms: float
    capacity: NodeCapacity
    def __init__(self, node_id: _Optional[str] = ..., address: _Optional[str] = ..., role: _Optional[str] = ..., layers: _Optional[_Iterable[int]] = ..., latency_ms: _Optional[float] = ..., capacity: _Optional[_Union[NodeCapacity, _Mapping[str, object]]] = ...) -> None: ...

class UpdatePeerCapacityRequest(_message.Message):
    __slots__ = ("node_id", "address", "layers", "capacity", "timestamp")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    address: str
    layers: _containers.RepeatedScalarFieldContainer[int]
    capacity: NodeCapacity
    timestamp: float
    def __init__(self, node_id: _Optional[str] = ..., address: _Optional[str] = ..., layers: _Optional[_Iterable[int]] = ..., capacity: _Optional[_Union[NodeCapacity, _Mapping[str, object]]] = ..., timestamp: _Optional[float] = ...) -> None: ...

class UpdatePeerCapacityResponse(_message.Message):
    __slots__ = ("accepted", "reason")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...
