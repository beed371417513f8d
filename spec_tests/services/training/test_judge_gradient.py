"""The gradient that the judge's acceptance runs sign in a peer's name is one that a node takes."""

import time
from pathlib import Path

import pytest

from conformance.judging.nodes import NotReady
from conformance.judging.states import Round, sign_gradient
from conformance.messagefile import read_message
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.message import check
from meshnode.services.keystore import Keystore
from meshnode.services.training.messages import contribution_in
from meshnode.wire import node_pb2 as pb

ROUND = Round(number=7, state="inner", model_hash="ab" * 32, steps=2)
VALUES = {"embedding": b"a frame", "norm": b"another"}


def test_it_is_the_makers_for_this_round_with_the_values_of_another(tmp_path: Path) -> None:
    maker, values, out = tmp_path / "maker", tmp_path / "values.bin", tmp_path / "gradient.bin"
    maker.mkdir()
    node_id = Keystore(maker).node_key.node_id
    other = pb.GossipGradientRequest(
        node_id="cd" * 20, round_id=3, model_hash="ef" * 32, timestamp=1.0, batch_size=4, loss=2.5,
        layer_gradients=VALUES, signature="00" * 65, ttl=8,
    )  # fmt: skip
    values.write_bytes(other.SerializeToString())
    sign_gradient(ROUND, maker=maker, values=values, out=out)
    message = pb.GossipGradientRequest.FromString(out.read_bytes())
    assert (message.node_id, message.round_id, message.model_hash) == (node_id, 7, "ab" * 32)
    assert (message.batch_size, message.loss) == (4, 2.5)
    assert dict(message.layer_gradients) == VALUES
    # The node's check accepts it, and the suite's reader reads it unchanged.
    assert len(check(contribution_in(message), frozenset(VALUES), time.time())) == 64
    assert read_message(str(out), "GossipGradientRequest").content == out.read_bytes()
    message.round_id += 1
    with pytest.raises(InvalidRequest, match="signature"):
        check(contribution_in(message), frozenset(VALUES), time.time())


def test_invalid_values_are_reported(tmp_path: Path) -> None:
    (tmp_path / "values.bin").write_bytes(b"\x0a\xff")
    with pytest.raises(NotReady, match="DecodeError"):
        sign_gradient(
            ROUND, maker=tmp_path, values=tmp_path / "values.bin", out=tmp_path / "out.bin"
        )
    assert not (tmp_path / "out.bin").exists()
