"""Interface 2.3 and 4.3: what a DHT keeps, followed over many keys, long values and all statuses.

A node may refuse any store; nothing is judged of a value that it refused. All keys are fresh.
"""

import os
from contextlib import suppress
from typing import Any

from conformance import messages
from conformance.checks.addresses import ports_of
from conformance.checks.answers import DOCUMENTED_CODES, OF_AUTHENTICATION, UNKNOWN
from conformance.checks.dht import NODE_ID_BYTES, SENDER, found_nodes
from conformance.checks.dht_keys import STORED_SINCE, alike, others
from conformance.context import Context
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import GrpcClient, Reply
from conformance.httpwire import Unanswered
from conformance.registry import Pauses, requirement
from conformance.strictjson import brief

# Values that a store might cut, fold, strip or decode.
VALUES = (
    "192.0.2.1:9000",
    "node-" + "0123456789abcdef" * 80,
    "[2001:db8::7]:65535",
    "Größe 日本語 🙂",
    " a value with spaces at both ends ",
    "\ufb01 \u212b \u2460 e\u0301 \u00e9",
    'key=1&other="two"\n\tthree',
    "before\0after",
    "0123456789" * 7000,
)
# And one whose line breaks a text would change, since the same edition as below.
LINES = "one\r\ntwo\rthree\n"
# Texts that are something else, too: numbers, words of JSON, and letters that stand for others.
SEEMING = (
    "0", "007", "1e3", "null", "false", '{"b": 1,  "a": [2.50]}', '"quoted"',
    "a%41+b%2Fc &lt;d&gt; \\n \\u0041 %s {0}",
)  # fmt: skip
# Keys that are the least and the greatest number. Another run may have stored under them, too.
ENDS = bytes(NODE_ID_BYTES), b"\xff" * NODE_ID_BYTES
ANY_TEXT = "DH-048"
TIMES = 4
# The first that asks what becomes of senders with odd IDs, and of a value after a moment.
ODD_SINCE = 4
KEPT_S, LONGER_S = 4.0, 8.0
OTHER = "192.0.2.99:9099"
ODD = (7, 19, 21)
# No port, but a number that the field can hold.
NO_PORT = 70_000
# Lengths that are not those of an ID.
LENGTHS = (0, 1, 19, 21, 64, 300, 5000)
# Numbers under which a reader might look for the value of a store.
_OTHER_NUMBERS = (4, 5, 6, 7, 8)
# What a server ends with whose own code has failed.
FAILURES = ("INTERNAL", "UNKNOWN")
# A call that may be answered another time.
LATER = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
# Another port on which nobody answers, and two ips.
OTHER_PORT = 19
IPS = "127.0.0.3", "127.0.0.4"


def _stored(context: Context, key: bytes, value: str) -> Reply | None:
    """Store a value, and return the answer if the node has taken it."""
    request = messages.make("DHTStoreRequest", sender=SENDER, key=key, value=value)
    reply = context.grpc.call("DHTStore", request)
    answer = reply.message
    return reply if answer is not None and answer.success else None


def _found(
    context: Context, key: bytes, client: GrpcClient | None = None
) -> tuple[Reply, str | None]:
    """Look a key up, over the run's own connection or another one; None if it is not found."""
    request = messages.make("DHTFindValueRequest", sender=SENDER, key=key)
    reply = (client or context.grpc).call("DHTFindValue", request)
    answer = reply.message
    if answer is None:
        raise Skipped(f"DHTFindValue ended with {reply.code}")
    return reply, answer.value if answer.found else None


def _is_answered(context: Context, key: bytes, value: str, stored: Reply) -> bool:
    """Rule on a search that fails for one value and not for others; return whether it does not."""
    request = messages.make("DHTFindValueRequest", sender=SENDER, key=key)
    reply = context.grpc.call("DHTFindValue", request)
    if reply.message is not None or value == VALUES[0] or reply.code in LATER:
        return True
    why = f"stored {len(value)} characters, {brief(value)}; the search ended with {reply.code}"
    context.fails("DH-021", why, stored, reply)
    return False


def _judge_ends(context: Context) -> None:
    """Store under the first key and the last one, and look both up."""
    for key in ENDS:
        stored = _stored(context, key, VALUES[0])
        if stored:
            reply, found = _found(context, key)
            why = f"under {key.hex()} a value is stored, and none is found"
            context.judge("DH-022", found is not None, why, stored, reply)


@requirement("DH-021", "DH-022", "DH-023", "GR-CODE-011", "DH-019", ANY_TEXT)
def dht_values(context: Context) -> Pauses:
    """Store long, foreign and many values, under keys that resemble one another; look each up."""
    later = context.edition >= STORED_SINCE
    values = (*VALUES, LINES) if later else VALUES
    for value in (*values, *SEEMING) if context.edition >= SIXTH else values:
        key = os.urandom(NODE_ID_BYTES)
        stored = _stored(context, key, value)
        if value in SEEMING:
            why = f"an address is stored, and {brief(value)} is not"
            usual = stored or _stored(context, os.urandom(NODE_ID_BYTES), VALUES[0])
            context.judge(ANY_TEXT, bool(stored or not usual), why, *filter(None, [usual]))
        if stored and context.edition >= SIXTH and not _is_answered(context, key, value, stored):
            continue
        if stored:
            reply, found = _found(context, key)
            why = f"stored {len(value)} characters, {brief(value)}; found {brief(found)}"
            context.judge("DH-021", found == value, why, stored, reply)
    kept: dict[bytes, tuple[str, Reply]] = {}
    base = os.urandom(NODE_ID_BYTES)
    for number, key in enumerate((*alike(base), *others(base, context.edition))):
        value = f"192.0.2.{number + 1}:{9000 + number}"
        stored = _stored(context, key, value)
        if stored:
            kept[key] = value, stored
    for key, (value, stored) in kept.items():
        reply, found = _found(context, key)
        why = f"of {len(kept)} values the one under {key.hex()} is {brief(found)}"
        context.judge("DH-022", found == value, f"{why}, not {brief(value)}", stored, reply)
    for key, (value, stored) in list(kept.items())[-1:]:
        looks = [_found(context, key) for _ in range(TIMES)]
        if context.edition >= ODD_SINCE:
            # A value is there for others, who look for it later.
            yield LONGER_S if context.edition >= SIXTH else KEPT_S
            looks.append(_found(context, key))
        if context.edition >= SIXTH:
            # And over another connection.
            # Which a node need not take.
            with suppress(Unanswered, Skipped), context.grpc.apart() as client:
                looks.append(_found(context, key, client))
            _judge_ends(context)
        why = f"looked up {len(looks)} times: {brief([found for _, found in looks])}"
        held = all(found == value for _, found in looks)
        context.judge("DH-023", held, why, stored, *(reply for reply, _ in looks))
        if context.edition >= ODD_SINCE and _stored(context, key, OTHER) is None:
            reply, found = _found(context, key)
            why = f"a second value is refused, and found is {brief(found)} instead of the first"
            context.judge("DH-019", found != OTHER, why, stored, reply)
    if context.edition >= STORED_SINCE:
        for length in LENGTHS:
            name = os.urandom(length)
            request = messages.make("DHTStoreRequest", sender=SENDER, key=name, value=VALUES[0])
            _judge_length(context, "DHTStore", length, context.grpc.call("DHTStore", request))


@requirement("DH-024", "DH-034")
def dht_moved(context: Context) -> None:
    """Call DHTPing from a second address of the same sender, and search for its ID."""
    moved = messages.make(
        "DHTNodeInfo", node_id=SENDER.node_id, ip=SENDER.ip, port=OTHER_PORT
    )  # fmt: skip
    if context.edition >= FIFTH:
        _judge_moved_ip(context)
        # It was there before.
        context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=SENDER))
    ping = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=moved))
    request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=SENDER.node_id)
    reply = context.grpc.call("DHTFindNode", request)
    answer = reply.message
    if not ping.ok or answer is None:
        raise Skipped(f"DHTPing ended with {ping.code}, DHTFindNode with {reply.code}")
    times = [node.node_id for node in answer.nodes].count(SENDER.node_id)
    why = f"a sender with two addresses is listed {times} times"
    context.judge("DH-024", times <= 1, why, ping, reply)
    # Who asks is the sender, too, so from the new address.
    request = messages.make("DHTFindNodeRequest", sender=moved, target_id=SENDER.node_id)
    reply = context.grpc.call("DHTFindNode", request)
    nodes: list[Any] = list(reply.message.nodes) if reply.message is not None else []
    ports = [node.port for node in nodes if node.node_id == SENDER.node_id]
    why = f"a sender that is at the port {OTHER_PORT} now is listed with {brief(ports)}"
    if ports:
        context.judge("DH-034", OTHER_PORT in ports, why, ping, reply)


def _judge_moved_ip(context: Context) -> None:
    """Call DHTPing from a second ip of a sender; it was listed at the first one."""
    ident, found = os.urandom(NODE_ID_BYTES), list[tuple[list[str], Reply]]()
    for ip in IPS:
        sender = messages.make("DHTNodeInfo", node_id=ident, ip=ip, port=SENDER.port)
        context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=sender))
        request = messages.make("DHTFindNodeRequest", sender=sender, target_id=ident)
        reply = context.grpc.call("DHTFindNode", request)
        nodes: list[Any] = list(reply.message.nodes) if reply.message is not None else []
        found.append(([node.ip for node in nodes if node.node_id == ident], reply))
    (first, _), (second, shown) = found
    context.judge("DH-024", len(second) <= 1, f"a sender is listed at {brief(second)}", shown)
    if first == [IPS[0]] and second:
        why = f"a sender that is at {IPS[1]} now is listed at {brief(second)}"
        context.judge("DH-034", IPS[1] in second, why, shown)


@requirement("DH-027", "DH-003", "DH-013", "GR-CODE-001")
def dht_unreachable(context: Context) -> None:
    """Call DHTPing as a sender without an address, and as some with odd IDs; search for them."""
    if context.edition >= ODD_SINCE:
        _judge_odd_senders(context)
        _judge_odd_port(context)
    ident = os.urandom(NODE_ID_BYTES)
    nowhere = messages.make("DHTNodeInfo", node_id=ident)
    ping = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=nowhere))
    request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=ident)
    reply = context.grpc.call("DHTFindNode", request)
    answer = reply.message
    if answer is None:
        raise Skipped(f"DHTPing ended with {ping.code}, DHTFindNode with {reply.code}")
    bare = [node for node in answer.nodes if node.node_id == ident and not (node.ip and node.port)]
    why = "a sender without an address is listed without one"
    context.judge("DH-027", not bare, why, ping, reply)
    for half in ({"ip": SENDER.ip}, {"port": SENDER.port}) if context.edition >= FIFTH else ():
        ident = os.urandom(NODE_ID_BYTES)
        sender = messages.make("DHTNodeInfo", node_id=ident, **half)
        ping = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=sender))
        asked = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=ident)
        reply = context.grpc.call("DHTFindNode", asked)
        listed = (
            [one for one in reply.message.nodes if one.node_id == ident] if reply.message else []
        )
        # A node may add the address that the connection is from, or a usual port.
        bare = [node for node in listed if not (node.ip and node.port)]
        why = f"a sender with {brief(half)} alone is listed so"
        context.judge("DH-027", not bare, why, ping, reply)


def _judge_odd_senders(context: Context) -> None:
    """Call DHTPing with senders whose IDs have other lengths, and look whom the node lists."""
    for length in ODD:
        sender = messages.make(
            "DHTNodeInfo", node_id=os.urandom(length), ip=SENDER.ip, port=SENDER.port
        )
        ping = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=sender))
        if ping.code in (UNKNOWN, *OF_AUTHENTICATION):
            return
        why = f"a sender with an ID of {length} bytes ends with {ping.code}"
        context.judge("GR-CODE-001", ping.code in DOCUMENTED_CODES, why, ping)
        request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=os.urandom(
            NODE_ID_BYTES))  # fmt: skip
        reply = context.grpc.call("DHTFindNode", request)
        answer = reply.message
        if answer is not None and answer.nodes:
            odd = [node.node_id for node in answer.nodes if len(node.node_id) != NODE_ID_BYTES]
            why = f"after a ping by a sender with an ID of {length} bytes, {brief(odd)} is listed"
            context.judge("DH-003", not odd, why, ping, reply)


def _judge_odd_port(context: Context) -> None:
    """Call DHTPing with a sender at a port that no machine has, and search for it."""
    ident = os.urandom(NODE_ID_BYTES)
    sender = messages.make("DHTNodeInfo", node_id=ident, ip=SENDER.ip, port=NO_PORT)
    ping = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=sender))
    request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=ident)
    reply = context.grpc.call("DHTFindNode", request)
    answer = reply.message
    if answer is not None and answer.nodes:
        ports = [node.port for node in answer.nodes if node.node_id == ident]
        why = f"a sender with the port {NO_PORT} is listed with {brief(ports)}"
        held = all(0 < port < 2**16 for port in ports)
        if context.edition >= FIFTH:
            # Nor at a port that nobody has named.
            held = not ports
        context.judge("DH-013", held, why, ping, reply)


@requirement("DH-025")
def dht_store_number(context: Context) -> None:
    """Store a value at its number, and if it is refused, at others."""
    key, value = os.urandom(NODE_ID_BYTES), "192.0.2.1:9000"
    stored = _stored(context, key, value)
    if stored:
        context.holds("DH-025", stored)
        return
    bare = messages.make("DHTStoreRequest", sender=SENDER, key=key).SerializeToString()
    for number in _OTHER_NUMBERS:
        content = bytes([number << 3 | messages.LENGTH, len(value)]) + value.encode()
        other = context.grpc.call("DHTStore", bare + content)
        answer = other.message
        if answer is not None and answer.success:
            reply, found = _found(context, key)
            why = f"a value in field {number} is stored, one in field 3 is refused"
            context.judge("DH-025", found != value, why, other, reply)
            return


@requirement("GR-CODE-011", "GR-CODE-015")
def dht_statuses(context: Context) -> None:
    """Search for IDs and keys of other lengths, and store under them; judge the statuses."""
    served = set[str]()
    if context.edition >= SIXTH:
        usual = _searches(NODE_ID_BYTES)
        served = {name for name, request in usual if context.grpc.call(name, request).ok}
    for length in LENGTHS:
        for operation, request in _searches(length):
            reply = context.grpc.call(operation, request)
            _judge_length(context, operation, length, reply, served=operation in served)


def _searches(length: int) -> tuple[tuple[str, Any], ...]:
    """Return searches for an ID and for a key of so many bytes."""
    name = os.urandom(length)
    return (
        ("DHTFindNode", messages.make("DHTFindNodeRequest", sender=SENDER, target_id=name)),
        ("DHTFindValue", messages.make("DHTFindValueRequest", sender=SENDER, key=name)),
    )


def _judge_length(
    context: Context, operation: str, length: int, reply: Reply, *, served: bool = False
) -> None:
    # An operation that is not there ends as unknown, too.
    if reply.code not in OF_AUTHENTICATION and (served or reply.code != UNKNOWN):
        why = f"{operation} with {length} bytes ends with {reply.code}: {reply.details}"
        context.judge("GR-CODE-011", reply.code in DOCUMENTED_CODES, why, reply)
        if context.edition >= FIFTH and context.may_rule_on("GR-CODE-015"):
            context.judge("GR-CODE-015", reply.code not in FAILURES, why, reply)


@requirement("DH-026", "DH-028", "DH-029", "DH-042", "DH-043")
def dht_responder(context: Context) -> None:
    """Call DHTPing, and look for the address of the responder."""
    reply = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=SENDER))
    answer = reply.message
    if answer is None or not answer.HasField("responder"):
        raise Skipped(f"DHTPing ended with {reply.code}, or names no responder")
    port = answer.responder.port
    context.judge("DH-026", 0 < port < 65536, f"the port of the responder is {port}", reply)
    context.judge("DH-028", bool(answer.responder.ip), "the responder has no ip", reply)
    ports = ports_of(context)
    why = f"the port of the responder is {port}, and the node was reached at {ports}"
    context.judge("DH-029", port in ports, why, reply)
    if context.edition >= SIXTH:
        # Every answer names the responder, and is compared with those before.
        key = os.urandom(NODE_ID_BYTES)
        found_nodes(context, key)
        context.grpc.call(
            "DHTFindValue", messages.make("DHTFindValueRequest", sender=SENDER, key=key)
        )
