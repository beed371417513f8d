"""A request gives the same tokens, bit for bit, alone or batched with others."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from meshnode.domain.generation import GenerationRequest
from meshnode.model.decoder import Decoder
from meshnode.model.engine import Engine, Session
from meshnode.model.invariance import rows_are_independent
from meshnode.model.kv import CacheFull, KVCache
from meshnode.model.linear import PackedLinear, pack
from meshnode.model.loading import DEFAULT_MODEL, load_model
from meshnode.model.sampler import NonFiniteLogits
from spec_tests.model.small_models import make_model, small_config

SHAPES: dict[str, dict[str, Any]] = {
    "small": {},
    "no round number": {
        "hidden_size": 60,
        "intermediate_size": 76,
        "num_heads": 5,
        "num_kv_heads": 5,
        "head_dim": 12,
    },
    "wide": {"hidden_size": 256, "intermediate_size": 2048, "num_layers": 2, "head_dim": 64},
    "deep sums": {"hidden_size": 1024, "intermediate_size": 2816, "num_layers": 1, "num_heads": 8},
}


def random_decoder(**changes: Any) -> Decoder:
    decoder = Decoder(small_config(**changes)).requires_grad_(requires_grad=False)
    decoder.init_weights(torch.Generator().manual_seed(1))
    pack(decoder)
    return decoder


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_probe_promises_holds_for_the_whole_model(shape: str) -> None:
    decoder = random_decoder(**SHAPES[shape])
    if not rows_are_independent(decoder, 9):
        pytest.skip("this machine computes these shapes row by row")
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, 300, (9, 40), generator=generator)
    lengths = [3, 30, 1, 17, 8, 25, 12, 2, 21]

    def logits(rows: list[int]) -> list[torch.Tensor]:
        caches = []
        for row in rows:
            cache = KVCache.allocate(decoder.config, len(decoder.held), 40)
            decoder(tokens[row : row + 1, : lengths[row]], [cache])
            caches.append(cache)
        at = torch.tensor([[int(tokens[row, lengths[row]])] for row in rows])
        return list(decoder(at, caches))

    with torch.inference_mode():
        alone = [logits([row])[0] for row in range(9)]
        for _ in range(12):
            rows = random.Random(len(shape)).sample(range(9), k=random.Random(5).randint(2, 9))
            for row, together in zip(rows, logits(rows), strict=True):
                assert torch.equal(together, alone[row])


def test_packed_rows_round_alike_at_any_count_and_place() -> None:
    with torch.inference_mode():
        for rows_in, rows_out in [(64, 192), (768, 768), (2048, 768), (100, 37)]:
            linear = torch.nn.Linear(rows_in, rows_out)
            packed = PackedLinear(linear.weight, linear.bias)
            inputs = torch.randn(40, rows_in)
            alone = torch.cat([packed(row[None]) for row in inputs])
            assert (alone - linear(inputs)).abs().max() < 1e-4
            for count in (2, 3, 4, 5, 8, 13, 16, 33, 40):
                assert torch.equal(packed(inputs[-count:]), alone[-count:])
            assert torch.equal(packed.dense(), linear.weight)


def generate(engine: Engine, session: Session, count: int) -> list[int]:
    """Generate ``count`` tokens for a session that is alone in the engine."""
    tokens = [prefill(engine, session)]
    while len(tokens) < count:
        (outcome,) = engine.decode([session])
        assert isinstance(outcome, int)
        tokens.append(outcome)
    return tokens


def prefill(engine: Engine, session: Session, chunk: int = 16) -> int:
    outcome = None
    for start in range(0, len(session.prompt), chunk):
        outcome = engine.prefill(session, start, min(start + chunk, len(session.prompt)))
    assert isinstance(outcome, int)
    return outcome


def requests(count: int) -> list[tuple[list[int], GenerationRequest]]:
    rng = random.Random(11)
    return [
        (
            [rng.randrange(1, 300) for _ in range(rng.randint(1, 40))],
            GenerationRequest(
                "",
                temperature=rng.choice([0.0, 0.7, 1.0, 2.0]),
                top_k=rng.choice([0, 5, 50]),
                top_p=rng.choice([1.0, 0.9]),
                seed=rng.randrange(2**32),
            ),
        )
        for _ in range(count)
    ]


@pytest.fixture(params=["small", "no round number", "row by row", "default model"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "default model":
        return Engine(load_model(DEFAULT_MODEL).decoder, 8)
    shape = {} if request.param == "row by row" else SHAPES[request.param]
    engine = Engine(random_decoder(**shape), 8)
    if request.param == "row by row":
        engine.batches = False
    return engine


@pytest.mark.parametrize("order", [1, 2, 3])
def test_tokens_do_not_depend_on_who_else_is_served(engine: Engine, order: int) -> None:
    """Sessions join and leave a batch at random; each gets the same tokens as when alone."""
    wanted = requests(10)
    length = 12
    alone = [generate(engine, engine.session(p, 60, r), length) for p, r in wanted]
    rng = random.Random(order)
    waiting = rng.sample(range(10), 10)
    running: dict[int, Session] = {}
    tokens: dict[int, list[int]] = {}
    while waiting or running:
        while waiting and len(running) < 8 and rng.random() < 0.6:
            key = waiting.pop()
            prompt, request = wanted[key]
            running[key] = engine.session(prompt, 60, request)
            tokens[key] = [prefill(engine, running[key])]
        keys = rng.sample(sorted(running), len(running))
        if keys:
            outcomes = engine.decode([running[key] for key in keys])
            for key, outcome in zip(keys, outcomes, strict=True):
                assert isinstance(outcome, int)
                tokens[key].append(outcome)
                if len(tokens[key]) == length:
                    del running[key]
    assert [tokens[key] for key in range(10)] == alone


def poison(engine: Engine, session: Session) -> None:
    prefill(engine, session)
    session.cache.storage.fill_(float("nan"))


def test_a_session_that_fails_leaves_the_others_unharmed() -> None:
    engine = Engine(random_decoder(), 4)
    (prompt, request), *_ = requests(1)
    alone = generate(engine, engine.session(prompt, 60, request), 4)
    good, bad = engine.session(prompt, 60, request), engine.session(prompt, 60, request)
    tokens = [prefill(engine, good)]
    poison(engine, bad)
    for _ in range(3):
        mine, failed = engine.decode([good, bad])
        assert isinstance(mine, int)
        tokens.append(mine)
        assert isinstance(failed, NonFiniteLogits)
    assert tokens == alone


def test_a_step_that_torch_refuses_is_computed_row_by_row() -> None:
    """One cache is full, so the batch as a whole cannot be computed."""
    engine = Engine(random_decoder(), 4)
    (prompt, request), *_ = requests(1)
    alone = generate(engine, engine.session(prompt, 60, request), 3)
    good = engine.session(prompt, 60, request)
    full = engine.session(prompt, len(prompt), request)
    tokens = [prefill(engine, good)]
    prefill(engine, full)
    for _ in range(2):
        mine, failed = engine.decode([good, full])
        assert isinstance(mine, int)
        tokens.append(mine)
        assert isinstance(failed, CacheFull)
        assert full.cache.length == len(prompt)
    assert tokens == alone


def test_a_chunked_prompt_fills_the_cache_like_an_unbroken_one(tmp_path: Path) -> None:
    decoder = load_model(make_model(tmp_path / "model")).decoder
    tokens = torch.randint(1, 300, (1, 50), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        whole, parts = (KVCache.allocate(decoder.config, 4, 50) for _ in range(2))
        expected = decoder(tokens, [whole], last_only=True)
        for start in range(0, 50, 7):
            logits = decoder(tokens[:, start : start + 7], [parts], last_only=True)
    assert (logits - expected).abs().max() < 1e-4
    assert (whole.storage - parts.storage).abs().max() < 1e-4
