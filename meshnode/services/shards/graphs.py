"""Forward and backward through some layers, for training across nodes (decisions/0035).

Runs in the torch thread. Terms: a *graph* is what a forward pass keeps for its backward pass; a
*target* is the token expected after a position, or -100 where none is.

Invariant: gradients of a split model are those of the whole one; a tied head that is held apart
from the embedding has a gradient of its own, to be added to the embedding's by who joins them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.engine import NonFiniteStates
from meshnode.model.training import cross_entropy
from meshnode.services.shards.senders import Sender

Gradients = Mapping[str, Tensor]
"""By name of the parameter; layers count as in the whole model."""


@dataclass(slots=True, eq=False)
class Graph:
    """A forward pass of ``layers`` that waits for its backward pass."""

    layers: range
    inputs: Tensor
    """float32 ``[batch, seq, hidden]`` that wants a gradient, or token ids, which have none."""
    output: Tensor
    """``[batch, seq, hidden]``; of the last layer, the loss."""


@dataclass(slots=True, eq=False)
class Kept:
    """A graph, and what the message that it is of has said."""

    graph: Graph
    size: int
    sender: Sender | None
    made_at: float
    step: bool
    steps_before: int
    """Updates of the weights that the graph was made from."""


def graph_bytes(config: DecoderConfig, layers: range, batch: int, seq: int) -> int:
    """About what a graph keeps: the activations of every layer, attention and logits included."""
    width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    layer = 8 * config.hidden_size + 3 * width + 5 * config.intermediate_size
    values = batch * seq * len(layers) * layer + batch * len(layers) * config.num_heads * seq * seq
    if layers.stop == config.num_layers:
        values += 3 * batch * seq * config.vocab_size
    return 4 * values


def forward_graph(decoder: Decoder, layers: range, inputs: Tensor, targets: Tensor | None) -> Graph:
    """Run ``layers`` on ids ``[batch, seq]`` or states ``[batch, seq, hidden]``.

    With ``targets`` ``[batch, seq]`` the output is the mean loss. Raises NonFiniteStates.
    """
    leaf = inputs.clone()
    if leaf.is_floating_point():
        leaf.requires_grad_()
    output = decoder.run(layers, leaf)
    if targets is not None:
        output = cross_entropy(output, targets)
    if not torch.isfinite(output).all():
        raise NonFiniteStates
    return Graph(layers, leaf, output)


def backward_graph(
    decoder: Decoder, graph: Graph, gradient: Tensor | None
) -> tuple[Tensor | None, Gradients]:
    """Gradients of the inputs, if they have one, and of the parameters. Frees the graph.

    ``gradient`` is that of the output; None for a loss. Raises NonFiniteStates.
    """
    names, parameters = [], []
    for name, parameter in decoder.named_parameters():
        absolute = _name(name, decoder.held.start, graph.layers)
        if absolute is not None and parameter.requires_grad:
            names.append(absolute)
            parameters.append(parameter)
    wants_inputs = graph.inputs.requires_grad
    wanted = [graph.inputs, *parameters] if wants_inputs else parameters
    found = torch.autograd.grad(
        [graph.output],
        wanted,
        grad_outputs=None if gradient is None else [gradient],
        materialize_grads=True,
    )
    filled = list(found)
    if not all(math.isfinite(float(grad.abs().sum())) for grad in filled):
        raise NonFiniteStates
    of_inputs = filled.pop(0) if wants_inputs else None
    return of_inputs, dict(zip(names, filled, strict=True))


def by_local_name(decoder: Decoder, gradients: Gradients) -> dict[str, Tensor]:
    """Gradients by the names that the decoder itself uses; zero where there is none."""
    found = {}
    for name, parameter in decoder.named_parameters():
        absolute = _name(name, decoder.held.start, decoder.held)
        gradient = None if absolute is None else gradients.get(absolute)
        found[name] = torch.zeros_like(parameter) if gradient is None else gradient
    return found


def square_of(gradients: Gradients) -> float:
    """The sum of all squares: of parts it adds up, as their norm would not."""
    return math.fsum(float(g.double().square().sum()) for g in gradients.values())


def _name(name: str, first: int, layers: range) -> str | None:
    """A parameter's name in the whole model; None for one of a layer that was not run."""
    kind, _, rest = name.partition(".")
    if kind != "layers":
        return name
    place, _, rest = rest.partition(".")
    layer = first + int(place)
    return f"layers.{layer}.{rest}" if layer in layers else None
