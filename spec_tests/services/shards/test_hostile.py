"""Interface 7.3: any message to the pipeline's operations ends with a documented code.

The calls go to a real server from grpcio, as in the document's example client. One node, in a
thread, serves all tests of this module, so what a message leaves behind can affect later ones.
"""

import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import lz4.frame
import numpy as np
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.services.shards.holder import HolderLimits
from meshnode.services.shards.messages import ForwardCall
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import make_model
from spec_tests.rpc.scripted_service import Peer, grpcio_peer
from spec_tests.services.shards.holders import LONG_S, HolderNode, holder_node

pytestmark = pytest.mark.wire

LAYERS = [1, 2, 3]
EXAMPLES = settings().max_examples
HIDDEN = 64
DOCUMENTED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
FAILURES = ("session unknown or behind", "the computation failed", "graph unknown")


class Running:
    """Runs a node in a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self._ready: Future[tuple[HolderNode, trio.Event, trio.lowlevel.TrioToken]] = Future()
        self._thread = threading.Thread(target=trio.run, args=(self._run, directory))

    def __enter__(self) -> HolderNode:
        self._thread.start()
        node, self._stop, self._token = self._ready.result(timeout=LONG_S)
        return node

    def __exit__(self, *exc: object) -> None:
        trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join(timeout=LONG_S)

    async def _run(self, directory: Path) -> None:
        limits = HolderLimits(sessions=4, open_s=5.0)
        async with holder_node(directory, LAYERS, holder_limits=limits) as node:
            stop = trio.Event()
            self._ready.set_result((node, stop, trio.lowlevel.current_trio_token()))
            await stop.wait()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HolderNode]:
    directory = make_model(tmp_path_factory.mktemp("hostile") / "model")
    with Running(directory) as running:
        yield running


@pytest.fixture(scope="module")
def peer(node: HolderNode) -> Iterator[Peer]:
    with grpcio_peer(node.port) as connected:
        yield connected


def well_formed(**changes: Any) -> dict[str, Any]:
    values = np.ones((1, 2, HIDDEN), dtype="<f4")
    return {
        "session_id": "",
        "hidden_states": values.tobytes(),
        "hidden_shape": [1, 2, HIDDEN],
        "target_shard": 1,
        **changes,
    }


def forward(
    peer: Peer, metadata: tuple[tuple[str, str], ...] = (), **fields: Any
) -> pb.PipelineForwardResponse:
    request = pb.PipelineForwardRequest(**fields)
    call = peer.unary("PipelineForward", request, pb.PipelineForwardResponse)
    answer: pb.PipelineForwardResponse = call(request, timeout=LONG_S, metadata=metadata)
    return answer


def refused(peer: Peer, **fields: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        forward(peer, **fields)
    code: grpc.StatusCode = caught.value.code()
    return code


def ends_as_documented(call: Callable[[], Any], *others: grpc.StatusCode) -> None:
    """Check that the call ends with success, a known failure message, or a documented code."""
    try:
        answer = call()
    except grpc.RpcError as error:
        code, details = error.code(), error.details()
    else:
        code, details = None, "" if answer.success else answer.error_message
        assert details.startswith(FAILURES) or answer.success
    assert code is None or code in {*DOCUMENTED, *others}, (code, details)
    assert len(details) < 400


def still_well(node: HolderNode, peer: Peer) -> None:
    """Check that the node still serves, and keeps no more than four sessions."""
    answer = forward(peer, **well_formed())
    assert answer.success
    assert answer.is_final
    assert list(answer.logits_shape) == [1, 1, 320]
    assert len(node.holder) <= 4


EXTREMES = st.sampled_from(
    [-(2**63), -(2**31), -1, 0, 1, 2, 3, 64, 65, 257, 2**31, 2**62, 2**63 - 1]
)
SHAPES = st.one_of(
    st.sampled_from(
        [[1, 2, HIDDEN], [1, 1, HIDDEN], [1, 5, HIDDEN], [2, 2, HIDDEN], [1, 300, HIDDEN]]
    ),
    st.lists(EXTREMES, max_size=4),
)


@st.composite
def tensors(draw: st.DrawFn, shape: list[int]) -> bytes:
    """Draw tensor bytes that fit the shape, nearly fit it, or do not fit it."""
    count = 1
    for size in shape:
        count *= size
    count = min(max(count, 0), 40_000)
    fill = draw(st.sampled_from([0.0, 1.0, -3e38, 1e-40, float("nan"), float("inf")]))
    data = np.full(count, fill, dtype="<f4").tobytes()
    match draw(
        st.sampled_from(["right", "half", "short", "long", "frame", "cut", "bomb", "noise"])
    ):
        case "half":
            return data[: len(data) // 2]
        case "short":
            return data[:-1]
        case "long":
            return data + b"\0\0\0\0"
        case "frame":
            found: bytes = lz4.frame.compress(data)
            return found
        case "cut":
            cut: bytes = lz4.frame.compress(data)[: draw(st.integers(4, 30))]
            return cut
        case "bomb":
            bomb: bytes = lz4.frame.compress(bytes(8 << 20))
            return bomb
        case "noise":
            return draw(st.binary(max_size=64))
    return data


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(SHAPES)
    count = shape[1] if len(shape) > 1 and 0 <= shape[1] <= 300 else 1
    start = draw(st.sampled_from([0, 1, 2, 5, 255, 2**62, -1]))
    positions = struct.pack(f"<{count}q", *(min(start + i, 2**63 - 1) for i in range(count)))
    past = 2 * 2 * 16 * 4
    return {
        "session_id": draw(st.sampled_from(["", "a", "b", "c", "d", "e", "é" * 70, "x" * 129])),
        "request_id": draw(st.sampled_from(["", "1", "2", "y" * 256, "y" * 257])),
        "hidden_shape": shape,
        "hidden_states": draw(tensors(shape)),
        "position_ids": draw(st.sampled_from([b"", b"", positions, positions[:-1], b"\xff" * 16])),
        "attention_mask": draw(st.sampled_from([b"", b"", b"\x01" * 2, b"\0" * 2, b"\x01" * 7])),
        "past_key_values": draw(
            st.sampled_from(
                [[], [], [b""], [b"\0" * past] * 3, [b"\0" * past * 3000] * 3, [b"x"] * 3]
            )
        ),
        "use_cache": draw(st.booleans()),
        "target_shard": draw(st.sampled_from([-(2**31), -1, 0, 1, 1, 1, 2, 3, 4, 2**31 - 1])),
        "source_shard": draw(st.sampled_from([-(2**31), -1, 0, 2**31 - 1])),
        "training_labels": draw(st.sampled_from([b"", b"", b"", b"\0" * 16, b"\xff" * 15])),
        "sender_url": draw(st.sampled_from(["", "", "http://10.0.0.1:80", "\0", "h" * 9999])),
    }


METADATA = st.lists(
    st.tuples(
        st.sampled_from(["session-positions", "decode-from", "training", "session-origin"]),
        st.sampled_from(
            ["0", "1", "2", "99999999999", "-1", "x", "1.5", "10.0.0.1,10.0.0.2", "9" * 900]
        ),
    ),
    max_size=2,
)


@settings(max_examples=2 * EXAMPLES)
@given(fields=messages(), metadata=METADATA)
def test_any_forward_message_ends_as_documented(
    node: HolderNode, peer: Peer, fields: dict[str, Any], metadata: list[tuple[str, str]]
) -> None:
    ends_as_documented(lambda: forward(peer, tuple(metadata), **fields))
    still_well(node, peer)


@given(
    fields=messages(),
    hops=st.lists(
        st.tuples(
            st.sampled_from(["", "1" * 40, f"{1:040x}"]),
            st.sampled_from(["", "10.0.0.1:80", "[::1]:1", "a:b", "\0:1", "x" * 9999]),
            st.sampled_from([-1, 0, 1, 2, 3, 2**31 - 1]),
            st.sampled_from([-1, 0, 1, 2, 3, 2**31 - 1]),
        ),
        max_size=4,
    ),
    right=st.booleans(),
)
def test_any_swarm_message_ends_as_documented(
    node: HolderNode,
    peer: Peer,
    fields: dict[str, Any],
    hops: list[tuple[str, str, int, int]],
    right: bool,
) -> None:
    names = ("session_id", "request_id", "hidden_shape", "hidden_states", "position_ids")
    request = pb.SwarmForwardRequest(
        **{name: fields[name] for name in (*names, "attention_mask", "use_cache")},
        route=[node.hop]
        if right
        else [
            pb.SwarmHop(node_id=n, address=a, first_layer=i, last_layer=j) for n, a, i, j in hops
        ],
    )
    call = peer.unary("SwarmForward", request, pb.SwarmForwardResponse)
    ends_as_documented(lambda: call(request, timeout=LONG_S), grpc.StatusCode.PERMISSION_DENIED)
    still_well(node, peer)


@given(
    shape=SHAPES,
    data=st.data(),
    target=st.sampled_from([-1, 1, 2, 2**31 - 1]),
    kept=st.booleans(),
)
def test_any_backward_message_ends_as_documented(
    node: HolderNode, peer: Peer, shape: list[int], data: st.DataObject, target: int, kept: bool
) -> None:
    labels = struct.pack("<2q", 1, 2)
    if kept:
        # The last holder uses its graph at once, so the ids are free again.
        ids = {"session_id": "train", "request_id": "1"}
        forward(peer, (("training", "1"),), **well_formed(**ids, training_labels=labels))
    request = pb.PipelineBackwardRequest(
        session_id="train",
        request_id="1",
        grad_output=data.draw(tensors(shape)),
        grad_shape=shape,
        target_shard=target,
    )
    call = peer.unary("PipelineBackward", request, pb.PipelineBackwardResponse)
    ends_as_documented(lambda: call(request, timeout=LONG_S))
    still_well(node, peer)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"target_shard": 0}, grpc.StatusCode.NOT_FOUND),
        ({"target_shard": 4}, grpc.StatusCode.NOT_FOUND),
        ({"target_shard": -1}, grpc.StatusCode.NOT_FOUND),
        ({"hidden_shape": [1, 2, 63]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": [1, 2]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": []}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": [1, 3, HIDDEN]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": [1, 257, HIDDEN]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": [33, 1, HIDDEN]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": [2**62, 2**62, HIDDEN]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": [2**62] * 2_000}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_shape": [2**62] * 60_000}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_states": b""}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_states": b"\xff" * 512}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"hidden_states": lz4.frame.compress(bytes(1 << 26))}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"position_ids": struct.pack("<2q", 0, 2)}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"position_ids": struct.pack("<2q", -1, 0)}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"position_ids": struct.pack("<2q", 255, 256)}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"position_ids": struct.pack("<2q", 3, 4)}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"position_ids": b"\0"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"attention_mask": b"\x01\0"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"attention_mask": b"\x01"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"request_id": "x" * 257}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"session_id": "x" * 129, "use_cache": True}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"past_key_values": [b"\0" * 256] * 2}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=lambda value: str(value)[:80],
)
def test_each_fault_has_its_code(
    node: HolderNode, peer: Peer, changes: dict[str, Any], code: grpc.StatusCode
) -> None:
    assert refused(peer, **well_formed(**changes)) is code
    still_well(node, peer)


def test_a_shape_of_many_numbers_is_not_multiplied_out() -> None:
    """``nbytes`` stays small: the product of a long shape could take minutes to compute."""
    call = ForwardCall(
        caller_ip="10.0.0.1",
        session_id="",
        request_id="",
        layers=range(1, 4),
        data=b"",
        shape=(2**62,) * 1000,
    )
    assert call.nbytes.bit_length() < 256


def test_a_crowd_of_sessions_is_refused_and_leaves_nothing(node: HolderNode, peer: Peer) -> None:
    codes = []
    for i in range(12):
        try:
            forward(peer, **well_formed(session_id=f"crowd-{i}", use_cache=True))
        except grpc.RpcError as error:
            codes.append(error.code())
    assert codes
    assert set(codes) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    for i in range(12):
        forward(peer, session_id=f"crowd-{i}", target_shard=1)
    for name in ("a", "b", "c", "d", "e", "é" * 70):
        forward(peer, session_id=name, target_shard=1)
    with suppress(grpc.RpcError):
        request = pb.SwarmForwardRequest(session_id="a", route=[node.hop])
        peer.unary("SwarmForward", request, pb.SwarmForwardResponse)(request, timeout=LONG_S)
    answer = forward(peer, **well_formed(session_id="after", use_cache=True))
    assert answer.success
    forward(peer, session_id="after", target_shard=1)
    still_well(node, peer)


def test_the_documents_example_call(node: HolderNode) -> None:
    """One unary call on a plain channel succeeds, with the options of interface 8."""
    options = [
        ("grpc.max_send_message_length", 100 * 1024 * 1024),
        ("grpc.max_receive_message_length", 100 * 1024 * 1024),
        ("grpc.keepalive_time_ms", 30000),
        ("grpc.keepalive_timeout_ms", 10000),
        ("grpc.keepalive_permit_without_calls", True),
    ]
    hidden = np.random.default_rng(0).standard_normal((1, 10, HIDDEN)).astype(np.float32)
    with grpcio_peer(node.port, *options) as client:
        call = client.unary(
            "PipelineForward", pb.PipelineForwardRequest(), pb.PipelineForwardResponse
        )
        response = call(
            pb.PipelineForwardRequest(
                session_id="session-123",
                request_id="req-456",
                hidden_states=hidden.tobytes(),
                hidden_shape=list(hidden.shape),
                use_cache=True,
                source_shard=0,
                target_shard=1,
            ),
            timeout=LONG_S,
        )
        assert response.success
        assert response.request_id == "req-456"
        assert response.is_final
        logits = np.frombuffer(response.logits, dtype=np.float32)
        assert np.isfinite(logits.reshape(response.logits_shape)).all()
        closing = pb.PipelineForwardRequest(session_id="session-123", target_shard=1)
        assert call(closing, timeout=LONG_S).success
