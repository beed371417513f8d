package node;

import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** A toy model: layers that mix a position with the mean of those before it, and a head. */
final class Model {
    static final int H = 8;
    static final int VOCAB = 16;
    final int version = 60;
    final String phase = "early";
    final float[][] w = new float[Node.LAYERS][];
    final float[][] u = new float[Node.LAYERS][];
    final float[] head;
    final byte[] state;
    final String hash;

    Model() {
        Random r = new Random(20260301);
        for (int i = 0; i < Node.LAYERS; i++) {
            w[i] = random(r, H * H);
            u[i] = random(r, H * H);
        }
        head = random(r, VOCAB * H);
        state = stateDict(List.of(4, 5, 6, 7), true);
        hash = Util.sha256(state);
    }

    private static float[] random(Random r, int n) {
        float[] f = new float[n];
        for (int i = 0; i < n; i++) {
            f[i] = (float) (r.nextGaussian() * 0.35);
        }
        return f;
    }

    int epoch() {
        return 3;
    }

    double loss() {
        return 2.34375;
    }

    long params() {
        return (long) (Node.LAYERS - Node.FIRST) * 2 * H * H + (long) VOCAB * H;
    }

    /** The named tensors in the safetensors form. */
    byte[] stateDict(Iterable<Integer> layers, boolean withHead) {
        Map<String, float[]> m = new LinkedHashMap<>();
        for (int i : layers) {
            m.put("layers." + i + ".w", w[i]);
            m.put("layers." + i + ".u", u[i]);
        }
        if (withHead) {
            m.put("head.w", head);
        }
        JsonObject header = new JsonObject();
        int at = 0;
        for (Map.Entry<String, float[]> e : m.entrySet()) {
            int len = e.getValue().length * 4;
            header.add(e.getKey(), J.o("dtype", "F32", "shape", J.a(e.getValue().length / H, H), "data_offsets", J.a(at, at + len)));
            at += len;
        }
        byte[] h = Util.utf8(J.GSON.toJson(header));
        ByteBuffer b = ByteBuffer.allocate(8 + h.length + at).order(ByteOrder.LITTLE_ENDIAN);
        b.putLong(h.length).put(h);
        m.values().forEach(f -> {
            for (float x : f) {
                b.putFloat(x);
            }
        });
        return b.array();
    }

    /** Sums of earlier positions, and their number, per batch row. */
    static final class Past {
        final double[] sum;
        final double[] count;

        Past(int batch) {
            sum = new double[batch * H];
            count = new double[batch];
        }
    }

    /** One layer; past is updated in place. act (when not null) receives the tanh values. */
    float[] layer(int l, float[] x, int batch, int seq, byte[] mask, Past past, float[] act) {
        float[] y = new float[x.length];
        float[] m = new float[H];
        for (int b = 0; b < batch; b++) {
            for (int t = 0; t < seq; t++) {
                int o = (b * seq + t) * H;
                if (mask == null || mask[b * seq + t] != 0) {
                    for (int i = 0; i < H; i++) {
                        past.sum[b * H + i] += x[o + i];
                    }
                    past.count[b]++;
                }
                for (int i = 0; i < H; i++) {
                    m[i] = past.count[b] == 0 ? 0 : (float) (past.sum[b * H + i] / past.count[b]);
                }
                for (int i = 0; i < H; i++) {
                    float z = 0;
                    for (int k = 0; k < H; k++) {
                        z += w[l][i * H + k] * x[o + k] + u[l][i * H + k] * m[k];
                    }
                    float a = (float) Math.tanh(z);
                    if (act != null) {
                        act[o + i] = a;
                    }
                    y[o + i] = x[o + i] + a;
                }
            }
        }
        return y;
    }

    /** The gradient of the layer's input. counts holds the number of earlier positions per row. */
    float[] layerBack(int l, float[] act, float[] gy, int batch, int seq, byte[] mask, double[] counts) {
        float[] gx = new float[gy.length];
        float[] gz = new float[H];
        for (int b = 0; b < batch; b++) {
            double[] n = new double[seq];
            double c = counts[b];
            for (int t = 0; t < seq; t++) {
                c += mask == null || mask[b * seq + t] != 0 ? 1 : 0;
                n[t] = c;
            }
            double[] carry = new double[H];
            for (int t = seq - 1; t >= 0; t--) {
                int o = (b * seq + t) * H;
                for (int i = 0; i < H; i++) {
                    gz[i] = gy[o + i] * (1 - act[o + i] * act[o + i]);
                }
                for (int k = 0; k < H; k++) {
                    double g = gy[o + k];
                    double gm = 0;
                    for (int i = 0; i < H; i++) {
                        g += w[l][i * H + k] * gz[i];
                        gm += u[l][i * H + k] * gz[i];
                    }
                    if (n[t] > 0) {
                        carry[k] += gm / n[t];
                    }
                    if (mask == null || mask[b * seq + t] != 0) {
                        g += carry[k];
                    }
                    gx[o + k] = (float) g;
                }
            }
        }
        return gx;
    }

    float[] logits(float[] x) {
        int n = x.length / H;
        float[] y = new float[n * VOCAB];
        for (int p = 0; p < n; p++) {
            for (int v = 0; v < VOCAB; v++) {
                float s = 0;
                for (int k = 0; k < H; k++) {
                    s += head[v * H + k] * x[p * H + k];
                }
                y[p * VOCAB + v] = s;
            }
        }
        return y;
    }

    float[] logitsBack(float[] g) {
        int n = g.length / VOCAB;
        float[] gx = new float[n * H];
        for (int p = 0; p < n; p++) {
            for (int k = 0; k < H; k++) {
                float s = 0;
                for (int v = 0; v < VOCAB; v++) {
                    s += head[v * H + k] * g[p * VOCAB + v];
                }
                gx[p * H + k] = s;
            }
        }
        return gx;
    }

    /** Mean cross entropy over labels that are not -100; grad (when not null) receives its gradient. */
    static double crossEntropy(float[] logits, int[] labels, float[] grad) {
        double sum = 0;
        int n = 0;
        for (int l : labels) {
            n += l >= 0 ? 1 : 0;
        }
        for (int p = 0; p < labels.length; p++) {
            if (labels[p] < 0) {
                continue;
            }
            double max = Double.NEGATIVE_INFINITY;
            for (int v = 0; v < VOCAB; v++) {
                max = Math.max(max, logits[p * VOCAB + v]);
            }
            double z = 0;
            for (int v = 0; v < VOCAB; v++) {
                z += Math.exp(logits[p * VOCAB + v] - max);
            }
            sum += Math.log(z) + max - logits[p * VOCAB + labels[p]];
            if (grad != null) {
                for (int v = 0; v < VOCAB; v++) {
                    grad[p * VOCAB + v] = (float) ((Math.exp(logits[p * VOCAB + v] - max) / z - (v == labels[p] ? 1 : 0)) / n);
                }
            }
        }
        return n == 0 ? 0 : sum / n;
    }
}
