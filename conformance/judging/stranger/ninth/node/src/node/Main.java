package node;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;

public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        System.setProperty("org.eclipse.jetty.util.log.class", "org.eclipse.jetty.util.log.StdErrLog");
        System.setProperty("org.eclipse.jetty.LEVEL", "WARN");
        System.setProperty("org.eclipse.jetty.util.log.announce", "false");
        System.setProperty("io.netty.tryReflectionSetAccessible", "false");
        List<String> a = new ArrayList<>(List.of(args));
        if (!a.isEmpty() && a.get(0).equals("sign")) {
            SignTool.run(a.subList(1, a.size()));
            return;
        }
        int port = 8000;
        boolean warm = false;
        for (int i = 0; i < a.size(); i++) {
            String next = i + 1 < a.size() ? a.get(i + 1) : "";
            switch (a.get(i)) {
                case "--list" -> {
                    JsonObject o = new JsonObject();
                    Faults.all().forEach(o::addProperty);
                    System.out.println(J.GSON.toJson(J.o("faults", o, "peculiar", P.ids())));
                    return;
                }
                case "--port" -> port = Integer.parseInt(next);
                case "--fault" -> {
                    check(Faults.all().containsKey(next), next);
                    F.activate(next);
                }
                case "--peculiar" -> {
                    check(P.ids().contains(next), next);
                    P.activate(next);
                }
                case "--warm" -> {
                    warm = true;
                    continue;
                }
                default -> {
                    check(!a.get(i).startsWith("--"), a.get(i));
                    continue;
                }
            }
            i++;
        }
        serve(port);
        if (warm) {
            warmUp(port);
        }
    }

    /** Touches the usual classes, then ends; used by make to write the class archive. */
    private static void warmUp(int port) throws Exception {
        for (String path : List.of("/api/v1/status", "/api/v1/metrics", "/api/network", "/api/blocks", "/api/v1/peers")) {
            java.net.HttpURLConnection c = (java.net.HttpURLConnection) new java.net.URL("http://127.0.0.1:" + port + path).openConnection();
            c.getResponseCode();
        }
        io.grpc.ManagedChannel ch = io.grpc.netty.NettyChannelBuilder.forAddress("127.0.0.1", port + 1000).usePlaintext().build();
        node.pb.NodeServiceGrpc.newBlockingStub(ch).getCheckpoint(node.pb.GetCheckpointRequest.getDefaultInstance());
        ch.shutdownNow();
        System.exit(0);
    }

    private static void check(boolean ok, String what) {
        if (!ok) {
            System.err.println("unknown: " + what);
            System.exit(2);
        }
    }

    private static void serve(int port) throws Exception {
        Node node = new Node(port);
        Auth auth = new Auth();
        Wallet wallet = new Wallet(auth, node.proofs);
        Artifacts artifacts = new Artifacts();
        Chain chain = new Chain(artifacts);
        node.chain = chain;
        Web web = new Web(auth);
        new NodeApi(node).routes(web);
        wallet.routes(web);
        new Inference(auth, wallet).routes(web);
        node.config.routes(web);
        new NativeApi(chain).routes(web);
        artifacts.routes(web);
        new Rpc(chain).routes(web);
        new Work(chain).routes(web);
        Legacy.routes(web, chain);
        chain.start();
        int grpc = port + 1000;
        if (F.on("grpc-port-plus-one")) grpc = port + 1;
        Grpc.start(grpc, new NodeService(node, chain));
        Web.start(port, web);
        System.out.println("HTTP on 127.0.0.1:" + port + ", gRPC on 127.0.0.1:" + (port + 1000));
    }
}
