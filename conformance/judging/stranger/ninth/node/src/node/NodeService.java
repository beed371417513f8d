package node;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnknownFieldSet;
import io.grpc.stub.StreamObserver;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import node.pb.*;

/** The operations of node.NodeService. */
final class NodeService extends NodeServiceGrpc.NodeServiceImplBase {
    private final Node node;
    private final Model model;
    private final Pipeline pipeline;
    private final Dht dht;
    private final Chain chain;
    private final Set<String> gradients = new HashSet<>();

    NodeService(Node node, Chain chain) {
        this.node = node;
        this.model = node.model;
        this.chain = chain;
        this.pipeline = new Pipeline(model);
        this.dht = new Dht(node);
    }

    @Override
    public void pipelineForward(PipelineForwardRequest r, StreamObserver<PipelineForwardResponse> o) {
        Grpc.answer(r, o, pipeline::forward);
    }

    @Override
    public void pipelineBackward(PipelineBackwardRequest r, StreamObserver<PipelineBackwardResponse> o) {
        Grpc.answer(r, o, pipeline::backward);
    }

    @Override
    public void dHTPing(DHTPingRequest r, StreamObserver<DHTPingResponse> o) {
        Grpc.answer(r, o, dht::ping);
    }

    @Override
    public void dHTStore(DHTStoreRequest r, StreamObserver<DHTStoreResponse> o) {
        Grpc.answer(r, o, dht::store);
    }

    @Override
    public void dHTFindNode(DHTFindNodeRequest r, StreamObserver<DHTFindNodeResponse> o) {
        Grpc.answer(r, o, dht::findNode);
    }

    @Override
    public void dHTFindValue(DHTFindValueRequest r, StreamObserver<DHTFindValueResponse> o) {
        Grpc.answer(r, o, dht::findValue);
    }

    /** The layers named by "a", "a-b" or a comma list of these; empty means all held. */
    static TreeSet<Integer> range(String s) {
        TreeSet<Integer> set = new TreeSet<>();
        String t = s.trim();
        if (t.isEmpty()) {
            set.addAll(List.of(4, 5, 6, 7));
            return set;
        }
        for (String part : t.split(",", -1)) {
            String q = part.trim();
            if (!q.matches("\\d{1,6}(-\\d{1,6})?")) {
                throw Grpc.bad("shard_range must be like 4, 4-5 or 4,6");
            }
            String[] ab = q.split("-");
            int a = Integer.parseInt(ab[0]);
            int b = Integer.parseInt(ab[ab.length - 1]);
            if (b < a) {
                throw Grpc.bad("shard_range runs backwards");
            }
            if (b >= Node.LAYERS || a < Node.FIRST) {
                if (F.on("weights-unheld-empty")) return set;
                if (F.on("weights-unheld-clamped")) {
                    a = Math.max(a, Node.FIRST);
                    b = Math.min(b, Node.LAYERS - 1);
                } else if (!((F.on("weights-partly-held-served") || F.on("s2-weights-partial")) && b >= Node.FIRST && a < Node.LAYERS)) {
                    throw Grpc.notHeld("layers " + q + " are not held here");
                } else {
                    a = Math.max(a, Node.FIRST);
                    b = Math.min(b, Node.LAYERS - 1);
                }
            }
            for (int i = a; i <= (F.on("weights-range-half-open") && b > a ? b - 1 : b); i++) {
                set.add(i);
            }
        }
        return set;
    }

    @Override
    public void getWeights(WeightRequest r, StreamObserver<WeightResponse> o) {
        Grpc.answer(r, o, q -> {
            TreeSet<Integer> l = range(q.getShardRange());
            if (F.on("s2-weights-all")) l = new TreeSet<>(node.layers());
            if (l.isEmpty()) {
                return WeightResponse.getDefaultInstance();
            }
            byte[] b = model.stateDict(l, l.contains(7));
            WeightResponse.Builder w = WeightResponse.newBuilder().setWeightsData(ByteString.copyFrom(b));
            if (F.on("s2-weights-number-2")) {
                w.clearWeightsData().setUnknownFields(UnknownFieldSet.newBuilder().addField(2, UnknownFieldSet.Field.newBuilder().addLengthDelimited(ByteString.copyFrom(b)).build()).build());
            }
            return w.build();
        });
    }

    @Override
    public void gossipGradient(GossipGradientRequest r, StreamObserver<GossipGradientResponse> o) {
        Grpc.answer(r, o, q -> {
            if (F.on("s2-gossip-gradient-text")) {
                for (ByteString v : q.getLayerGradientsMap().values()) {
                    if (!v.isValidUtf8()) throw io.grpc.Status.INTERNAL.withDescription("invalid UTF-8 in layer_gradients").asRuntimeException();
                }
            }
            String no = refuse(q);
            Metrics.submitted.incrementAndGet();
            if (no == null) {
                Metrics.accepted.incrementAndGet();
            }
            boolean ok = no == null;
            GossipGradientResponse.Builder b = GossipGradientResponse.newBuilder().setAccepted(ok).setCurrentRound(model.version);
            if (!ok) {
                b.setReason(F.on("s2-gossip-reason-empty") ? "" : no);
                if (F.on("s2-gossip-refused-round-0")) b.setCurrentRound(0);
            } else if (F.on("s2-gossip-accepted-next-round")) {
                b.setCurrentRound(model.version + 1);
            }
            if (F.on("s2-gossip-accepted-text")) {
                b.clearAccepted().setUnknownFields(UnknownFieldSet.newBuilder().addField(1, UnknownFieldSet.Field.newBuilder().addLengthDelimited(ByteString.copyFromUtf8(String.valueOf(ok))).build()).build());
            }
            if (F.on("gossip-round-echoed")) b.setCurrentRound(q.getRoundId());
            if (F.on("gossip-round-zigzag")) {
                b.clearCurrentRound().setUnknownFields(UnknownFieldSet.newBuilder().addField(3, UnknownFieldSet.Field.newBuilder().addVarint(2L * model.version).build()).build());
            }
            return b.build();
        });
    }

    private synchronized String refuse(GossipGradientRequest q) {
        if (q.getNodeId().isEmpty()) {
            return "node_id is required";
        }
        if (q.getTtl() < 0) {
            return "ttl must not be negative";
        }
        if (!q.getModelHash().equals(model.hash) && !F.on("gossip-hash-unchecked") && !(F.on("gossip-hash-empty-accepted") && q.getModelHash().isEmpty())) {
            return "model_hash differs from " + model.hash;
        }
        int round = q.getRoundId();
        if (!F.on("gossip-round-unchecked") && round != model.version && !(F.on("gossip-future-round-accepted") && round > model.version)) {
            return "round " + round + " is not the current round " + model.version;
        }
        if (q.getBatchSize() < 1) {
            return "batch_size must be positive";
        }
        if (!Double.isFinite(q.getLoss())) {
            return "loss is not finite";
        }
        if (q.getLayerGradientsMap().isEmpty()) {
            return "no gradients";
        }
        if (P.on("gossip-signature-needed") && q.getSignature().isEmpty()) {
            return "signature is required";
        }
        for (Map.Entry<String, ByteString> e : q.getLayerGradientsMap().entrySet()) {
            if (F.on("gossip-large-refused") && e.getValue().size() > (1 << 20)) {
                return "gradient too large";
            }
            byte[] raw = Tensors.decompress(e.getValue().toByteArray());
            if (!F.on("gossip-uncompressed-accepted") && (raw == null || raw.length % 4 != 0)) {
                return "gradient of " + e.getKey() + " is not an LZ4 frame of float32 values";
            }
        }
        if (!gradients.add(q.getNodeId() + "/" + round) && !P.on("gossip-repeat-accepted")) {
            return "already received";
        }
        return null;
    }

    @Override
    public void getCheckpoint(GetCheckpointRequest r, StreamObserver<GetCheckpointResponse> o) {
        Grpc.answer(r, o, q -> {
            String error = null;
            if (!q.getModelHash().isEmpty() && !q.getModelHash().equals(model.hash) && !F.on("checkpoint-hash-ignored")) {
                error = "no checkpoint with that model_hash";
            }
            if ((F.on("checkpoint-min-version-exclusive") ? q.getMinVersion() >= model.version : q.getMinVersion() > model.version)) {
                error = F.on("s2-checkpoint-older-given") ? null : "the newest version is " + model.version;
            }
            if (F.on("s2-checkpoint-hash-or-version") && !q.getModelHash().isEmpty() && q.getMinVersion() != 0) error = "give either model_hash or min_version";
            if (error != null && F.on("s2-checkpoint-failure-data")) {
                byte[] z = Tensors.compress(model.state);
                return GetCheckpointResponse.newBuilder().setSuccess(false).setErrorMessage(error).setVersion(model.version).setModelHash(model.hash)
                        .setCheckpointData(ByteString.copyFrom(z)).setTotalSize(z.length).build();
            }
            if (error != null) {
                return GetCheckpointResponse.newBuilder().setSuccess(false).setErrorMessage(F.on("checkpoint-failure-silent") ? "" : error).build();
            }
            byte[] data = F.on("checkpoint-not-compressed") ? model.state : Tensors.compress(model.state);
            GetCheckpointResponse.Builder b = GetCheckpointResponse.newBuilder().setSuccess(true).setVersion(model.version).setModelHash(model.hash).setPhase(model.phase)
                    .setCheckpointData(ByteString.copyFrom(data)).setTotalSize(data.length);
            if (F.on("s2-checkpoint-phase-by-hash") && !q.getModelHash().isEmpty()) b.setPhase("bootstrap");
            if (F.on("s2-checkpoint-version-fixed32")) {
                b.clearVersion().setUnknownFields(UnknownFieldSet.newBuilder().addField(3, UnknownFieldSet.Field.newBuilder().addFixed32(model.version).build()).build());
            }
            if (F.on("s2-checkpoint-size-text")) {
                b.clearTotalSize().setUnknownFields(UnknownFieldSet.newBuilder().addField(7, UnknownFieldSet.Field.newBuilder().addLengthDelimited(ByteString.copyFromUtf8(String.valueOf(data.length))).build()).build());
            }
            if (F.on("checkpoint-version-differs")) b.setVersion(model.version - 1);
            return b.build();
        });
    }

    @Override
    public void getCheckpointInfo(GetCheckpointInfoRequest r, StreamObserver<GetCheckpointInfoResponse> o) {
        Grpc.answer(r, o, q -> {
            GetCheckpointInfoResponse.Builder b = GetCheckpointInfoResponse.newBuilder().setVersion(model.version)
                    .setModelHash(model.hash).setPhase(model.phase)
                    .setParams(F.on("s2-info-params-millions") ? model.params() / 1_000_000 : model.params()).setLoss(model.loss());
            if (F.on("s2-info-hash-short")) b.setModelHash(model.hash.substring(0, 16));
            if (F.on("s2-info-loss-number-6")) {
                b.clearLoss().setUnknownFields(UnknownFieldSet.newBuilder().addField(6, UnknownFieldSet.Field.newBuilder().addFixed64(Double.doubleToLongBits(model.loss())).build()).build());
            }
            return b.build();
        });
    }

    private InferenceResponse infer(InferenceRequest q) {
        if (q.getPrompt().isBlank()) {
            throw Grpc.bad("prompt is required");
        }
        if (q.getMaxTokens() < 0 || q.getTemperature() < 0 || q.getTemperature() > 2) {
            throw Grpc.bad("max_tokens or temperature is out of range");
        }
        Text.Result t = Text.generate(new Inference.Req(q.getPrompt(), q.getMaxTokens() == 0 ? 100 : Math.min(2048, q.getMaxTokens()), q.getTemperature(), 1, 50, false, List.of()));
        return InferenceResponse.newBuilder().setRequestId(q.getRequestId()).setSuccess(true).setText(String.join("", t.tokens()))
                .setTokensGenerated(t.tokens().size()).setFinishReason(t.finish()).build();
    }

    @Override
    public void unaryInference(InferenceRequest r, StreamObserver<InferenceResponse> o) {
        Grpc.answer(r, o, this::infer);
    }

    @Override
    public StreamObserver<InferenceRequest> streamInference(StreamObserver<InferenceResponse> o) {
        return new StreamObserver<>() {
            private boolean over;

            @Override
            public void onNext(InferenceRequest q) {
                if (over) {
                    return;
                }
                try {
                    o.onNext(infer(q));
                    if (F.on("s2-stream-inference-one")) {
                        over = true;
                        o.onCompleted();
                    }
                } catch (io.grpc.StatusRuntimeException e) {
                    over = true;
                    o.onError(e);
                }
            }

            @Override
            public void onError(Throwable t) {
                over = true;
            }

            @Override
            public void onCompleted() {
                if (!over) {
                    o.onCompleted();
                }
            }
        };
    }

    @Override
    public void gossipProof(GossipProofRequest r, StreamObserver<GossipProofResponse> o) {
        if (F.on("gossip-proof-unimplemented")) {
            super.gossipProof(r, o);
            return;
        }
        Grpc.answer(r, o, q -> GossipProofResponse.newBuilder().setAccepted(!q.getProofId().isEmpty() && !q.getProof().isEmpty())
                .setReason(q.getProof().isEmpty() ? "proof is empty" : "").build());
    }

    @Override
    public void gossipTransaction(GossipTransactionRequest r, StreamObserver<GossipTransactionResponse> o) {
        Grpc.answer(r, o, q -> {
            Tx t = Tx.parse(q.getTransaction().toByteArray());
            String no = t == null ? "undecodable transaction" : chain.submit(t);
            return GossipTransactionResponse.newBuilder().setAccepted(no == null).setReason(no == null ? "" : no).setHash(t == null ? "" : t.hash()).build();
        });
    }

    @Override
    public void gossipStake(GossipStakeRequest r, StreamObserver<GossipStakeResponse> o) {
        Grpc.answer(r, o, q -> {
            boolean ok = !q.getNodeId().isEmpty() && q.getAmount() > 0 && q.getDurationDays() > 0;
            return GossipStakeResponse.newBuilder().setAccepted(ok).setReason(ok ? "" : "node_id, amount and duration_days are required").build();
        });
    }

    @Override
    public void requestProofValidation(ProofValidationRequest r, StreamObserver<ProofValidationResponse> o) {
        Grpc.answer(r, o, q -> {
            boolean known = node.proofs.stream().anyMatch(p -> p.get("id").getAsString().equals(q.getProofId()) && p.get("verified").getAsBoolean());
            if (!known && F.on("s2-proof-unknown-status")) throw io.grpc.Status.FAILED_PRECONDITION.withDescription("unknown proof").asRuntimeException();
            return ProofValidationResponse.newBuilder().setValid(known).setReason(known ? "" : "unknown or unverified proof").setValidatorId(node.idHex).build();
        });
    }

    @Override
    public void gossipValidationVote(ValidationVoteRequest r, StreamObserver<ValidationVoteResponse> o) {
        Grpc.answer(r, o, q -> {
            boolean ok = !q.getProofId().isEmpty() && !q.getValidatorId().isEmpty();
            return ValidationVoteResponse.newBuilder().setAccepted(ok).setReason(ok ? "" : "proof_id and validator_id are required").build();
        });
    }

    @Override
    public void getShardInfo(GetShardInfoRequest r, StreamObserver<GetShardInfoResponse> o) {
        Grpc.answer(r, o, q -> GetShardInfoResponse.newBuilder().setNodeId(node.idHex).addAllLayers(node.layers()).addShards(2).addShards(3).setTotalShards(4).setHasHead(true).build());
    }

    @Override
    public void swarmForward(SwarmForwardRequest r, StreamObserver<SwarmForwardResponse> o) {
        Grpc.answer(r, o, q -> {
            if (!q.hasForward()) {
                throw Grpc.bad("forward is required");
            }
            return SwarmForwardResponse.newBuilder().setForward(pipeline.forward(q.getForward())).build();
        });
    }

    @Override
    public void getSwarmStatus(SwarmStatusRequest r, StreamObserver<SwarmStatusResponse> o) {
        Grpc.answer(r, o, q -> SwarmStatusResponse.newBuilder().setPeers(node.peers.size()).addAllCoveredLayers(List.of(0, 1, 2, 3, 4, 5, 6, 7)).setComplete(true).build());
    }

    @Override
    public void updatePeerCapacity(UpdatePeerCapacityRequest r, StreamObserver<UpdatePeerCapacityResponse> o) {
        Grpc.answer(r, o, q -> {
            boolean ok = !q.getNodeId().isEmpty() && q.getMemoryMb() >= 0 && q.getSlots() >= 0;
            return UpdatePeerCapacityResponse.newBuilder().setAccepted(ok).setReason(ok ? "" : "node_id is required").build();
        });
    }
}
