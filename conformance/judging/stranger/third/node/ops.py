"""The operations whose messages the interface leaves open."""

import grpc

import core
import counters
import model
import node_pb2 as pb
from core import peculiar
from fail import Fail

MEMBERS = {}


def inference_soft(request):
    if not request.prompt:
        return pb.InferenceResponse(session_id=request.session_id, success=False, error_message="no prompt")
    tokens, text, _ = model.generate(request.prompt, min(max(request.max_tokens, 0) or 32, 512), [])
    counters.inference(len(tokens), 1.0)
    return pb.InferenceResponse(session_id=request.session_id, success=True, text=text, tokens=len(tokens))


def inference(request):
    if not request.prompt:
        raise Fail(grpc.StatusCode.INVALID_ARGUMENT, "no prompt")
    return inference_soft(request)


def proof(request):
    if not request.proof_id:
        return pb.GossipProofResponse(accepted=False, reason="proof_id is missing")
    return pb.GossipProofResponse(accepted=False, reason="the proof cannot be checked")


def transaction(request):
    if peculiar("open-ops-invalid") and not request.transaction:
        raise Fail(grpc.StatusCode.INVALID_ARGUMENT, "no transaction")
    return pb.GossipTransactionResponse(accepted=False, reason="the transaction is not signed")


def stake(request):
    if peculiar("open-ops-invalid") and not request.node_id:
        raise Fail(grpc.StatusCode.INVALID_ARGUMENT, "no node_id")
    return pb.GossipStakeResponse(accepted=False, reason="the stake is not signed")


def validation(request):
    return pb.ProofValidationResponse(valid=False, reason="the proof cannot be checked")


def vote(request):
    return pb.ValidationVoteResponse(accepted=False, reason="no such proof is open")


def shard_info(request):
    return pb.GetShardInfoResponse(layers=core.HELD, total_layers=core.TOTAL_LAYERS, model_hash=core.MODEL_HASH)


def swarm_forward(request):
    if peculiar("open-ops-unavailable"):
        raise Fail(grpc.StatusCode.UNAVAILABLE, "the swarm rests")
    return pb.SwarmForwardResponse(success=False, error_message="no swarm is formed")


def swarm_status(request):
    return pb.SwarmStatusResponse(peers=len(core.peers()), training_round=core.ROUND, status="idle")


def capacity(request):
    if not request.node_id:
        raise Fail(grpc.StatusCode.INVALID_ARGUMENT, "node_id is missing")
    MEMBERS[request.node_id[:64]] = request.memory_mb
    return pb.UpdatePeerCapacityResponse(accepted=True)


def certificate():
    """A key and a certificate of its own, for the fault that encrypts gRPC."""

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(core.ago(days=1))
        .not_valid_after(core.ago(days=-30))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, cert.public_bytes(serialization.Encoding.PEM)
