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
from meshnode.domain.training.opinions import Opinion, Opinions, condemned
from meshnode.model.config import DecoderConfig
from meshnode.model.data import TokenData, shards_of
from meshnode.model.decoder import Decoder
from meshnode.model.diloco import Contribution, Rule, SparseTensor, tolerated
from meshnode.model.feedback import contribute
from meshnode.model.loading import DEFAULT_MODEL, save_model
from meshnode.model.overlap import alike
from meshnode.model.trained_model import Samples, TrainedModel
from meshnode.services.gradient_values import PackedGradients, check_gradients, packed, unpacked
from meshnode.services.training.jury import copies_among
from meshnode.wire.gradients import Format, packing_of

OUT = Path(__file__).parent / "plots"
NODES = 5
ROUNDS, STEPS, BATCH = 6, 5, 8
RATE = 2e-3
MAX_SHOWN_LOSS = 20.0
"""Higher losses are cut off, since nothing is learned there any more."""

JUDGED = "judged"
"""The trimmed mean of what is left after the nodes have judged each other: what nodes do."""
COLUMNS = (*map(str, Rule), JUDGED)

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
    *,
    judged: bool = False,
) -> list[float]:
    """Return the held-out loss before the first round and after each round.

    ``judged``: the nodes measure each other's contributions and leave some out, as real ones do.
    """
    data, model = small_data(), TrainedModel(directory)
    names = [f"{node:02}" for node in range(NODES)]
    batches = [data.batches(shards_of(n, names, data.shards), BATCH, seed=1) for n in names]
    feedback: list[Mapping[str, Tensor]] = [{}] * NODES
    memory, measured = Memory(), [model.validate(data.validation_batches(BATCH)).loss]
    court = Court(model, data, names) if judged else None
    for number in range(rounds):
        honest: list[Gradients] = []
        for node in range(NODES):
            model.rewind()
            for _ in range(STEPS):
                model.inner_step(next(batches[node]).batch, RATE)
            honest.append(model.pseudo_gradient())
        sent = honest if lie is None else [*honest[:-1], lie(honest[-1], honest, memory)]
        received = {}
        for node, gradients in enumerate(sent):
            try:
                received[names[node]], feedback[node] = _as_received(
                    gradients, feedback[node], model, kind
                )
            except InvalidRequest:
                continue
        if lie is copy:
            # The very message, and not only what it was made from.
            received[names[-1]] = received[names[0]]
        counted = received if court is None else court.counted(received, number)
        model.adopt(model.applied(list(counted.values()), rule))
        loss = model.validate(data.validation_batches(BATCH)).loss
        measured.append(min(loss, MAX_SHOWN_LOSS) if math.isfinite(loss) else MAX_SHOWN_LOSS)
    return measured


class Court:
    """The judgement of all nodes on each other (decisions 0209, 0212). The liar has no opinions."""

    def __init__(self, model: TrainedModel, data: TokenData, names: Sequence[str]) -> None:
        self._model = model
        self._data = data
        self._opinions = {name: Opinions() for name in names[:-1]}
        self.left_out: list[frozenset[str]] = []
        """The nodes whose contributions did not count, by rounds."""

    def counted(self, received: Mapping[str, Contribution], number: int) -> dict[str, Contribution]:
        """Return what counts of a round, and measure all for the next one."""
        statements = {name: self._held(name) for name in received}
        spare = tolerated(len(received))
        refused = condemned(statements, spare)
        heard = [name for name in received if name not in refused]
        copies = copies_among(heard, alike([received[name] for name in heard]))
        left_out = refused | (copies if len(refused | copies) <= spare else frozenset())
        self.left_out.append(left_out)
        for seed, (judge, opinions) in enumerate(self._opinions.items()):
            others = [name for name in received if name != judge]
            samples = [self._sample(name, [*received], number * NODES + seed) for name in others]
            given = [received[name] for name in others]
            effects = self._model.effects(self._model.anchor, given, samples, 1 / len(received))
            opinions.measured(dict(zip(others, effects, strict=True)))
        return {name: values for name, values in received.items() if name not in left_out}

    def _held(self, name: str) -> dict[str, Opinion]:
        return self._opinions[name].current() if name in self._opinions else {}

    def _sample(self, name: str, names: Sequence[str], seed: int) -> Samples:
        shards = self._data.shards
        own = shards_of(name, names, shards)
        rest = [shard for shard in range(shards) if shard not in own]
        assigned, others = (self._data.sample(each, BATCH, seed) for each in (own, rest))
        if assigned is None or others is None:
            raise ValueError("too few sequences")
        return assigned, others


def _as_received(
    gradients: Gradients, feedback: Mapping[str, Tensor], model: TrainedModel, kind: Format
) -> tuple[Contribution, Mapping[str, Tensor]]:
    """What the gossip gives the others, and the feedback. Raises InvalidRequest."""
    shapes = model.shapes
    packing = packing_of(kind.name.lower(), model.parameters)

    def encode(name: str, tensor: Tensor) -> tuple[bytes, Tensor | SparseTensor]:
        data = packed(tensor, packing)
        return data, unpacked(data, shapes[name], name)

    frames, left = contribute(gradients, feedback, encode)
    received = PackedGradients(frames, shapes)
    check_gradients(received)
    return received, left


def row_of(directory: Path, lie: Lie | None, kind: Format) -> dict[str, list[float]]:
    """Return the losses with each rule, and with judging as nodes do it by default."""
    row = {str(rule): losses(directory, rule, lie, kind=kind) for rule in Rule}
    row[JUDGED] = losses(directory, Rule.TRIMMED_MEAN, lie, kind=kind, judged=True)
    return row


def main() -> None:
    """Run every rule against every lie; print a table and write a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gradients", choices=["float32", "int8", "sparse"], default="float32")
    kind = Format[parser.parse_args().gradients.upper()]
    with tempfile.TemporaryDirectory() as folder:
        directory = small_model(Path(folder))
        table = {name: row_of(directory, lie, kind) for name, lie in LIES.items()}
        table = {"nobody lies": row_of(directory, None, kind)} | table
    print(f"{'':14} " + " ".join(f"{column:>13}" for column in COLUMNS))
    for name, row in table.items():
        print(f"{name:14} " + " ".join(f"{row[column][-1]:13.3f}" for column in COLUMNS))
    OUT.mkdir(exist_ok=True)
    honest = table.pop("nobody lies")
    result = {"honest": honest, "lies": table}
    (OUT / f"byzantine-{kind.name.lower()}.json").write_text(json.dumps(result, indent=1) + "\n")
    charts = [
        Chart(
            f"One of five: {name}",
            "round",
            [
                Line("nobody lies", list(enumerate(honest[Rule.MEAN])), dashed=True),
                *(Line(rule, list(enumerate(found))) for rule, found in row.items()),
            ],
        )
        for name, row in table.items()
    ]
    (OUT / f"byzantine-{kind.name.lower()}.svg").write_text(render(charts))


if __name__ == "__main__":
    main()
