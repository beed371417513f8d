"""The options of `meshnode-conformance peer`, and what it says to whoever runs it."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance import messages
from conformance.catalogue import Profile
from conformance.compiled import grpc
from conformance.options import add_target_options
from conformance.peer.callback import read_address
from conformance.peer.peer import Patience, Peer, Setup
from conformance.peer.watch import PEER
from conformance.target import (
    GRPC_PORT_OFFSET,
    BadConfiguration,
    Target,
    documented_grpc_address,
)

LISTEN = "127.0.0.1:8400"
ELSEWHERE = "`meshnode-conformance run` judges it; this run judges a node as a client"
ID_BYTES = 20


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = command.add_argument
    add("url", help="http://HOST:PORT of the node that is judged")
    add("ids", nargs="*", metavar="ID", help="requirements to judge; default: all")
    add_target_options(command)
    add(
        "--listen", default=LISTEN, metavar="HOST:PORT",
        help=f"HTTP address of the peer, that the node is told; gRPC at the port plus 1000;"
        f" default: {LISTEN}",
    )  # fmt: skip
    add("--behind", metavar="URL", help="a second node of your own, which answers for the peer")
    add(
        "--sole", action="store_true",
        help="no other node holds what the peer holds, so no answer can do without it",
    )  # fmt: skip
    add("--checkpoint", type=Path, metavar="FILE", help="what the peer answers to GetCheckpoint")
    add("--wait", type=float, default=60.0, metavar="S", help="how long to wait for the node")


def make_setup(options: argparse.Namespace, target: Target) -> Setup:
    """Make the peer's setup of the options."""
    host, port = read_address(options.listen)
    behind = (options.behind, documented_grpc_address(options.behind)) if options.behind else None
    return Setup(
        host=host,
        port=port,
        behind=behind,
        patience=replace(Patience(), first_s=options.wait, recover_s=max(90.0, options.wait)),
        ident=_ident(target),
        sole=options.sole,
        checkpoint=_content(options.checkpoint),
    )


def _content(path: Path | None) -> bytes:
    try:
        return path.read_bytes() if path else b""
    except OSError as error:
        raise BadConfiguration(f"--checkpoint: {error}") from None


def _ident(target: Target) -> bytes:
    """Return the ID of the node that made the declared gradient: the peer is that node."""
    if target.gradient is None:
        return b""
    try:
        sent: Any = messages.parse("GossipGradientRequest", target.gradient.content)
        ident = bytes.fromhex(sent.node_id)
    except (messages.BadMessage, ValueError):
        return b""
    return ident if len(ident) == ID_BYTES else b""


def judged_as_client(target: Target) -> Target:
    """Return the target with nothing but the profile of a client."""
    return replace(
        target,
        profiles=frozenset({Profile.PEER}),
        grpc=target.grpc or documented_grpc_address(target.url),
        absent=dict.fromkeys(Profile, ELSEWHERE),
    )


def open_peer(setup: Setup) -> Peer:
    """Make the peer. Raises `BadConfiguration` if its ports are taken or nobody is behind it."""
    try:
        return Peer(setup)
    except OSError as error:
        raise BadConfiguration(f"--listen: {error}") from None
    except grpc.RpcError as error:
        where = setup.behind[1] if setup.behind else ""
        raise BadConfiguration(f"--behind: {where}: {error.code().name}") from None


def invitation(peer: Peer) -> str:
    """Return what the operator of the tested node has to know."""
    port = peer.posts[PEER].port
    return (
        f"The peer is at {peer.url}, its gRPC at {peer.setup.host}:{port + GRPC_PORT_OFFSET}.\n"
        "Tell your node that this is its tracker;"
        f" the peer waits {peer.patience.first_s:g} s for it."
    )
