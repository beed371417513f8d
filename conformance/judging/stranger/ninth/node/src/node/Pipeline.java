package node;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnknownFieldSet;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import node.pb.NodeServiceGrpc;
import node.pb.PipelineBackwardRequest;
import node.pb.PipelineBackwardResponse;
import node.pb.PipelineForwardRequest;
import node.pb.PipelineForwardResponse;

/** Forward and backward passes through shards 2 (layers 4, 5) and 3 (layers 6, 7 and the head). */
final class Pipeline {
    private static final int KEEP_BYTES = 64 << 20;
    private final Model model;
    private final Map<String, Graph> graphs = new LinkedHashMap<>();
    private long kept;
    private float[] lastOut;
    private volatile float[] buffer;
    private String lastSender = "";

    private record Graph(float[] input, int batch, int seq, byte[] mask, List<Model.Past> past, int[] labels, String sender, int source) {
        int bytes() {
            return input.length * 4;
        }
    }

    Pipeline(Model model) {
        this.model = model;
    }

    private static void held(int shard) {
        if (shard < 0 && shard >= -2 && F.on("s2-shard-negative-from-end")) return;
        if (shard < 0) {
            throw Grpc.bad("target_shard must not be negative");
        }
        if (F.on("shard-unheld-served")) return;
        if (shard != 2 && shard != 3) {
            throw Grpc.notHeld("shard " + shard + " is not held here");
        }
    }

    PipelineForwardResponse forward(PipelineForwardRequest r) {
        int shard = r.getTargetShard();
        held(shard);
        if (shard < 0) shard += 4;
        if (F.on("shard-unheld-served") && shard != 2 && shard != 3) shard = 2;
        int n = Tensors.positions(r.getHiddenShapeList(), Model.H, r.getHiddenStates().size(), "hidden_shape");
        int batch = (int) r.getHiddenShape(0);
        int seq = (int) r.getHiddenShape(1);
        if (P.on("sequence-limit") && seq > 4096) {
            throw io.grpc.Status.RESOURCE_EXHAUSTED.withDescription("sequences of more than 4096 positions").asRuntimeException();
        }
        byte[] mask = null;
        if (!r.getAttentionMask().isEmpty()) {
            if (r.getAttentionMask().size() != n) {
                throw Grpc.bad("attention_mask must hold one byte per position");
            }
            mask = r.getAttentionMask().toByteArray();
        }
        if (!r.getPositionIds().isEmpty() && r.getPositionIds().size() != 4 * n && r.getPositionIds().size() != 8 * n) {
            throw Grpc.bad("position_ids must hold one int32 or int64 per position");
        }
        List<Model.Past> past = past(r, batch);
        float[] x = Tensors.floats(r.getHiddenStates());
        if (x.length != n * Model.H) x = Arrays.copyOf(x, n * Model.H);
        if (F.on("first-batch-row-only") && batch > 1) {
            Arrays.fill(x, seq * Model.H, x.length, 0f);
        }
        int[] labels = labels(r.getTrainingLabels(), n);
        Graph g = new Graph(x.clone(), batch, seq, mask, copy(past), labels, r.getSenderUrl(), r.getSourceShard());
        List<ByteString> cache = new ArrayList<>();
        float[] y = x;
        for (int i = 0; i < 2; i++) {
            int l = 2 * shard + i;
            Model.Past p = F.on("past-ignored") ? new Model.Past(batch) : past.get(i);
            y = model.layer(l, y, batch, seq, mask, p, null);
            if (r.getUseCache() || F.on("cache-always-returned")) {
                cache.add(cache(p, batch));
            }
        }
        if (F.on("output-from-previous-call")) {
            float[] prev = lastOut;
            lastOut = y;
            if (prev != null && prev.length == y.length) y = prev;
        }
        if (F.on("s2-passes-crossed")) {
            buffer = y;
            try {
                Thread.sleep(15);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            if (buffer.length == y.length) y = buffer;
        }
        if (F.on("s2-batch-first-only") && batch > 1) {
            batch = 1;
            y = Arrays.copyOf(y, seq * Model.H);
            labels = null;
        }
        lastSender = r.getSenderUrl();
        keep(r.getSessionId(), r.getRequestId(), shard, g);
        boolean fin = shard == 3;
        PipelineForwardResponse.Builder b = PipelineForwardResponse.newBuilder().setRequestId(F.on("s2-request-id-36") && r.getRequestId().length() > 36 ? r.getRequestId().substring(0, 36) : r.getRequestId()).setSuccess(!F.on("forward-success-false"));
        if (!F.on("cache-not-returned")) b.addAllPastKeyValues(cache);
        if (!fin || P.on("hidden-with-logits")) {
            b.setHiddenStates(Tensors.bytes(y));
            if (!F.on("hidden-shape-missing")) b.addHiddenShape(batch).addHiddenShape(seq).addHiddenShape(Model.H);
            if (F.on("s2-logits-always")) {
                b.setLogits(Tensors.bytes(model.logits(y))).addLogitsShape(batch).addLogitsShape(seq).addLogitsShape(Model.VOCAB);
            }
            if (F.on("s2-is-final-both")) b.setIsFinal(true);
            if (F.on("s2-hidden-shape-zigzag")) b.clearHiddenShape().addHiddenShape(2L * batch).addHiddenShape(2L * seq).addHiddenShape(2L * Model.H);
            return b.build();
        }
        float[] logits = model.logits(y);
        if (F.on("logits-last-position-only")) {
            float[] last = new float[batch * Model.VOCAB];
            for (int i = 0; i < batch; i++) System.arraycopy(logits, (i * seq + seq - 1) * Model.VOCAB, last, i * Model.VOCAB, Model.VOCAB);
            b.setLogits(Tensors.bytes(last));
        } else {
            b.setLogits(Tensors.bytes(logits));
        }
        b.setIsFinal(!F.on("is-final-never"));
        b.addLogitsShape(batch).addLogitsShape(seq).addLogitsShape(Model.VOCAB);
        if (labels != null) {
            double loss = Model.crossEntropy(logits, labels, null);
            if (F.on("loss-sum-not-mean")) loss *= n;
            if (!(F.on("s2-loss-without-sender") && !r.getSenderUrl().isEmpty())) b.setLoss(loss);
            if (F.on("loss-as-float32")) {
                b.clearLoss().setUnknownFields(UnknownFieldSet.newBuilder().addField(10, UnknownFieldSet.Field.newBuilder().addFixed32(Float.floatToIntBits((float) loss)).build()).build());
            }
        }
        if (F.on("is-final-field-8")) {
            ByteString lg = b.getLogits();
            b.clearIsFinal().clearLogits().setUnknownFields(UnknownFieldSet.newBuilder()
                    .addField(8, UnknownFieldSet.Field.newBuilder().addVarint(1).build())
                    .addField(7, UnknownFieldSet.Field.newBuilder().addLengthDelimited(lg).build()).build());
        }
        return b.build();
    }

    private static int[] labels(ByteString b, int n) {
        if (b.isEmpty()) {
            return null;
        }
        if (b.size() != 4 * n && b.size() != 8 * n) {
            throw Grpc.bad("training_labels must hold one int32 or int64 per position");
        }
        ByteBuffer buf = b.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
        int[] l = new int[n];
        for (int i = 0; i < n; i++) {
            long v = b.size() == 4 * n ? buf.getInt() : buf.getLong();
            if (v != -100 && (v < 0 || v >= Model.VOCAB)) {
                throw Grpc.bad("label " + v + " is outside the vocabulary");
            }
            l[i] = (int) v;
        }
        return l;
    }

    private static List<Model.Past> past(PipelineForwardRequest r, int batch) {
        List<Model.Past> l = new ArrayList<>();
        int c = r.getPastKeyValuesCount();
        if (c != 0 && c != 2) {
            throw Grpc.bad("past_key_values must hold one tensor per layer of the shard");
        }
        for (int i = 0; i < 2; i++) {
            Model.Past p = new Model.Past(batch);
            if (c == 2) {
                ByteString b = r.getPastKeyValues(i);
                if (b.size() != batch * 9 * 8) {
                    throw Grpc.bad("past_key_values must be float64 [batch, 9]");
                }
                ByteBuffer buf = b.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
                for (int k = 0; k < batch; k++) {
                    for (int h = 0; h < 8; h++) {
                        p.sum[k * 8 + h] = buf.getDouble();
                    }
                    p.count[k] = buf.getDouble();
                }
            }
            l.add(p);
        }
        return l;
    }

    private static List<Model.Past> copy(List<Model.Past> l) {
        List<Model.Past> r = new ArrayList<>();
        for (Model.Past p : l) {
            Model.Past q = new Model.Past(p.count.length);
            System.arraycopy(p.sum, 0, q.sum, 0, p.sum.length);
            System.arraycopy(p.count, 0, q.count, 0, p.count.length);
            r.add(q);
        }
        return r;
    }

    private static ByteString cache(Model.Past p, int batch) {
        ByteBuffer b = ByteBuffer.allocate(batch * 72).order(ByteOrder.LITTLE_ENDIAN);
        for (int k = 0; k < batch; k++) {
            for (int h = 0; h < 8; h++) {
                b.putDouble(p.sum[k * 8 + h]);
            }
            b.putDouble(p.count[k]);
        }
        return ByteString.copyFrom(b.array());
    }

    private static String key(String session, String request, int shard) {
        if (F.on("graph-key-without-session")) session = "";
        return session + "\0" + request + "\0" + shard;
    }

    private synchronized void keep(String session, String request, int shard, Graph g) {
        if (g.bytes() > KEEP_BYTES / 2) {
            return;
        }
        if (F.on("graph-one-only")) graphs.clear();
        if (F.on("s2-graph-one-per-session")) graphs.keySet().removeIf(k -> k.startsWith(session + "\0") && k.endsWith("\0" + shard));
        Graph old = graphs.remove(key(session, request, shard));
        kept -= old == null ? 0 : old.bytes();
        graphs.put(key(session, request, shard), g);
        kept += g.bytes();
        while (kept > KEEP_BYTES || graphs.size() > 2000) {
            String first = graphs.keySet().iterator().next();
            kept -= graphs.remove(first).bytes();
        }
    }

    private synchronized Graph take(String session, String request, int shard) {
        String k = key(session, request, shard);
        Graph g = graphs.remove(k);
        if (g != null && !graphs.containsKey(k)) {
            kept -= g.bytes();
        }
        return g;
    }

    PipelineBackwardResponse backward(PipelineBackwardRequest r) {
        int shard = r.getTargetShard();
        held(shard);
        if (shard < 0) shard += 4;
        Graph g = take(r.getSessionId(), r.getRequestId(), shard);
        if (g == null) {
            if (F.on("backward-unknown-success")) return ok();
            if (P.on("unknown-graph-status")) throw Grpc.bad("no forward pass is kept for this request");
            if (F.on("s2-backward-silent")) return failed("");
            return failed("no forward pass is kept for this session and request");
        }
        try {
            return back(r, shard, g);
        } catch (io.grpc.StatusRuntimeException e) {
            if (F.on("s2-backward-forgets-refused")) throw e;
            keep(r.getSessionId(), r.getRequestId(), shard, g);
            throw e;
        }
    }

    private PipelineBackwardResponse back(PipelineBackwardRequest r, int shard, Graph g) {
        float[][] act = new float[2][];
        float[] y = g.input;
        List<Model.Past> past = copy(g.past);
        for (int i = 0; i < 2; i++) {
            act[i] = new float[y.length];
            y = model.layer(2 * shard + i, y, g.batch, g.seq, g.mask, past.get(i), act[i]);
        }
        float[] grad;
        int last = shard == 3 ? Model.VOCAB : Model.H;
        if (shard == 3 && r.getGradOutput().isEmpty() && g.labels != null) {
            float[] logits = model.logits(y);
            grad = new float[logits.length];
            Model.crossEntropy(logits, g.labels, grad);
        } else {
            Tensors.positions(r.getGradShapeList(), last, r.getGradOutput().size(), "grad_shape");
            if (r.getGradShape(0) != g.batch || r.getGradShape(1) != g.seq) {
                throw Grpc.bad("grad_shape does not fit the forward pass");
            }
            grad = Tensors.floats(r.getGradOutput());
        }
        float[] gx = shard == 3 ? model.logitsBack(grad) : grad;
        for (int i = 1; i >= 0; i--) {
            gx = model.layerBack(2 * shard + i, act[i], gx, g.batch, g.seq, g.mask, g.past.get(i).count);
        }
        if (g.sender.isEmpty() || F.on("backward-not-propagated") || F.on("backward-first-shard-not-propagated") && shard == 2) {
            return ok();
        }
        if (F.on("backward-grad-unchanged")) gx = shard == 3 ? gx : grad;
        if (F.on("s2-backward-latest-sender") && !lastSender.isEmpty()) {
            g = new Graph(g.input, g.batch, g.seq, g.mask, g.past, g.labels, lastSender, g.source);
        }
        String error = propagate(r, g, gx);
        if (F.on("s2-backward-sent-twice") && error == null) propagate(r, g, gx);
        for (int i = 0; i < 4 && error != null && F.on("s2-backward-retried-at-once"); i++) error = propagate(r, g, gx);
        if (error != null) {
            keep(r.getSessionId(), r.getRequestId(), shard, g);
            return failed(error);
        }
        return ok();
    }

    private String propagate(PipelineBackwardRequest r, Graph g, float[] gx) {
        ManagedChannel ch = null;
        try {
            String target = g.sender.replaceFirst("^[a-z]+://", "").replaceFirst("/.*$", "");
            ch = NettyChannelBuilder.forTarget(target).usePlaintext().build();
            PipelineBackwardRequest.Builder b = PipelineBackwardRequest.newBuilder().setSessionId(F.on("backward-session-lost") ? "" : r.getSessionId())
                    .setRequestId(F.on("backward-request-id-new") ? java.util.UUID.randomUUID().toString() : r.getRequestId())
                    .setGradOutput(Tensors.bytes(gx)).addGradShape(g.batch).addGradShape(g.seq).addGradShape(Model.H)
                    .setTargetShard(g.source);
            if (F.on("s2-sent-shard-number-6")) {
                b.clearTargetShard().setUnknownFields(UnknownFieldSet.newBuilder().addField(6, UnknownFieldSet.Field.newBuilder().addVarint(g.source).build()).build());
            }
            if (F.on("s2-sent-grad-doubles")) {
                ByteBuffer d = ByteBuffer.allocate(gx.length * 8).order(ByteOrder.LITTLE_ENDIAN);
                for (float v : gx) d.putDouble(v);
                b.setGradOutput(ByteString.copyFrom(d.array()));
            }
            PipelineBackwardResponse x = NodeServiceGrpc.newBlockingStub(ch).withDeadlineAfter(F.on("s2-sent-deadline-short") ? 80 : 3000, TimeUnit.MILLISECONDS).pipelineBackward(b.build());
            return x.getSuccess() ? null : "previous node: " + x.getErrorMessage();
        } catch (RuntimeException e) {
            return "previous node at " + g.sender + ": " + e.getMessage();
        } finally {
            if (ch != null) {
                ch.shutdownNow();
            }
        }
    }

    private static PipelineBackwardResponse ok() {
        return PipelineBackwardResponse.newBuilder().setSuccess(true).build();
    }

    private static PipelineBackwardResponse failed(String message) {
        return PipelineBackwardResponse.newBuilder().setSuccess(false).setErrorMessage(message).build();
    }
}
