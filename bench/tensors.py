"""Hidden states on the wire: LZ4 level 1 and bfloat16, with real states of the default model.

It measures the bytes compared with plain float32, the milliseconds for packing and unpacking, and
the change of the logits. Decision 0032 has the results. ``python -m bench.tensors`` runs it alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import torch

from bench.table import BenchRow, in_turn, seconds
from meshnode.model.loading import DEFAULT_MODEL, load_model
from meshnode.wire.tensors import Floats, pack_floats, unpack_floats

TEXT = (
    "Once upon a time there was a node that served a model to its neighbours. Each of them held a "
    "few of its layers, and passed on what it had computed to the next. One day a storm came, and "
    "the node in the middle did not answer any more. "
)
LAYER = 4
"""The first layer after the cut of the model."""
ROUNDS = 200
LINKS = {"1 Gbit/s": 125e3, "100 Mbit/s": 12.5e3}
"""Bytes per millisecond."""
FORMATS = {
    "float32": (False, False),
    "float32, LZ4": (False, True),
    "bfloat16": (True, False),
    "bfloat16, LZ4": (True, True),
}


def run() -> list[BenchRow]:
    """Run the measurements: ``ours`` is the size in bytes, ``peer`` that of plain float32."""
    torch.set_num_threads(1)
    model = load_model(DEFAULT_MODEL)
    decoder, last = model.decoder, model.card.num_layers
    tokens = torch.tensor([model.tokenizer.encode(TEXT * 2)])
    with torch.inference_mode():
        prompt = decoder.run(range(LAYER), tokens).numpy()
    shapes = {f"prompt of {prompt.shape[1]}": prompt, "one token": prompt[:, -1:]}
    rows = []
    for what, values in shapes.items():
        names = list(FORMATS)
        times = in_turn(ROUNDS, *(_round_trip(values, *FORMATS[name]) for name in names))
        for name, samples in zip(names, times, strict=True):
            half, compress = FORMATS[name]
            data = pack_floats(values, half=half, compress=compress)
            ratio, spent_ms = values.nbytes / len(data), statistics.median(samples) * 1e3
            pays = [
                link
                for link, speed in LINKS.items()
                if (values.nbytes - len(data)) / speed > spent_ms
            ]
            note = f"{spent_ms:.3f} ms; pays at {', '.join(pays) or 'neither speed'}"
            rows.append(
                BenchRow(f"{name}, {what}", len(data), values.nbytes, ratio, None, "bytes", note)
            )
    with torch.inference_mode():
        exact = decoder.run(range(LAYER, last), torch.from_numpy(prompt))
        packed = unpack_floats(pack_floats(prompt, half=True), prompt.shape, "states")
        rounded = decoder.run(range(LAYER, last), torch.from_numpy(packed))
    moved = float((exact - rounded).abs().max())
    other = float((exact.argmax(-1) != rounded.argmax(-1)).float().mean())
    note = f"greedy token differs at {other:.1%} of positions"
    rows.append(BenchRow("bfloat16, largest change of a logit", moved, None, None, None, "", note))
    return rows


def _round_trip(values: Floats, half: bool, compress: bool) -> Callable[[], float]:
    def trip() -> float:
        return seconds(
            lambda: unpack_floats(
                pack_floats(np.ascontiguousarray(values), half=half, compress=compress),
                values.shape,
                "states",
            )
        )

    return trip


if __name__ == "__main__":
    for row in run():
        print(f"{row.name:40} {row.ours:9.4g} {row.ratio or 0:6.2f}  {row.note}")
