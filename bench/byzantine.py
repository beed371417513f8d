"""Training with liars among the nodes: ``python -m bench.byzantine`` (interface 1; decision 0095).

Five nodes train a small model together, in one process and without a network: each makes its inner
steps on a shard of its own, and a rule combines the five pseudo-gradients into one. One of the
nodes lies, in one of several ways. The result is the held-out loss after each round, for every
rule. Gradients that are not numbers count as silence, since the gossip refuses them; those of an
old round are taken, although it would refuse them too. ``--gradients sparse`` sends what nodes send
by default, with the feedback of what was left unsent.
"""

from __future__ import annotations

import argparse
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
from meshnode.model.diloco import Contribution, Rule, SparseTensor
from meshnode.model.feedback import contribute
from meshnode.model.loading import DEFAULT_MODEL, save_model
from meshnode.model.trained_model import TrainedModel
from meshnode.services.training.messages import packed, unpack_gradients, unpacked
from meshnode.wire.gradients import Format

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


def wrong_way(own: Gradients, honest: Sequence[Gradients], memory: Memory) -> Gradients:
    """Send honest-looking steps in a wrong direction: the same sizes, half of the signs turned."""
    random = torch.Generator().manual_seed(7)
    return {
        name: tensor * (torch.randint(0, 2, tensor.shape, generator=random) * 2 - 1)
        for name, tensor in own.items()
    }


LIES: Mapping[str, Lie] = {
    "sign flip": sign_flip,
    "scale": scale,
    "not a number": not_a_number,
    "copy": copy,
    "old round": old_round,
    "wrong way": wrong_way,
}


def losses(
    directory: Path,
    rule: Rule,
    lie: Lie | None,
    rounds: int = ROUNDS,
    kind: Format = Format.FLOAT32,
) -> list[float]:
    """Return the held-out loss before the first round and after each round."""
    data, model = small_data(), TrainedModel(directory)
    names = [f"{node:02}" for node in range(NODES)]
    batches = [data.batches(shards_of(n, names, data.shards), BATCH, seed=1) for n in names]
    feedback: list[Mapping[str, Tensor]] = [{}] * NODES
    memory, measured = Memory(), [model.validate(data.validation_batches(BATCH)).loss]
    for _ in range(rounds):
        honest: list[Gradients] = []
        for node in range(NODES):
            model.rewind()
            for _ in range(STEPS):
                model.inner_step(next(batches[node]).batch, RATE)
            honest.append(model.pseudo_gradient())
        sent = honest if lie is None else [*honest[:-1], lie(honest[-1], honest, memory)]
        received = []
        for node, gradients in enumerate(sent):
            try:
                values, feedback[node] = _as_received(gradients, feedback[node], model, kind)
            except InvalidRequest:
                continue
            received.append(values)
        model.adopt(model.applied(received, rule))
        loss = model.validate(data.validation_batches(BATCH)).loss
        measured.append(min(loss, MAX_SHOWN_LOSS) if math.isfinite(loss) else MAX_SHOWN_LOSS)
    return measured


def _as_received(
    gradients: Gradients, feedback: Mapping[str, Tensor], model: TrainedModel, kind: Format
) -> tuple[Contribution, Mapping[str, Tensor]]:
    """What the gossip gives the others, and the feedback. Raises InvalidRequest."""
    shapes = model.shapes

    def encode(name: str, tensor: Tensor) -> tuple[bytes, Tensor | SparseTensor]:
        data = packed(tensor, kind, model.parameters)
        return data, unpacked(data, shapes[name], name)

    frames, left = contribute(gradients, feedback, encode)
    return unpack_gradients(frames, shapes), left


def main() -> None:
    """Run every rule against every lie; print a table and write a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gradients", choices=["float32", "int8", "sparse"], default="float32")
    kind = Format[parser.parse_args().gradients.upper()]
    with tempfile.TemporaryDirectory() as folder:
        directory = small_model(Path(folder))
        honest = losses(directory, Rule.MEAN, None, kind=kind)
        table = {
            name: {str(rule): losses(directory, rule, lie, kind=kind) for rule in Rule}
            for name, lie in LIES.items()
        }
    print(f"{'':14} " + " ".join(f"{rule!s:>13}" for rule in Rule))
    print(f"{'nobody lies':14} {'':>13} {'':>13} {'':>13} {honest[-1]:13.3f}")
    for name, row in table.items():
        print(f"{name:14} " + " ".join(f"{row[str(rule)][-1]:13.3f}" for rule in Rule))
    OUT.mkdir(exist_ok=True)
    result = {"honest": honest, "lies": table}
    (OUT / f"byzantine-{kind.name.lower()}.json").write_text(json.dumps(result, indent=1) + "\n")
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
    (OUT / f"byzantine-{kind.name.lower()}.svg").write_text(render(charts))


if __name__ == "__main__":
    main()
