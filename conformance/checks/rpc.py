"""Interface 1, 2.3, 4.3 and 7.3: the service, its checkpoints, weights, gossip and pipeline.

Only documented messages are judged. For an operation whose messages are not specified, an empty
message is sent and only the status is judged.
"""

import time
import uuid
from typing import Any

from google.protobuf.message import Message
from hypothesis import strategies as st

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.checks.answers import (
    DOCUMENTED_CODES,
    OF_AUTHENTICATION,
    UNKNOWN,
    is_named,
    judge_failure_reason,
    judge_message,
    judge_operation,
    judge_pass_reason,
    other_name,
)
from conformance.checks.dht import SENDER
from conformance.checks.numbers import judge_necessary
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.frames import LZ4_MAGIC, frame_fault
from conformance.grpcwire import NO_MESSAGE, Reply
from conformance.registry import requirement
from conformance.strictjson import brief
from conformance.target import documented_grpc_address
from conformance.unpacking import content_fault

# A round beyond that of any checkpoint, and below the largest int32.
FAR_ROUND = 2_000_000_000
# The first edition that asks for odd versions, for own hashes but for their ends, and for a session
# that nobody knows of a layer that is here.
ODD_SINCE = 4
# A request for a checkpoint is repeated, since a training node may be replacing it.
RETRIES, RETRY_AFTER_S = 4, 0.5


@requirement("GEN-002", "GR-NAME-001", "GR-NAME-002", "NA-AUTH-016")
def grpc_service(context: Context) -> None:
    """Call one documented operation, and one that the service does not have."""
    reply = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
    context.service.reachable = True
    context.holds("NA-AUTH-016", reply)
    if context.edition > 1 and not is_named(context):
        found = other_name(context)
        why = (
            f"it answers as {found[0]}" if found else "none of its operations is known by its name"
        )
        context.fails("GR-NAME-001", why, reply, *([found[1]] if found else []))
        return
    if context.grpc.address == documented_grpc_address(context.target.url):
        context.holds("GEN-002", reply)
    other = context.grpc.call("DHTPing", messages.make("DHTPingRequest"))
    # Any other status means that the server knows the service by its name.
    for known in (reply, other):
        if known.code != UNKNOWN:
            context.holds("GR-NAME-001", known)
    missing = context.grpc.call("NoSuchOperation", b"")
    # A client makes an error of OK without a message.
    empty = context.edition >= SIXTH and missing.details == NO_MESSAGE
    context.judge("GR-NAME-002", not missing.ok and not empty, "it was answered with OK", missing)


_INFO = fields_of_message("GetCheckpointInfoResponse")
_CHECKPOINT = (
    *fields_of_message("GetCheckpointRequest", "GetCheckpointResponse"),
    *(f"GR-CKPT-{number:03d}" for number in (1, 2, 3, 5, 6, 10, 12, 13, 14, 15, 30)),
    "GR-SANE-010",
    "GR-NUM-001",
    "GR-SANE-001",
)


@requirement(
    "GR-OP-006",
    "GR-CKPT-004",
    "GR-CKPT-007",
    "GR-CKPT-011",
    "GR-NUM-001",
    "GR-SANE-002",
    "GR-SANE-012",
    *_INFO,
)
def get_checkpoint_info(context: Context) -> None:
    """Call GetCheckpointInfo, GetCheckpoint, and GetCheckpointInfo again."""
    before = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
    answered = judge_operation(context, "GR-OP-006", before)
    if before.code in ("OK", "INVALID_ARGUMENT"):
        context.judge("GR-CKPT-007", answered, f"status {before.code} to an empty request", before)
    if not answered:
        raise Skipped(f"GetCheckpointInfo ended with {before.code}")
    info = judge_message(context, "GetCheckpointInfoResponse", before)
    given = context.grpc.call("GetCheckpoint", messages.make("GetCheckpointRequest"))
    after = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
    if info is None or not given.ok or before.body != after.body:
        return
    try:
        checkpoint = messages.parse("GetCheckpointResponse", given.body)
    except messages.BadMessage:
        return
    if checkpoint.success:
        told = (info.version, info.model_hash, info.phase)
        has = (checkpoint.version, checkpoint.model_hash, checkpoint.phase)
        why = f"GetCheckpointInfo has {brief(told)}, GetCheckpoint has {brief(has)}"
        context.judge("GR-CKPT-004", told == has, why, before, given, after)
        for name, one, other, reply in (
            ("GetCheckpointInfoResponse", info, checkpoint, before),
            ("GetCheckpointResponse", checkpoint, info, given),
        ):
            both = ("version", "model_hash", "phase")
            needed = {key: bool(getattr(one, key)) for key in both if getattr(other, key)}
            judge_necessary(context, name, needed, reply.body, reply)
    if info.model_hash:
        why = f"params is {info.params}"
        context.judge("GR-CKPT-011", info.params > 0, why, before)
        needed = {"params": info.params != 0}
        judge_necessary(context, "GetCheckpointInfoResponse", needed, before.body, before)


@requirement("GR-OP-005", "GR-CODE-015", *_CHECKPOINT)
def get_checkpoint(context: Context) -> None:
    """Call GetCheckpoint with no condition, and with known and unknown hashes and versions."""
    reply, checkpoint = _checkpoint(context)
    for _ in range(RETRIES):
        if checkpoint is None or checkpoint.success:
            break
        time.sleep(RETRY_AFTER_S)
        reply, checkpoint = _checkpoint(context)
    if checkpoint is not None and checkpoint.success:
        size = len(checkpoint.checkpoint_data)
        context.judge("GR-CKPT-005", size > 0, "checkpoint_data is empty", reply)
        why = f"total_size is {checkpoint.total_size}"
        context.judge("GR-CKPT-010", checkpoint.total_size > 0, why, reply)
        needed = {"checkpoint_data": size > 0, "total_size": checkpoint.total_size != 0}
        judge_necessary(context, "GetCheckpointResponse", needed, reply.body, reply)
        context.observe(
            "GR-CKPT-006", f"total_size {checkpoint.total_size}, {size} bytes of data", reply
        )
        if context.edition >= ODD_SINCE and size:
            begins = checkpoint.checkpoint_data[: len(LZ4_MAGIC)]
            why = f"checkpoint_data begins with {begins.hex()}, not like an LZ4 frame"
            context.judge("GR-CKPT-014", begins == LZ4_MAGIC, why, reply)
            if context.edition >= SIXTH and begins == LZ4_MAGIC:
                fault = frame_fault(checkpoint.checkpoint_data)
                if fault is None and context.edition >= SEVENTH:
                    fault = content_fault(checkpoint.checkpoint_data)
                context.judge("GR-CKPT-014", fault is None, f"checkpoint_data: {fault}", reply)
        if context.edition >= SIXTH:
            lacking = [key for key in ("model_hash", "phase") if not getattr(checkpoint, key)]
            why = f"a checkpoint of version {checkpoint.version} has no {' and no '.join(lacking)}"
            context.judge("GR-CKPT-030", not lacking, why, reply)
        if checkpoint.model_hash:
            same = _by_hash(context, checkpoint.model_hash)
            _judge_given(context, checkpoint, same, f"model_hash {checkpoint.model_hash}")
        same = _by_version(context, checkpoint.version)
        _judge_given(context, checkpoint, same, f"min_version {checkpoint.version}")
        if context.edition >= ODD_SINCE and checkpoint.version < FAR_ROUND:
            _by_version(context, checkpoint.version + 1)
        if checkpoint.model_hash and context.edition >= ODD_SINCE:
            name, version = checkpoint.model_hash, checkpoint.version
            both = _checkpoint(context, model_hash=name, min_version=version)
            _judge_given(context, checkpoint, both, "its own hash and version together")
            _by_hash(context, name[:-4] + ("0000" if name[-4:] != "0000" else "1111"))
    _by_hash(context, uuid.uuid4().hex, invented=True)
    far_reply, far = _by_version(context, FAR_ROUND)
    if context.edition >= ODD_SINCE and checkpoint is not None and far is not None:
        served = checkpoint.success and far.success
        echoed = served and far.version >= FAR_ROUND > checkpoint.version
        if echoed and far.checkpoint_data == checkpoint.checkpoint_data:
            why = f"the checkpoint of version {checkpoint.version} is returned as {far.version}"
            context.fails("GR-CKPT-001", why, reply, far_reply)
    if context.edition >= ODD_SINCE:
        # A number that a reader of another type takes for a negative one, and a negative one.
        _by_version(context, FAR_ROUND + 1)
        _by_version(context, -1)


def _checkpoint(context: Context, **fields: object) -> tuple[Reply, Any | None]:
    reply = context.grpc.call(
        "GetCheckpoint", messages.make("GetCheckpointRequest", **fields), timeout_s=60
    )
    if not judge_operation(context, "GR-OP-005", reply):
        if reply.code == UNKNOWN:
            raise Skipped("GetCheckpoint is not implemented")
        if context.edition >= ODD_SINCE and fields and reply.code in ("INTERNAL", "UNKNOWN"):
            why = f"a checkpoint that fulfils {brief(fields)} ends with {reply.code}"
            context.fails("GR-CODE-015", f"{why}: {reply.details}", reply)
        return reply, None
    checkpoint = judge_message(context, "GetCheckpointResponse", reply)
    if checkpoint is not None:
        if not checkpoint.success:
            needed = {"error_message": bool(checkpoint.error_message)}
            if not checkpoint.error_message and checkpoint.checkpoint_data:
                needed = {"success": False}
            judge_necessary(context, "GetCheckpointResponse", needed, reply.body, reply)
        judge_failure_reason(
            context,
            "GR-CKPT-003",
            reply,
            refused=not checkpoint.success,
            reason=checkpoint.error_message,
            key="error_message",
        )
    return reply, checkpoint


def _judge_given(
    context: Context, known: Any, asked: tuple[Reply, Any | None], condition: str
) -> None:
    """Rule on a request whose condition the checkpoint fulfils that the node has just returned."""
    reply, found = asked
    served = found is not None and found.success
    if not served and (found is not None or reply.code == "NOT_FOUND"):
        # It may have been replaced by another one in between.
        _, again = _checkpoint(context)
        if again is None or not again.success:
            return
        if (again.model_hash, again.version) != (known.model_hash, known.version):
            return
    elif not served:
        return
    if found is not None and served and found.model_hash == known.model_hash:
        why = f"that of version {known.version} has version {found.version} by {condition}"
        context.judge("GR-CKPT-015", found.version >= known.version, why, reply)
    context.judge("GR-CKPT-012", served, f"the checkpoint with {condition} is refused", reply)


def _by_hash(
    context: Context, model_hash: str, *, invented: bool = False
) -> tuple[Reply, Any | None]:
    reply, checkpoint = _checkpoint(context, model_hash=model_hash)
    if checkpoint is not None and checkpoint.success:
        held = checkpoint.model_hash == model_hash
        if context.edition >= ODD_SINCE and invented:
            # Nothing has this hash, whatever the answer says.
            held = False
        why = f"requested {brief(model_hash)}, got {brief(checkpoint.model_hash)}"
        context.judge("GR-CKPT-002", held, why, reply)
        context.judge("GR-GET-CHECKPOINT-REQUEST-01", held, why, reply)
    elif checkpoint is not None or reply.code in ("NOT_FOUND", "INVALID_ARGUMENT"):
        context.holds("GR-CKPT-002", reply)
        context.holds("GR-GET-CHECKPOINT-REQUEST-01", reply)
    return reply, checkpoint


def _by_version(context: Context, version: int) -> tuple[Reply, Any | None]:
    reply, checkpoint = _checkpoint(context, min_version=version)
    if checkpoint is not None and checkpoint.success:
        held = checkpoint.version >= version
        why = f"requested at least {version}, got {checkpoint.version}"
        context.judge("GR-CKPT-001", held, why, reply)
        context.judge("GR-GET-CHECKPOINT-REQUEST-02", held, why, reply)
    elif checkpoint is not None or reply.code in ("NOT_FOUND", "INVALID_ARGUMENT"):
        context.holds("GR-CKPT-001", reply)
        context.holds("GR-GET-CHECKPOINT-REQUEST-02", reply)
    return reply, checkpoint


@requirement("GR-CODE-001")
def grpc_codes(context: Context) -> None:
    """Send generated messages to the operations that only read, and judge the status codes."""
    requests = st.one_of(
        st.builds(
            lambda model_hash, version: (
                "GetCheckpoint",
                messages.make("GetCheckpointRequest", model_hash=model_hash, min_version=version),
            ),
            st.text("0123456789abcdef", max_size=64),
            # Far rounds only, or every call would download a checkpoint.
            st.integers(FAR_ROUND, 2**31 - 1),
        ),
        st.binary(min_size=20, max_size=20).map(
            lambda key: ("DHTFindValue", messages.make("DHTFindValueRequest", key=key))
        ),
        st.binary(min_size=20, max_size=20).map(
            lambda key: ("DHTFindNode", messages.make("DHTFindNodeRequest", target_id=key))
        ),
    )

    def call(request: tuple[str, Message]) -> None:
        reply = context.grpc.call(*request)
        # Whether the operation exists is a requirement of its own.
        # Authentication over gRPC is not specified, and neither are its statuses.
        if reply.code not in (UNKNOWN, *OF_AUTHENTICATION):
            context.judge(
                "GR-CODE-001", reply.code in DOCUMENTED_CODES, f"status {reply.code}", reply
            )

    explore(context, requests, call)
    if context.edition >= ODD_SINCE:
        # A sender is missing here, which is no field that a message must have.
        for operation in ("DHTPing", "DHTFindNode", "DHTFindValue", "GetCheckpointInfo"):
            call((operation, messages.make(f"{operation}Request")))


# The readable operations, with a request that the document shows.
READABLE = {
    "GetCheckpointInfo": messages.make("GetCheckpointInfoRequest"),
    "GetCheckpoint": messages.make("GetCheckpointRequest"),
    "DHTPing": messages.make("DHTPingRequest", sender=SENDER),
    "DHTFindNode": messages.make("DHTFindNodeRequest", sender=SENDER, target_id=b"t" * 20),
    "DHTFindValue": messages.make("DHTFindValueRequest", sender=SENDER, key=b"k" * 20),
}
SERVED = ("OK", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE")


@requirement("GR-CODE-010")
def grpc_served(context: Context) -> None:
    """Call the readable operations with the documented requests, a second time after an error."""
    for operation, request in READABLE.items():
        reply = context.grpc.call(operation, request, timeout_s=60)
        if reply.code not in SERVED:
            reply = context.grpc.call(operation, request, timeout_s=60)
        if reply.code not in (UNKNOWN, *OF_AUTHENTICATION):
            why = f"{operation} ends with {reply.code}: {reply.details}"
            context.judge("GR-CODE-010", reply.code in SERVED, why, reply)


_FORWARD = fields_of_message("PipelineForwardResponse")
_BACKWARD = fields_of_message("PipelineBackwardResponse")


@requirement(
    "GR-OP-012", "PL-FWD-001", "PL-FWD-002", "PL-FWD-003", "PL-FWD-004", "GR-SANE-011", *_FORWARD
)
def pipeline_forward(context: Context) -> None:
    """Send a forward pass with an invalid tensor, which must fail in a documented way."""
    ident = f"conformance-{uuid.uuid4().hex}"
    reply = context.grpc.call(
        "PipelineForward",
        messages.make(
            "PipelineForwardRequest",
            session_id=ident,
            request_id=ident,
            hidden_states=b"not a tensor",
            hidden_shape=[1, 1, 1],
        ),
    )
    if not judge_operation(context, "GR-OP-012", reply):
        return
    answer = judge_message(context, "PipelineForwardResponse", reply)
    if answer is None:
        return
    judge_pass_reason(context, answer, reply)
    context.judge(
        "PL-FWD-002", answer.is_final or not answer.logits, "logits without is_final", reply
    )
    if answer.success:
        data = bool(answer.logits or answer.hidden_states)
        context.judge("PL-FWD-004", data, "success without hidden_states or logits", reply)
    context.judge(
        "PL-FWD-003", answer.request_id == ident, f"it is {brief(answer.request_id)}", reply
    )


@requirement("GR-OP-013", "PL-BWD-001", "GR-NUM-001", *_BACKWARD)
def pipeline_backward(context: Context) -> None:
    """Send a backward pass for a session that does not exist."""
    ident = f"conformance-{uuid.uuid4().hex}"
    # For a layer that is not here, nobody would look for the session.
    held = context.target.pipeline.get("shard", 0) if context.edition >= ODD_SINCE else 0
    request = messages.make(
        "PipelineBackwardRequest", session_id=ident, request_id=ident, target_shard=held
    )
    reply = context.grpc.call("PipelineBackward", request)
    if not judge_operation(context, "GR-OP-013", reply):
        return
    answer = judge_message(context, "PipelineBackwardResponse", reply)
    if answer is not None:
        judge_failure_reason(
            context,
            "PL-BWD-001",
            reply,
            refused=not answer.success,
            reason=answer.error_message,
            key="error_message",
        )
        if not answer.success:
            needed = {"error_message": bool(answer.error_message)}
            judge_necessary(context, "PipelineBackwardResponse", needed, reply.body, reply)
