"""What is kept of logits gives the choices that all of them give (decision 0230)."""

from __future__ import annotations

import pytest
import torch

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.generation import GenerationRequest
from meshnode.model.sampler import Sampler
from meshnode.services.pipeline.logits import LogitRows, kept_for
from meshnode.services.shards.wanted import ALL, BEST, WantedLogits

VOCAB = 300
REQUESTS = [
    GenerationRequest("", temperature=0.0),
    GenerationRequest("", temperature=0.8, top_k=50, seed=1),
    GenerationRequest("", temperature=1.3, top_k=5, top_p=0.7, seed=2),
    GenerationRequest("", temperature=1.0, top_k=1, seed=3),
    GenerationRequest("", temperature=1.0, top_k=0, top_p=0.9, seed=4),
    GenerationRequest("", temperature=0.7, top_k=40, frequency_penalty=0.5, seed=5),
    GenerationRequest("", temperature=0.0, logprobs=3),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"k{each.top_k}t{each.temperature}")
def test_a_choice_from_what_is_kept_is_the_choice_from_all(request_: GenerationRequest) -> None:
    random = torch.Generator().manual_seed(0)
    # Rounded, so that many logits are equal.
    logits = torch.randn(1, 40, VOCAB, generator=random).mul(4).round().div(4)
    whole, part = Sampler(request_), Sampler(request_)
    kept = kept_for(part, VOCAB)
    values, ids = WantedLogits(40, kept).select(logits)
    rows = LogitRows(values[0], None if ids is None else ids[0])
    for row in range(40):
        assert rows.choose(row, part) == whole.choose(logits[0, row])


def test_only_what_a_sampler_looks_at_is_sent() -> None:
    kept = [kept_for(Sampler(each), VOCAB) for each in REQUESTS]
    assert kept == [BEST, "50", "5", "1", ALL, ALL, ALL]
    assert kept_for(Sampler(GenerationRequest("", top_k=200)), VOCAB) == ALL
    values, ids = WantedLogits(2, "5").select(torch.randn(1, 3, VOCAB))
    assert ids is not None
    assert values.shape == ids.shape == (1, 2, 5)
    assert WantedLogits(0).select(torch.randn(1, 1, VOCAB))[0].shape == (1, 0, VOCAB)


def test_the_metadata_is_read_back_or_refused() -> None:
    for wanted in (WantedLogits(3, "50"), WantedLogits(0, ALL), WantedLogits(9, BEST)):
        assert WantedLogits.read(str(wanted), "logits") == wanted
    for text in ("", "1", "x:all", "1:none", "-1:all", "100000:all", "2:", "1:-5"):
        with pytest.raises(InvalidRequest):
            WantedLogits.read(text, "logits")
