package node;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnknownFieldSet;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import node.pb.DHTFindNodeRequest;
import node.pb.DHTFindNodeResponse;
import node.pb.DHTFindValueRequest;
import node.pb.DHTFindValueResponse;
import node.pb.DHTNodeInfo;
import node.pb.DHTPingRequest;
import node.pb.DHTPingResponse;
import node.pb.DHTStoreRequest;
import node.pb.DHTStoreResponse;

/** A Kademlia table of contacts and values. */
final class Dht {
    static final int K = 20;
    static final int MAX_VALUE = 4096;
    private final Node node;
    private final Map<ByteString, DHTNodeInfo> contacts = new LinkedHashMap<>();
    private final Map<ByteString, String> values = new HashMap<>();
    private int pings;
    private final List<ByteString> latest = new ArrayList<>();

    /** The key under which a value is kept. */
    private static ByteString key(ByteString k) {
        if (F.on("s2-dht-key-c-string")) {
            for (int i = 0; i < k.size(); i++) {
                if (k.byteAt(i) == 0) return k.substring(0, i);
            }
        }
        return k;
    }

    Dht(Node node) {
        this.node = node;
        for (int i = 0; i < (32); i++) {
            ByteString id = ByteString.copyFrom(Util.digest("SHA-1", Util.utf8("contact " + i)));
            contacts.put(id, DHTNodeInfo.newBuilder().setNodeId(id).setIp("10.1.0." + (i + 1)).setPort(9000 + i).build());
        }
    }

    private DHTNodeInfo self() {
        ByteString id = ByteString.copyFrom(node.id);
        if (F.on("dht-id-sha256")) id = ByteString.copyFrom(Util.digest("SHA-256", node.id));
        DHTNodeInfo.Builder b = DHTNodeInfo.newBuilder().setNodeId(id).setIp("127.0.0.1").setPort(node.port + 1000);
        if (F.on("dht-port-string")) {
            b.clearPort().setUnknownFields(UnknownFieldSet.newBuilder().addField(3, UnknownFieldSet.Field.newBuilder().addLengthDelimited(ByteString.copyFromUtf8(String.valueOf(node.port + 1000))).build()).build());
        }
        return b.build();
    }

    private void seen(boolean has, DHTNodeInfo s) {
        if (!has) {
            if (P.on("sender-required")) throw Grpc.bad("sender is required");
            return;
        }
        if (s.getNodeId().size() != 20) {
            throw Grpc.bad("sender.node_id must be 20 bytes");
        }
        if (s.getPort() < 0 || s.getPort() > 65535) {
            throw Grpc.bad("sender.port is no port");
        }
        if (!F.on("dht-senders-forgotten") && (!s.getIp().isEmpty() && s.getPort() > 0 || F.on("s2-dht-no-address-listed")) && contacts.size() < 5000 && !s.getNodeId().equals(ByteString.copyFrom(node.id))) {
            contacts.put(F.on("s2-dht-moved-twice") ? s.getNodeId().concat(ByteString.copyFromUtf8(s.getIp() + s.getPort())) : s.getNodeId(), s);
        }
    }

    private static void id20(ByteString b, String what) {
        if (b.size() != 20) {
            if (F.on("dht-key-length-unchecked")) return;
            throw Grpc.bad(what + " must be 20 bytes");
        }
    }

    private List<DHTNodeInfo> closest(ByteString target) {
        List<DHTNodeInfo> all = new ArrayList<>(contacts.values());
        byte[] t = target.toByteArray();
        if (F.on("s2-dht-target-left-out")) all.removeIf(n -> n.getNodeId().equals(target));
        all.sort((a, b) -> {
            for (int i = 0; i < (F.on("s2-dht-four-bytes") ? 4 : 20); i++) {
                byte z = i < t.length ? t[i] : 0;
                int x = (a.getNodeId().byteAt(i) ^ z) & 0xff;
                int y = (b.getNodeId().byteAt(i) ^ z) & 0xff;
                if (F.on("dht-signed-distance")) {
                    x = (byte) (a.getNodeId().byteAt(i) ^ z);
                    y = (byte) (b.getNodeId().byteAt(i) ^ z);
                }
                if (x != y) {
                    return F.on("dht-farthest-first") ? y - x : x - y;
                }
            }
            return 0;
        });
        int k = K;
        List<DHTNodeInfo> out = new ArrayList<>(all.subList(0, Math.min(k, all.size())));
        if (P.on("dht-unsorted")) java.util.Collections.reverse(out);
        return out;
    }

    synchronized DHTPingResponse ping(DHTPingRequest r) {
        seen(r.hasSender(), r.getSender());
        return DHTPingResponse.newBuilder().setResponder(self()).build();
    }

    synchronized DHTFindNodeResponse findNode(DHTFindNodeRequest r) {
        seen(r.hasSender(), r.getSender());
        id20(r.getTargetId(), "target_id");
        DHTFindNodeResponse.Builder b = DHTFindNodeResponse.newBuilder().setResponder(self()).addAllNodes(closest(r.getTargetId()));
        if (F.on("dht-nodes-field-3")) {
            UnknownFieldSet.Field.Builder f = UnknownFieldSet.Field.newBuilder();
            b.getNodesList().forEach(n -> f.addLengthDelimited(n.toByteString()));
            b.clearNodes().setUnknownFields(UnknownFieldSet.newBuilder().addField(3, f.build()).build());
        }
        return b.build();
    }

    synchronized DHTFindValueResponse findValue(DHTFindValueRequest r) {
        seen(r.hasSender(), r.getSender());
        id20(r.getKey(), "key");
        ByteString found = key(r.getKey());
        String v = F.on("dht-key-as-utf8") ? null : values.get(found);
        if (v != null && F.on("s2-dht-found-once")) values.remove(found);
        if (v == null) v = values.get(F.on("dht-key-as-utf8") ? ByteString.copyFromUtf8(r.getKey().toStringUtf8()) : r.getKey());
        DHTFindValueResponse.Builder b = DHTFindValueResponse.newBuilder().setResponder(self());
        if (v != null) {
            if (F.on("s2-dht-found-number-5")) {
                return b.setValue(v).setUnknownFields(UnknownFieldSet.newBuilder().addField(5, UnknownFieldSet.Field.newBuilder().addVarint(1).build()).build()).build();
            }
            return b.setFound(true).setValue(v).build();
        }
        if (F.on("dht-missing-not-found-status")) throw io.grpc.Status.NOT_FOUND.withDescription("no value").asRuntimeException();
        if (F.on("dht-missing-no-nodes")) return b.build();
        if (F.on("s2-dht-missing-any-nodes")) return b.addAllNodes(new ArrayList<>(contacts.values()).subList(0, K)).build();
        return b.addAllNodes(closest(r.getKey())).build();
    }

    synchronized DHTStoreResponse store(DHTStoreRequest r) {
        seen(r.hasSender(), r.getSender());
        id20(r.getKey(), "key");
        if (F.on("s2-dht-value-number-4") && !r.getValue().isEmpty()) {
            r = r.toBuilder().setValue(r.getUnknownFields().getField(4).getLengthDelimitedList().stream().map(ByteString::toStringUtf8).findFirst().orElse("")).build();
        }
        if (F.on("s2-dht-refused-kept") && Util.utf8(r.getValue()).length > MAX_VALUE) values.put(r.getKey(), r.getValue());
        if (r.getValue().isEmpty()) {
            throw Grpc.bad("value is empty");
        }
        if (Util.utf8(r.getValue()).length > (F.on("dht-value-limit-32") ? 32 : MAX_VALUE)) {
            throw Grpc.bad("value is longer than " + MAX_VALUE + " bytes");
        }
        ByteString k = F.on("dht-key-as-utf8") ? ByteString.copyFromUtf8(r.getKey().toStringUtf8()) : key(r.getKey());
        if (F.on("s2-dht-value-trimmed")) r = r.toBuilder().setValue(r.getValue().trim()).build();
        if (F.on("dht-store-no-overwrite")) {
            values.putIfAbsent(k, r.getValue());
        } else if (F.on("dht-store-keeps-one")) {
            values.clear();
            values.put(k, r.getValue());
        } else if (!F.on("dht-store-not-kept") && values.size() < 10_000) {
            values.put(k, F.on("dht-value-host-only") ? r.getValue().split(":")[0] : r.getValue());
        }
        if (F.on("s2-dht-latest-16")) {
            latest.remove(k);
            latest.add(k);
            while (latest.size() > 16) values.remove(latest.remove(0));
        }
        DHTStoreResponse.Builder b = DHTStoreResponse.newBuilder().setResponder(F.on("s2-dht-store-echo") && r.hasSender() ? r.getSender() : self()).setSuccess(!F.on("dht-store-success-false"));
        return b.build();
    }
}
