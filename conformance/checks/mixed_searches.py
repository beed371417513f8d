"""Interface 2.3 and 4.3: the two searches of the DHT side by side, among many nodes.

The IDs of senders are drawn, most of them near a few targets. How many of them a node learns, and
how many it lists, is open: only a node that is listed somewhere can be left out elsewhere.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from itertools import product
from random import Random
from typing import Any

from conformance import messages
from conformance.checks.dht import NODE_ID_BYTES, SENDER, distance
from conformance.checks.money import TRIES
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief
from conformance.target import GRPC_PORT_OFFSET

CLOSEST, READABLE, NEWCOMERS = "DH-032", "DH-033", "DH-035"
NAMED, WHERE, AS_MANY, BY_NOBODY = "DH-040", "DH-041", "DH-044", "DH-047"
# Fewer senders may be all that a node has learned of.
OF_TARGET, ENOUGH = "DH-049", 3
SEARCHES = {"DHTFindNode": "target_id", "DHTFindValue": "key"}
SENDERS, TARGETS, ELSEWHERE = 30, 3, 2
# Low and high ones, on which nobody answers.
PORTS = (SENDER.port, 19, 33_019, 49_019, 65_019)
# Senders may have these addresses, too.
IPV6 = ("2001:db8::7", "fd12:3456::1")
# So many of the first and of the last senders are looked for.
FEW = 5
# By so much the longest lists of two searches may differ.
ABOUT = 3
# Such a part of the longest list.
MUCH_LESS = 0.5
# So many of the first bits may an ID have in common with a target.
ALIKE_BITS = 32


@dataclass(frozen=True)
class Listing:
    """The nodes that a search lists, by their IDs."""

    reply: Reply
    nodes: dict[bytes, Any]
    home: bytes = b""
    """The ID of the node that lists them, which may list itself besides, however far it is."""

    def without(self, known: set[bytes], target: bytes, room: int) -> set[bytes]:
        """Return the known nodes that are not listed, but closer than one that is.

        Nor may any be left out of a list with much less than what there is ``room`` for; a node
        may take some out, such as the one that asks.
        """
        others = known - set(self.nodes)
        if len(self.nodes) <= room * MUCH_LESS:
            return others
        there = [distance(node, target) for node in self.nodes if node != self.home]
        farthest = max(there, default=0)
        return {one for one in others if distance(one, target) < farthest}


def _search(
    context: Context, operation: str, target: bytes, sender: Any = SENDER
) -> Listing | None:
    """Search for a target; None if there is no answer, or a value is found."""
    fields: dict[str, Any] = {SEARCHES[operation]: target}
    request = messages.make(f"{operation}Request", sender=sender, **fields)
    reply = context.grpc.call(operation, request)
    answer = reply.message
    if answer is None or getattr(answer, "found", False):
        return None
    nodes = {bytes(node.node_id): node for node in answer.nodes}
    return Listing(reply, nodes, bytes(answer.responder.node_id))


@requirement(CLOSEST, READABLE, NEWCOMERS, NAMED, WHERE, AS_MANY, BY_NOBODY, OF_TARGET, "DH-013")
def dht_crowd(context: Context) -> None:
    """Call DHTPing as many senders, and compare both searches for drawn targets among them."""
    draw = Random(context.target.seed)  # noqa: S311 - IDs of senders, no secret
    targets = [draw.randbytes(NODE_ID_BYTES) for _ in range(TARGETS)]
    senders = list(_senders(draw, targets))
    named = dict[bytes, tuple[str, int]]()
    for ident in senders:
        named[ident] = f"127.0.0.{draw.randrange(2, 128)}", draw.choice(PORTS)
        _ping(context, ident, *named[ident])
    targets += [draw.randbytes(NODE_ID_BYTES) for _ in range(ELSEWHERE)]
    if context.edition >= FIFTH:
        # IDs that begin or end with a zero byte, of which a text would lose that.
        bare = [
            draw.randbytes(NODE_ID_BYTES - 1) + b"\0",
            b"\0" + draw.randbytes(NODE_ID_BYTES - 1),
        ]
        for ident in bare:
            _ping(context, ident, "127.0.0.1", PORTS[1])
        # Others may not know each of these addresses for one, so that they are not all for all.
        for ip in IPV6:
            beyond = os.urandom(NODE_ID_BYTES)
            named[beyond] = ip, PORTS[2]
            _ping(context, beyond, *named[beyond])
            bare.append(beyond)
        # And the place where an ID is the number 0.
        targets += [*bare, bytes(NODE_ID_BYTES)]
    listings = {
        (operation, target): found
        for target in targets
        for operation in SEARCHES
        if (found := _search(context, operation, target)) is not None
    }
    nodes = [node for listing in listings.values() for node in listing.nodes.values()]
    if not nodes:
        raise Skipped("no node is listed")
    for operation in SEARCHES:
        _judge_ips(context, operation, [v for k, v in listings.items() if k[0] == operation])
    _judge_closest(context, targets, listings)
    if context.edition >= FIFTH:
        _judge_newcomers(context, senders)
        _judge_named(context, named, listings)
        _judge_as_many(context, listings)
    if context.edition >= SEVENTH:
        _judge_alike(context, named, listings)


def _judge_alike(
    context: Context,
    named: dict[bytes, tuple[str, int]],
    listings: dict[tuple[str, bytes], Listing],
) -> None:
    """Rule on whether senders are listed for the targets that they are close to."""
    lists = [set(listing.nodes) & named.keys() for listing in listings.values()]
    if len(lists) > 2 * TARGETS and all(len(one) >= ENOUGH for one in lists):
        same = all(one == lists[0] for one in lists)
        why = f"of {len(named)} senders the same {len(lists[0])} are listed for each target"
        context.judge(OF_TARGET, not same, why, *(one.reply for one in [*listings.values()][:2]))


def _ping(context: Context, ident: bytes, ip: str, port: int) -> None:
    sender = messages.make("DHTNodeInfo", node_id=ident, ip=ip, port=port)
    context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=sender))


def _judge_named(
    context: Context,
    named: dict[bytes, tuple[str, int]],
    listings: dict[tuple[str, bytes], Listing],
) -> None:
    """Rule on where senders are listed, each of which has named one address.

    A node may take the address that calls come from, which is one for all of them, and may name one
    of a sender's two ports for the other one.
    """
    wrong, odd, others = list[str](), list[str](), set[str]()
    shown = list[Reply]()
    for listing in listings.values():
        for ident in named.keys() & listing.nodes.keys():
            node, (ip, port) = listing.nodes[ident], named[ident]
            found, told = f"{node.ip} {node.port}", f"{ident.hex()[:8]} of {ip} {port}"
            same = _address(node.ip) == _address(ip)
            others |= set() if same else {node.ip}
            if abs(node.port - port) not in (0, GRPC_PORT_OFFSET):
                wrong.append(f"{told} at {found}")
            if (not same or node.port != port) and ip not in IPV6:
                odd.append(f"{told} at {found}")
            if not same or node.port != port or not shown:
                shown.append(listing.reply)
    if shown:
        why = f"of {len(named)} senders, nodes are listed elsewhere: {brief(wrong or odd, 160)}"
        context.judge(NAMED, not wrong and len(others) < 2, why, *shown[:2])
        context.judge(WHERE, not odd, why, *shown[:2])


def _address(text: str) -> object:
    """Read an ip, in whichever form it is written; the text itself if it is none."""
    try:
        found = ip_address(text.strip("[] "))
    except ValueError:
        return text
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _judge_as_many(context: Context, listings: dict[tuple[str, bytes], Listing]) -> None:
    """Rule on how many nodes the searches list at most: K is one number.

    A node may leave out itself and who asks, and list them in the other search, beside K others or
    among them. So from edition 7 on they may be counted or not.
    """
    most, whole = dict[str, tuple[int, Reply]](), dict[str, int]()
    for (operation, _), listing in listings.items():
        beside = {listing.home, SENDER.node_id}
        many = len(listing.nodes.keys() - beside), listing.reply
        most[operation] = max(most.get(operation, many), many, key=lambda found: found[0])
        whole[operation] = max(whole.get(operation, 0), len(listing.nodes))
    if len(most) == len(SEARCHES):
        (fewer, _), (more, _) = sorted(most.values(), key=lambda found: found[0])
        why = ", ".join(f"{operation} lists {many}" for operation, (many, _) in most.items())
        held = more - fewer <= ABOUT
        if context.edition >= SEVENTH:
            held = min(more - fewer, max(whole.values()) - min(whole.values())) <= 1
        context.judge(AS_MANY, held, f"at most {why}", *(reply for _, reply in most.values()))


def _judge_newcomers(context: Context, senders: list[bytes]) -> None:
    """Rule on whether those who came last are listed in searches for themselves.

    A node may learn of nobody who pings it, or of a few of many; then the first are none either.
    """
    shown, known = list[Reply](), list[bool]()
    for ident in (*senders[:FEW], *senders[-FEW:]):
        listing = _search(context, "DHTFindNode", ident)
        known.append(listing is not None and ident in listing.nodes)
        shown += [listing.reply] if listing is not None else []
    early = any(known[:FEW])
    if not early and context.edition >= SIXTH:
        # The one that has called the node since the run began, asked for by somebody else.
        ident = os.urandom(NODE_ID_BYTES)
        other = messages.make("DHTNodeInfo", node_id=ident, ip="127.0.0.1", port=PORTS[0])
        listing = _search(context, "DHTFindNode", SENDER.node_id, other)
        early = listing is not None and SENDER.node_id in listing.nodes
        shown += [listing.reply] if listing is not None else []
    if early:
        why = f"of the first senders of {len(senders)} some are listed, of the last {FEW} none"
        context.judge(NEWCOMERS, any(known[FEW:]), why, *shown[:2], *shown[-2:])


def _judge_ips(context: Context, operation: str, listings: list[Listing]) -> None:
    """Rule on the ips that a search lists: the node may know some that others have made up."""
    ips = sorted({node.ip for listing in listings for node in listing.nodes.values()})
    if ips:
        why = f"none of the {len(ips)} ips that {operation} lists is readable: {brief(ips, 120)}"
        held = any(ip.strip() and ip.isprintable() for ip in ips)
        context.judge(READABLE, held, why, *(listing.reply for listing in listings[:2]))
    for listing in listings:
        ports = [node.port for node in listing.nodes.values()]
        if ports:
            held = all(0 < port < 65536 for port in ports)
            context.judge("DH-013", held, f"ports {brief(ports)}", listing.reply)


def _senders(draw: Random, targets: list[bytes]) -> Iterator[bytes]:
    """Yield IDs that have more or fewer of their first bits in common with one of the targets."""
    for at in range(SENDERS):
        target = int.from_bytes(targets[at % len(targets)], "big")
        other = draw.getrandbits(8 * NODE_ID_BYTES - draw.randrange(ALIKE_BITS))
        yield (target ^ other).to_bytes(NODE_ID_BYTES, "big")


def _judge_closest(
    context: Context, targets: list[bytes], listings: dict[tuple[str, bytes], Listing]
) -> None:
    """Rule on each search for each target: what it leaves out in every try, and lists elsewhere."""
    known = {node for listing in listings.values() for node in listing.nodes}
    room = {
        one: max(len(found.nodes) for (operation, _), found in listings.items() if operation == one)
        for one, _ in listings
    }
    own = messages.make("DHTPingRequest", sender=SENDER)
    responder = context.grpc.call("DHTPing", own).message
    # Itself, and who asks, a node may list in one search and not in the other.
    home = bytes(responder.responder.node_id) if responder else b""
    known -= {SENDER.node_id, home}
    searches = list(product(targets, SEARCHES))
    if len(home) == NODE_ID_BYTES:
        # And where the node itself is. It may have stored something there.
        searches.append((home, "DHTFindNode"))
    for target, operation in searches:
        left_out, shown, listed = set(known), list[Reply](), 0
        for _ in range(TRIES):
            listing = _search(context, operation, target)
            if listing is None:
                left_out = set()
                break
            shown, listed = [listing.reply], len(listing.nodes)
            lacking = listing.without(left_out, target, room.get(operation, 0))
            left_out = _still_known(context, lacking, target, shown)
            if not left_out:
                break
        named = ", ".join(node.hex() for node in sorted(left_out)[:2])
        why = f"{operation} for {target.hex()} lists {listed} nodes of up to"
        why = f"{why} {room.get(operation, 0)}, farther ones than {named} or none in their place"
        if shown:
            context.judge(CLOSEST, not left_out, why, *shown)
    if context.edition >= SIXTH:
        _judge_from_nobody(context, targets[0], known, room)


def _judge_from_nobody(
    context: Context, target: bytes, known: set[bytes], room: dict[str, int]
) -> None:
    """Rule on a search that names no sender, which a node may refuse."""
    for operation in SEARCHES:
        listing = _search(context, operation, target, None)
        usual = _search(context, operation, target)
        if listing is None or usual is None:
            continue
        lacking = listing.without(known, target, room.get(operation, 0))
        lacking -= usual.without(known, target, room.get(operation, 0))
        why = f"{operation} by nobody lists {len(listing.nodes)} nodes, and by a sender"
        why = (
            f"{why} {len(usual.nodes)}: {brief([node.hex() for node in sorted(lacking)[:2]], 100)}"
        )
        context.judge(BY_NOBODY, not lacking, why, listing.reply, usual.reply)


def _still_known(
    context: Context, left_out: set[bytes], target: bytes, shown: list[Reply]
) -> set[bytes]:
    """Return those of the nearest two that the node lists in a search that is theirs.

    Such a search is for just them, or for the farthest place from them: it shows nodes that a node
    lists because they are far.
    """
    found = set[bytes]()
    for node in sorted(left_out, key=lambda one: distance(one, target))[:2]:
        for operation, place in product(SEARCHES, (node, bytes(255 - byte for byte in node))):
            listing = _search(context, operation, place)
            if listing is not None and node in listing.nodes:
                found.add(node)
                shown.append(listing.reply)
                break
    return found
