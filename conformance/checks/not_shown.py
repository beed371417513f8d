"""Interface 4.3: the operations whose messages are not shown. All take an empty message."""

from conformance.checks.answers import UNKNOWN, is_named, judge_operation
from conformance.checks.mixed_passes import BUSY, FAILED
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.registry import requirement

BLAMES = "GR-CODE-015"
NOT_SHOWN = {
    "GR-OP-002": "UnaryInference",
    "GR-OP-007": "GossipProof",
    "GR-OP-008": "GossipTransaction",
    "GR-OP-009": "GossipStake",
    "GR-OP-010": "RequestProofValidation",
    "GR-OP-011": "GossipValidationVote",
    "GR-OP-014": "GetShardInfo",
    "GR-OP-019": "SwarmForward",
    "GR-OP-020": "GetSwarmStatus",
    "GR-OP-021": "UpdatePeerCapacity",
}


@requirement("GR-OP-001", "GR-NAME-001", BLAMES, *NOT_SHOWN)
def operations_not_shown(context: Context) -> None:
    """Call the operations whose messages are not specified, with an empty message."""
    if context.edition > 1 and not is_named(context):
        raise Skipped("the service has another name, which GR-NAME-001 reports")
    replies = {ident: context.grpc.call(name, b"") for ident, name in NOT_SHOWN.items()}
    for ident, reply in replies.items():
        judge_operation(context, ident, reply)
        if context.edition >= FIFTH and reply.code not in BUSY:
            why = f"an empty message, as any operation takes, ends with {reply.code}"
            context.judge(BLAMES, reply.code not in FAILED, why, reply)
    # Last, since a stream that is never answered would leave the others without a verdict.
    replies["GR-OP-001"] = context.grpc.call_stream("StreamInference", b"")
    judge_operation(context, "GR-OP-001", replies["GR-OP-001"])
    documented = [context.grpc.call(name, b"") for name in ("GetCheckpointInfo", "DHTPing")]
    tried = [*replies.values(), *documented]
    why = "none of these operations is known by its name"
    context.judge("GR-NAME-001", any(item.code != UNKNOWN for item in tried), why, *tried)
