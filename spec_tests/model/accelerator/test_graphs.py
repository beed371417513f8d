"""Steps that are recorded and replayed, with a recorder that calls the function again."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from meshnode.domain.generation import GenerationRequest
from meshnode.model.accelerator.attention import plan_step
from meshnode.model.accelerator.graphs import MAX_GRAPHS, Recordings, Replay
from meshnode.model.accelerator.layers import DeviceLayers
from meshnode.model.accelerator.pool import PagedCache
from meshnode.model.engine import Engine
from spec_tests.model.accelerator.devices import placed, plain_decoder


class Recorder:
    """Like CUDA graphs: the operands are where they were, and so is the result."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0
        self.offset = 0.0

    def __call__(self, function: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        self.recorded += 1
        result = torch.zeros_like(function())

        def replay() -> None:
            self.replayed += 1
            result.copy_(function() + self.offset)

        return replay, result


def tokens_of(engine: Engine, streams: int) -> list[list[int]]:
    request = GenerationRequest("", temperature=0.0)
    sessions = []
    for number in range(streams):
        prompt = [5 * number + place for place in range(1, 45 + number)]
        sessions.append(engine.session(prompt, 100, request))
        engine.prefill(sessions[-1], 0, len(prompt))
    for step in range(24):
        engine.decode(sessions if step % 7 else sessions[:1])
    return [session.generated for session in sessions]


def test_recorded_steps_compute_the_same_tokens() -> None:
    decoder = placed(plain_decoder(num_layers=2))
    engine, recorder = Engine(decoder, 4), Recorder()
    expected = tokens_of(engine, 4)
    assert isinstance(decoder.fused, DeviceLayers)
    assert decoder.fused.recordings is None
    decoder.fused.recordings = Recordings(recorder)
    assert tokens_of(engine, 4) == expected
    # Few shapes: by the number of sessions, and of the blocks that the longest of them has.
    assert recorder.recorded <= 8
    assert recorder.replayed > 12


def test_a_recording_with_other_bits_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    decoder = placed(plain_decoder(num_layers=2))
    engine, recorder = Engine(decoder, 3), Recorder()
    expected = tokens_of(engine, 3)
    assert isinstance(decoder.fused, DeviceLayers)
    decoder.fused.recordings = Recordings(recorder)
    recorder.offset = 1e-3
    with caplog.at_level(logging.WARNING):
        assert tokens_of(engine, 3) == expected
    assert recorder.replayed == 1
    assert "a recorded step computes other bits" in caplog.text


def test_a_step_that_cannot_be_recorded_is_computed(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(function: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        raise RuntimeError("operation not permitted when stream is capturing")

    decoder = placed(plain_decoder(num_layers=2))
    engine = Engine(decoder, 2)
    expected = tokens_of(engine, 2)
    assert isinstance(decoder.fused, DeviceLayers)
    decoder.fused.recordings = Recordings(refuse)
    with caplog.at_level(logging.WARNING):
        assert tokens_of(engine, 2) == expected
    assert caplog.text.count("computing without CUDA graphs") == 1


def test_recordings_are_bounded() -> None:
    decoder, recorder = placed(plain_decoder(num_layers=2)), Recorder()
    recordings = Recordings(recorder)
    cache = decoder.new_cache(2, 10)
    assert isinstance(cache, PagedCache)
    plan = plan_step([cache], [1], rows=8, base_pairs=8, window=None, device=torch.device("cpu"))
    for number in range(2 * MAX_GRAPHS):
        for _ in range(2):
            # What the operators depend on besides shapes differs each time.
            recordings.run(lambda states, plan: states + 1, torch.zeros(8, 4), plan, (number,))
    assert recorder.recorded == 2 * MAX_GRAPHS
    assert len(recordings._made) == MAX_GRAPHS
