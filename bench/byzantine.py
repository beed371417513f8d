"""Training with liars among the nodes: ``python -m bench.byzantine`` (interface 1; decision 0095).

Five nodes train a small model together, in one process and without a network: each makes its inner
steps on a shard of its own, and a rule combines the five pseudo-gradients into one. One of the
nodes lies, in one of several ways. The result is the held-out loss after each round, for every
rule. Gradients that are not numbers count as silence, since the gossip refuses them; those of an
old round are taken, although it would refuse them too.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.plot import Chart, Line, render
from meshnode.domain.errors import InvalidRequest
from meshnode.model.config import DecoderConfig
from meshnode.model.data import TokenData, shards_of
from meshnode.model.decoder import Decoder
from meshnode.model.diloco import Rule
from meshnode.model.loading import DEFAULT_MODEL, save_model
from meshnode.model.trained_model import TrainedModel
from meshnode.services.training.messages import pack_gradients, unpack_gradients

OUT = Path(__file__).parent / "plots"
NODES = 5
ROUNDS, STEPS, BATCH = 6, 5, 8
RATE = 2e-3
MAX_SHOWN_LOSS = 20.0
"""Higher losses are cut off, since nothing is learned there any more."""

Gradients = Mapping[str, Tensor]
Lie = Callable[[Gradients, Sequence[Gradients], "Memory"], Gradients]


@dataclass(slots=True)
class Memory:
    """What a liar remembers from earlier rounds."""

    first: Gradients | None = None


def sign_flip(own: Gradients, honest: Sequence[Gradients], memory: Memory) -> Gradients:
    """Send the opposite direction, ten times as large."""
    return {name: -10 * tensor for name, tensor in own.items()}


def scale(own: Gradients, honest: Sequence[Gradients], memory: Memory) -> Gradients:
    """Send values a hundred times too large."""
    return {name: 100 * tensor for name, tensor in own.items()}


def not_a_number(own: Gradients, honest: Sequence[Gradients], memory: Memory) -> Gradients:
    """Send NaN only."""
    return {name: torch.full_like(tensor, math.nan) for name, tensor in own.items()}


def copy(own: Gradients, honest: Sequence[Gradients], memory: Memory) -> Gradients:
    """Send another node's gradients as its own."""
    return honest[0]


def old_round(own: Gradients, honest: Sequence[Gradients], memory: Memory) -> Gradients:
    """Send five times the gradients of the first round, as if the gossip had accepted them."""
    memory.first = memory.first or own
    return {name: 5 * tensor for name, tensor in memory.first.items()}


LIES: Mapping[str, Lie] = {
    "sign flip": sign_flip,
    "scale": scale,
    "not a number": not_a_number,
    "copy": copy,
    "old round": old_round,
}


CONFIG = DecoderConfig(
    vocab_size=3000,
    hidden_size=48,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    context_length=64,
)


def small_model(directory: Path) -> Path:
    """Write a model with fresh weights and return its directory."""
    decoder = Decoder(CONFIG)
    decoder.init_weights(torch.Generator().manual_seed(0))
    save_model(directory, decoder, DEFAULT_MODEL / "tokenizer.json")
    return directory


def small_data() -> TokenData:
    """Make rows that count up from random starts, which a small model learns in a minute."""
    random = torch.Generator().manual_seed(0)
    starts = torch.randint(0, 200, (160, 1), generator=random)
    rows = starts + torch.arange(33)
    return TokenData(rows[16:], rows[:16])


def losses(directory: Path, rule: Rule, lie: Lie | None, rounds: int = ROUNDS) -> list[float]:
    """Return the held-out loss before the first round and after each round."""
    data, model = small_data(), TrainedModel(directory)
    names = [f"{node:02}" for node in range(NODES)]
    batches = [data.batches(shards_of(n, names, data.shards), BATCH, seed=1) for n in names]
    memory, measured = Memory(), [model.validate(data.validation_batches(BATCH)).loss]
    for _ in range(rounds):
        honest: list[Gradients] = []
        for node in range(NODES):
            model.rewind()
            for _ in range(STEPS):
                model.inner_step(next(batches[node]).batch, RATE)
            honest.append(model.pseudo_gradient())
        sent = honest if lie is None else [*honest[:-1], lie(honest[-1], honest, memory)]
        model.adopt(model.applied(_as_received(sent, model), rule))
        loss = model.validate(data.validation_batches(BATCH)).loss
        measured.append(min(loss, MAX_SHOWN_LOSS) if math.isfinite(loss) else MAX_SHOWN_LOSS)
    return measured


def _as_received(sent: Sequence[Gradients], model: TrainedModel) -> list[Gradients]:
    """Return the gradients that the checks of the gossip accept."""
    accepted: list[Gradients] = []
    for gradients in sent:
        try:
            accepted.append(unpack_gradients(pack_gradients(gradients), model.shapes))
        except InvalidRequest:
            continue
    return accepted


def main() -> None:
    """Run every rule against every lie; print a table and write a plot."""
    with tempfile.TemporaryDirectory() as folder:
        directory = small_model(Path(folder))
        honest = losses(directory, Rule.MEAN, None)
        table = {
            name: {str(rule): losses(directory, rule, lie) for rule in Rule}
            for name, lie in LIES.items()
        }
    print(f"{'':14} " + " ".join(f"{rule!s:>13}" for rule in Rule))
    print(f"{'nobody lies':14} {'':>13} {'':>13} {'':>13} {honest[-1]:13.3f}")
    for name, row in table.items():
        print(f"{name:14} " + " ".join(f"{row[str(rule)][-1]:13.3f}" for rule in Rule))
    OUT.mkdir(exist_ok=True)
    result = {"honest": honest, "lies": table}
    (OUT / "byzantine.json").write_text(json.dumps(result, indent=1) + "\n")
    charts = [
        Chart(
            f"One of five: {name}",
            "round",
            [
                Line("nobody lies", list(enumerate(honest)), dashed=True),
                *(Line(rule, list(enumerate(found))) for rule, found in row.items()),
            ],
        )
        for name, row in table.items()
    ]
    (OUT / "byzantine.svg").write_text(render(charts))


if __name__ == "__main__":
    main()
