"""Forged and broken contributions are refused with a reason (interface 2.3 and 7.3)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lz4.frame
import pytest
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.domain.training.message import sign
from meshnode.rpc.channel import open_channel
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.training import contributions
from meshnode.services.training.messages import contribution_in
from meshnode.wire import node_pb2 as pb
from spec_tests.services.training.trainers import agreed, training_nodes, wait_for


async def test_forged_and_broken_contributions_are_refused_with_a_reason(
    model: Path, tmp_path: Path
) -> None:
    async with training_nodes(model, tmp_path, 2) as (nodes, nursery):
        honest = nodes[0]
        await nursery.start(honest.run)
        await wait_for(lambda: agreed([honest], 1))
        assert honest.training.rounds
        # Take a contribution of the second node, and break copies of it in one way each.
        await nursery.start(nodes[1].run)
        await wait_for(lambda: agreed(nodes, 2))
        seen: list[pb.GossipGradientRequest] = []
        taking = honest.training.rounds.take

        async def watch(message: pb.GossipGradientRequest) -> str | None:
            seen.append(message)
            return await taking(message)

        honest.training.rounds.take = watch  # type: ignore[method-assign]
        await wait_for(lambda: bool(seen))
        original = seen[0]
        async with open_channel("127.0.0.1", honest.port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            for name, change in BROKEN.items():
                message = pb.GossipGradientRequest()
                message.CopyFrom(original)
                message.round_id = honest.training.rounds.replica.round_id + 1
                change(message)
                if name not in FORGED:
                    statement = contribution_in(message).statement()
                    message.signature = sign(nodes[1].key.seed, statement)
                answer = await stub.GossipGradient(message)
                assert not answer.accepted, name
                assert REASONS.get(name, "") in answer.reason, name
                assert answer.reason, name
                assert answer.current_round > 0
        await wait_for(lambda: agreed(nodes, 4))


def _nan(message: pb.GossipGradientRequest) -> None:
    name, data = next(iter(message.layer_gradients.items()))
    # The scale of the first block follows the header.
    first = 12 + 4 * data[5]
    message.layer_gradients[name] = data[:first] + b"\0\0\xc0\x7f" + data[first + 4 :]


def _bomb(message: pb.GossipGradientRequest) -> None:
    name = next(iter(message.layer_gradients))
    message.layer_gradients[name] = lz4.frame.compress(bytes(50_000_000))


FORGED = {"signature", "another node's", "changed loss"}
"""Cases that keep the original signature; the others are signed again after the change."""
BROKEN = {
    "signature": lambda m: setattr(m, "signature", "00" * 65),
    "another node's": lambda m: setattr(m, "node_id", "ab" * 20),
    "changed loss": lambda m: setattr(m, "loss", m.loss + 1),
    "not a number": lambda m: setattr(m, "loss", float("nan")),
    "old": lambda m: setattr(m, "timestamp", 1.0),
    "old round": lambda m: setattr(m, "round_id", 1),
    "no round": lambda m: setattr(m, "round_id", -5),
    "ttl": lambda m: setattr(m, "ttl", 1000),
    "missing layer": lambda m: m.layer_gradients.pop(next(iter(m.layer_gradients))),
    "strange layer": lambda m: m.layer_gradients.update({"x": b"y"}),
    "nan": _nan,
    "bomb": _bomb,
}


REASONS = {
    "signature": "signature",
    "another node's": "not a peer",
    "changed loss": "signature",
    "nan": "scale",
    "bomb": "more than",
    "ttl": "ttl",
    "old": "timestamp",
    "old round": "over",
    "strange layer": "exactly",
}


async def test_others_contributions_are_forwarded_when_peers_can_have_checked_them(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_s, forward_s = 5.0, 2.0

    async def checked(*_: object, **__: object) -> str:
        await trio.sleep(check_s)
        return "a digest"

    monkeypatch.setattr(trio.to_thread, "run_sync", checked)
    replica: Any = SimpleNamespace(
        node_id="own",
        round_id=1,
        contributed=lambda *_: None,
        lacking=lambda _: [("maker", "a digest")],
    )
    store = contributions.ContributionStore(
        replica, {}, is_peer=lambda _: True, forward_s=forward_s
    )
    assert await store.take(pb.GossipGradientRequest(node_id="maker", round_id=1)) is None
    # A peer that got it at the same moment takes about as long, and cannot report it before.
    await trio.sleep(check_s + forward_s - 0.1)
    assert store.wanted("peer") == {}
    await trio.sleep(0.2)
    assert list(store.wanted("peer")) == ["a digest"]
