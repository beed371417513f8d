package node;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import net.jpountz.lz4.LZ4FrameInputStream;
import net.jpountz.lz4.LZ4FrameOutputStream;

/** Raw little-endian float32 tensors and LZ4 frames. */
final class Tensors {
    private Tensors() {}

    static float[] floats(ByteString b) {
        ByteBuffer buf = b.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
        float[] f = new float[b.size() / 4];
        buf.asFloatBuffer().get(f);
        return f;
    }

    static ByteString bytes(float[] f) {
        byte[] raw = new byte[f.length * 4];
        ByteBuffer.wrap(raw).order(F.on("tensor-big-endian-out") ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN).asFloatBuffer().put(f);
        return UnsafeByteOperations.unsafeWrap(raw);
    }

    /** The number of positions of a [batch, seq, last] shape that fits the bytes, or a refusal. */
    static int positions(List<Long> shape, int last, int size, String what) {
        if (shape.size() != 3) {
            throw Grpc.bad(what + " must have three dimensions");
        }
        long b = shape.get(0);
        long s = shape.get(1);
        if (b < 1 || s < 1 || b > 1 << 24 || s > 1 << 24 || shape.get(2) != last) {
            throw Grpc.bad(what + " must be [batch, seq, " + last + "]");
        }
        if (b * s * last * 4 != size && !F.on("shape-length-unchecked")) {
            throw Grpc.bad(what + " does not fit the bytes");
        }
        if (b * s * last * 4 > (128L << 20)) {
            throw Grpc.bad(what + " is too large");
        }
        return (int) (b * s);
    }

    static byte[] compress(byte[] raw) {
        try {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            try (LZ4FrameOutputStream z = new LZ4FrameOutputStream(out)) {
                z.write(raw);
            }
            return out.toByteArray();
        } catch (java.io.IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Null when the bytes are no LZ4 frame. */
    static byte[] decompress(byte[] b) {
        try (LZ4FrameInputStream in = new LZ4FrameInputStream(new ByteArrayInputStream(b))) {
            return in.readNBytes(256 << 20);
        } catch (Exception e) {
            return null;
        }
    }
}
