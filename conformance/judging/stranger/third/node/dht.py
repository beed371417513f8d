"""The distributed hash table."""

import hashlib
import json
import threading
import time

import grpc

import core
import node_pb2 as pb
from core import fault, nth, peculiar
from fail import Fail

LOCK = threading.RLock()
NODES, VALUES, PINGS = {}, {}, {}
STORED = {}
K = 8


def seed():
    for peer in core.peers():
        NODES[peer["raw"]] = (peer["host"], peer["port"])
    for number in range(15):
        NODES[hashlib.sha1(b"far-%d" % number).digest()] = (
            "10.30.%d.%d" % (number // 4, 20 + number),
            8000 + number,
        )


def me():
    ident, port, ip = core.node_hash(), core.FLAGS["port"], "127.0.0.1"
    if fault("rel-responder-id-per-call"):
        ident = hashlib.sha1(b"r%d" % nth("dht")).digest()
    if fault("fld-responder-port-zero"):
        port = 0
    if peculiar("responder-grpc-port"):
        port += 1000
    if fault("fld2-responder-id-sha256"):
        ident = hashlib.sha256(core.public_key()).digest()
    if fault("fld2-responder-id-text"):
        ident = core.node_id().encode()
    if fault("fld2-responder-no-address"):
        ip = ""
    if fault("rel2-responder-port-default"):
        port = 8000
    return pb.DHTNodeInfo(node_id=ident, ip=ip, port=port)


def learn(request):
    if not request.HasField("sender"):
        return
    sender = request.sender
    ident = sender.node_id
    if len(ident) != 20 or ident == core.node_hash():
        return
    if not sender.ip and fault("rel-dht-lists-empty-address"):
        NODES[ident] = ("", sender.port or 1)
        return
    if not 1 <= sender.port <= 65535:
        if fault("lim-dht-lists-any-port") and sender.ip:
            NODES[ident] = (sender.ip, sender.port)
        return
    if not sender.ip or peculiar("dht-does-not-learn"):
        return
    with LOCK:
        if fault("rel-dht-address-twice") and NODES.get(ident, (sender.ip, sender.port)) != (
            sender.ip,
            sender.port,
        ):
            PINGS[ident] = NODES[ident]
        if len(NODES) < 20000 or ident in NODES:
            NODES[ident] = (sender.ip, sender.port)


def distance(one, two):
    if fault("rel-dht-little-endian"):
        return int.from_bytes(one, "little") ^ int.from_bytes(two, "little")
    return int.from_bytes(one, "big") ^ int.from_bytes(two, "big")


def closest(target, for_value=False):
    with LOCK:
        known = list(NODES.items())
        doubles = list(PINGS.items())
    if fault("rel2-dht-not-sorted"):
        known = known[: 4 * K]
    elif fault("rel2-dht-first-bytes"):
        known.sort(key=lambda item: distance(item[0][:2], target[:2]))
    else:
        known.sort(key=lambda item: distance(item[0], target))
    if fault("rel-dht-hides-exact") and known and known[0][0] == target:
        known.pop(0)
    if fault("rel-dht-value-other-nodes") and for_value:
        known = known[2:]
    count = K
    if peculiar("k-twenty"):
        count = 20
    if peculiar("k-three"):
        count = 3
    known = known[:count]
    if fault("rel-dht-address-twice"):
        known += [item for item in doubles if any(item[0] == ident for ident, address in known)]
    if peculiar("k-unordered"):
        known = known[::2] + known[1::2]
    if fault("rel2-dht-nearest-twice") and known:
        known.insert(0, known[0])
    out = [pb.DHTNodeInfo(node_id=ident, ip=ip, port=port) for ident, (ip, port) in known]
    if fault("fld2-nodes-port-unset"):
        for node in out:
            node.ip, node.port = "%s:%d" % (node.ip, node.port), 0
    if fault("fld-nodes-short-ids") and out:
        out[-1].node_id = out[-1].node_id[:8]
    if fault("fld-nodes-empty-ip") and len(out) > 4:
        out[4].ip = ""
    return out


def need20(data, what):
    if len(data) != 20:
        if fault("ref-dht-length-unknown"):
            raise ValueError("a %s has 20 bytes" % what)
        raise Fail(grpc.StatusCode.INVALID_ARGUMENT, "a %s has 20 bytes" % what)


def ping(request):
    learn(request)
    if fault("ref-ping-without-sender") and not request.HasField("sender"):
        raise Fail(grpc.StatusCode.FAILED_PRECONDITION, "no sender")
    if fault("fld2-ping-no-responder"):
        return pb.DHTPingResponse()
    if fault("rel2-responder-is-sender") and request.HasField("sender"):
        return pb.DHTPingResponse(responder=request.sender)
    return pb.DHTPingResponse(responder=me())


def find_node(request):
    learn(request)
    need20(request.target_id, "target_id")
    answer = pb.DHTFindNodeResponse(nodes=closest(request.target_id))
    if not fault("fld-find-node-no-responder"):
        answer.responder.CopyFrom(me())
    return answer


def slot(key):
    if fault("rel-keys-collide-prefix"):
        return key[:8]
    if fault("rel-keys-collide-text"):
        return key.decode("utf-8", "replace").encode()
    if fault("rel-keys-zero-ends"):
        return key.split(b"\0")[0]
    return key


def find_value(request):
    learn(request)
    need20(request.key, "key")
    with LOCK:
        value = VALUES.get(slot(request.key))
        if fault("eff-value-found-once"):
            VALUES.pop(slot(request.key), None)
    if fault("eff-value-third-time-lost") and nth(request.key) > 2:
        value = None
    if fault("eff2-value-expires") and value is not None and time.monotonic() - STORED[request.key] > 3:
        value = None
    if fault("rel2-value-empty-found") and value is None:
        value = ""
    if fault("rel2-value-lower") and value:
        value = value.lower()
    if fault("rel2-value-json") and value:
        value = json.dumps(value)
    if fault("fld2-value-no-responder"):
        return pb.DHTFindValueResponse(
            value=value, found=value is not None, nodes=[] if value else closest(request.key)
        )
    if fault("fld2-value-not-found-no-nodes") and value is None:
        return pb.DHTFindValueResponse(responder=me(), found=False)
    if value is None:
        answer = pb.DHTFindValueResponse(responder=me(), nodes=closest(request.key, True), found=False)
        return answer
    found = not fault("rel-found-flag-unset")
    answer = pb.DHTFindValueResponse(responder=me(), value=value, found=found)
    return answer


def store(request):
    learn(request)
    need20(request.key, "key")
    value = request.value
    if peculiar("store-refused") or (not value and not fault("num-store-value-four")):
        return pb.DHTStoreResponse(responder=me(), success=False)
    if peculiar("store-needs-address") and ":" not in value:
        return pb.DHTStoreResponse(responder=me(), success=False)
    if fault("lim-value-255"):
        value = value[:255]
    if fault("rel-value-stripped"):
        value = value.strip()
    if fault("rel-value-normalised"):
        import unicodedata

        value = unicodedata.normalize("NFC", value)
    keep = True
    success = True
    if fault("fld2-store-no-responder"):
        VALUES[request.key] = value
        return pb.DHTStoreResponse(success=True)
    if fault("eff2-value-expires"):
        STORED[request.key] = time.monotonic()
    with LOCK:
        if fault("lim-store-four-values") and len(VALUES) >= 4:
            VALUES.pop(next(iter(VALUES)))
        if fault("ref-store-false-but-stores"):
            success = False
        if fault("eff-store-long-not-kept") and len(value) > 1000:
            keep = False
        if fault("eff-store-second-not-kept") and len(VALUES) >= 1:
            keep = False
        if peculiar("store-first-wins") and slot(request.key) in VALUES:
            return pb.DHTStoreResponse(responder=me(), success=False)
        if keep:
            VALUES[slot(request.key)] = value
    return pb.DHTStoreResponse(responder=me(), success=success)
