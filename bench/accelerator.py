"""The engine on an accelerator: random Llamas of one and eight billion parameters.

``python -m bench.accelerator [--device cuda:0] [--size 1b 8b] [--dtype bfloat16 int4]``

For each size, format and number of streams it prints tokens a second, and two ratios: to what the
memory's bandwidth would allow if a step read nothing but the weights once, and to ``transformers``
on the same device in bfloat16, greedy, with its default attention and random weights of its own.
The bandwidth is measured in the same run, by copying a gigabyte on the device. ``--size tiny`` with
``--device simulated`` tries the program itself on a machine without a device; its figures say
nothing.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from meshnode.domain.generation import GenerationRequest
from meshnode.domain.units import GIBIBYTE
from meshnode.model.accelerator.device import Accelerator, find_accelerator, simulated_device
from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.engine import Engine, Session
from meshnode.model.kernels.formats import DTYPES, Format
from meshnode.model.linear import Packing

PROMPT = 64
"""Tokens of each stream's prompt."""
TOKENS = 64
"""Tokens that each stream generates for a sample."""
ROUNDS = 5
SPREAD = 0.02
"""Standard deviation of the weights."""

SIZES = {
    "tiny": DecoderConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=256,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        context_length=512,
    ),
    "1b": DecoderConfig(
        vocab_size=128256,
        num_kv_heads=8,
        context_length=2048,
        hidden_size=2048,
        intermediate_size=8192,
        num_layers=16,
        num_heads=32,
        head_dim=64,
        tied_head=True,
    ),
    "8b": DecoderConfig(
        vocab_size=128256,
        num_kv_heads=8,
        context_length=2048,
        hidden_size=4096,
        intermediate_size=14336,
        num_layers=32,
        num_heads=32,
        head_dim=128,
    ),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. Rates are tokens a second, all streams together."""

    size: str
    dtype: str
    streams: int
    rate: float
    bound: float
    """What the bandwidth allows."""
    peer: float | None
    """What ``transformers`` does."""

    def line(self) -> str:
        """As a row of a table in Markdown."""
        beside = ("-", "-")
        if self.peer is not None:
            beside = (f"{self.peer:.1f}", f"{self.rate / self.peer:.2f}")
        return (
            f"| {self.size} | {self.dtype} | {self.streams} | {self.rate:.1f} | "
            f"{self.rate / self.bound:.2f} | {beside[0]} | {beside[1]} |"
        )


class RandomRows:
    """A matrix of random weights, whose blocks repeat so that making them takes no time."""

    def __init__(self, outputs: int, inputs: int) -> None:
        self.outputs, self.inputs = outputs, inputs
        generator = torch.Generator().manual_seed(inputs)
        self._block = SPREAD * torch.randn(257, inputs, generator=generator)

    def read(self, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop``, float32."""
        return self._block[torch.arange(first, stop) % len(self._block)]

    def stored(self, first: int, stop: int, form: Format) -> None:
        """None: they are in no file."""


def random_engine(config: DecoderConfig, dtype: str, where: Accelerator, streams: int) -> Engine:
    """An engine with random weights on the device."""
    with torch.device("meta"):
        decoder = Decoder(config)
    decoder.requires_grad_(requires_grad=False)
    parameters = dict(decoder.named_parameters())
    norms = {name: torch.ones(each.shape) for name, each in parameters.items() if each.dim() == 1}
    decoder.load_state_dict(norms, strict=False, assign=True)
    stored = {name: RandomRows(*each.shape) for name, each in parameters.items() if each.dim() == 2}
    packing = Packing(decoder, DTYPES[dtype], where=where)
    for index in range(config.num_layers):
        packing.layer(index, stored)
    packing.finish(stored)
    engine = Engine(decoder, streams)
    engine.provide(engine.kv_bytes(PROMPT + TOKENS + 2) * (streams + 1))
    print(
        f"# batches {engine.batches}, seamless {engine.seamless}, replays {engine.replays}",
        flush=True,
    )
    return engine


def weight_bytes(config: DecoderConfig, dtype: str) -> int:
    """Bytes that a step reads of the weights: all layers and the head."""
    form = DTYPES[dtype]
    assert form is not None  # noqa: S101 - auto is not measured
    weights = config.num_layers * config.layer_parameters + config.vocab_size * config.hidden_size
    return int(weights * form.bits / 8)


def rate_of(engine: Engine, streams: int) -> float:
    """Tokens a second of so many streams that decode together: the median of some samples."""
    request = GenerationRequest("", temperature=0.0)

    def sample() -> float:
        sessions: list[Session] = []
        for number in range(streams):
            prompt = [(7 * number + place) % 900 + 1 for place in range(PROMPT)]
            sessions.append(engine.session(prompt, PROMPT + TOKENS + 1, request))
            engine.prefill(sessions[-1], 0, PROMPT)
        begun = time.perf_counter()
        for _ in range(TOKENS):
            outcomes = engine.decode(sessions)
            failed = next((each for each in outcomes if isinstance(each, Exception)), None)
            if failed is not None:
                raise failed
        return streams * TOKENS / (time.perf_counter() - begun)

    return _median(sample)


def peer_rates(config: DecoderConfig, where: Accelerator, streams: list[int]) -> dict[int, float]:
    """Tokens a second of ``transformers``, without the time of the prompts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaConfig, LlamaForCausalLM  # heavy, and only needed here

        shape = LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.context_length,
            tie_word_embeddings=config.tied_head,
            eos_token_id=None,
            dtype="bfloat16",
        )
        with torch.device(where.device):
            peer: Any = LlamaForCausalLM(shape)
        peer = peer.to(torch.bfloat16)
    peer.eval()

    def generate(count: int, tokens: int) -> float:
        prompt = torch.arange(count * PROMPT).view(count, PROMPT) % 900 + 1
        begun = time.perf_counter()
        with torch.inference_mode():
            peer.generate(
                prompt.to(where.device),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
            ).cpu()
        return time.perf_counter() - begun

    def sample(count: int) -> float:
        first = generate(count, 1)
        return count * (TOKENS - 1) / (generate(count, TOKENS) - first)

    return {count: _median(partial(sample, count)) for count in streams}


def bandwidth(where: Accelerator) -> float:
    """Bytes a second that the device's memory reads and writes in a large copy."""
    nbytes = GIBIBYTE if where.device.type == "cuda" else GIBIBYTE // 8
    source = torch.ones(nbytes // 4, device=where.device)
    target = torch.empty_like(source)

    def sample() -> float:
        begun = time.perf_counter()
        target.copy_(source)
        # Waits for the copy.
        float(target[-1])
        return 2 * nbytes / (time.perf_counter() - begun)

    return _median(sample)


def _median(sample: Callable[[], float]) -> float:
    sample()
    return statistics.median(sample() for _ in range(ROUNDS))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, cuda:N or simulated")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["1b", "8b"])
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "int4"])
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--no-peer", action="store_true", help="without transformers")
    options = parser.parse_args()
    if options.device == "simulated":
        where: Accelerator | None = simulated_device(GIBIBYTE)
    else:
        where = find_accelerator(options.device)
    if where is None:
        raise SystemExit("torch finds no CUDA device here")
    speed = bandwidth(where)
    print(f"{where.kind}, torch {torch.__version__}, large copy {speed / 1e9:.0f} GB/s\n")
    print("| model | format | streams | tokens/s | of bandwidth | transformers | ratio |")
    print("|---|---|---|---|---|---|---|")
    for size in options.size:
        config = SIZES[size]
        peers = {} if options.no_peer else peer_rates(config, where, options.streams)
        _free(where)
        for dtype in options.dtype:
            engine = random_engine(config, dtype, where, max(options.streams))
            for streams in options.streams:
                bound = streams * speed / weight_bytes(config, dtype)
                rate = rate_of(engine, streams)
                figure = Figure(size, dtype, streams, rate, bound, peers.get(streams))
                print(figure.line(), flush=True)
            del engine
            _free(where)


def _free(where: Accelerator) -> None:
    gc.collect()
    if where.device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
