package node;

import io.grpc.ForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** The gRPC server and what its operations share. */
final class Grpc {
    static final int MAX_MESSAGE = 100 * 1024 * 1024;

    interface Op<A, B> {
        B run(A a) throws Exception;
    }

    private Grpc() {}

    static StatusRuntimeException bad(String message) {
        if (F.on("grpc-invalid-as-internal")) return Status.INTERNAL.withDescription(message).asRuntimeException();
        return Status.INVALID_ARGUMENT.withDescription(message).asRuntimeException();
    }

    static StatusRuntimeException notHeld(String message) {
        if (F.on("s2-not-held-unavailable")) return Status.UNAVAILABLE.withDescription(message).asRuntimeException();
        if (F.on("grpc-not-held-unknown")) return Status.UNKNOWN.withDescription(message).asRuntimeException();
        return Status.NOT_FOUND.withDescription(message).asRuntimeException();
    }

    static <A, B> void answer(A a, StreamObserver<B> out, Op<A, B> op) {
        B b;
        try {
            if (F.on("s2-unknown-fields-refused") && a instanceof com.google.protobuf.Message m && !m.getUnknownFields().asMap().isEmpty()) {
                throw bad("message has unknown fields");
            }
            b = op.run(a);
        } catch (StatusRuntimeException e) {
            out.onError(e);
            return;
        } catch (OutOfMemoryError e) {
            out.onError(Status.RESOURCE_EXHAUSTED.withDescription("message too large for the memory at hand").asRuntimeException());
            return;
        } catch (Exception e) {
            e.printStackTrace();
            out.onError(Status.INTERNAL.withDescription(String.valueOf(e)).asRuntimeException());
            return;
        }
        out.onNext(b);
        out.onCompleted();
    }

    static Server start(int port, NodeService service) throws Exception {
        NettyServerBuilder b = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port))
                .executor(Executors.newFixedThreadPool(8, r -> {
                    Thread t = new Thread(r, "grpc");
                    t.setDaemon(true);
                    return t;
                }))
                .addService(service)
                .intercept(new Counter());
        if (!F.on("grpc-4-mib-limit")) {
            b.maxInboundMessageSize(F.on("grpc-64-mib-limit") || F.on("s2-grpc-64-mib") ? 64 << 20 : MAX_MESSAGE);
        }
        if (!F.on("grpc-keepalive-refused")) {
            b.permitKeepAliveWithoutCalls(true).permitKeepAliveTime(5, TimeUnit.SECONDS);
        }
        Server s = b.build();
        s.start();
        return s;
    }

    private static final class Counter implements ServerInterceptor {
        @Override
        public <A, B> ServerCall.Listener<A> interceptCall(ServerCall<A, B> call, Metadata md, ServerCallHandler<A, B> next) {
            Metrics.rpcCalls.incrementAndGet();
            if (F.on("grpc-needs-token") && md.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER)) == null) {
                call.close(Status.UNAUTHENTICATED.withDescription("missing token"), new Metadata());
                return new ServerCall.Listener<>() {};
            }
            return new ForwardingServerCallListener.SimpleForwardingServerCallListener<>(next.startCall(call, md)) {};
        }
    }
}
