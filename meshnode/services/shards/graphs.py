"""Forward and backward through some layers, for training across nodes (decision 0035).

Runs in the torch thread. Terms: a *graph* is what a forward pass keeps for its backward pass; a
*target* is the token expected after a position, or -100 if the position does not count.

Invariant: gradients of a split model are those of the whole one. A tied head that is held apart
from the embedding has a gradient of its own; whoever joins the parts adds it to the embedding's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from meshnode.domain.errors import MeshnodeError
from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.engine import NonFiniteStates
from meshnode.model.training import cross_entropy
from meshnode.services.shards.senders import UpstreamHolder

Gradients = Mapping[str, Tensor]
"""By name of the parameter, with the layer's index in the whole model."""


class GraphUnknown(MeshnodeError):
    """No graph is kept for a message: it never was, it has been used, or it has expired."""

    def __init__(self) -> None:
        super().__init__("graph unknown or expired")


@dataclass(slots=True, eq=False)
class Graph:
    """A forward pass of ``layers`` that waits for its backward pass."""

    layers: range
    inputs: Tensor
    """float32 ``[batch, seq, hidden]``, which gets a gradient, or token ids, which get none."""
    output: Tensor
    """``[batch, seq, hidden]``, or the loss after the last layer."""


@dataclass(slots=True, eq=False)
class GradientSum:
    """The gradients of a session so far, and when one was last added."""

    gradients: dict[str, Tensor]
    touched: float
    member: str
    """Whose messages they are from. Gradients of others are not added."""


@dataclass(slots=True, eq=False)
class KeptGraph:
    """A graph, and facts from the message that it was made for."""

    graph: Graph
    size: int
    sender: UpstreamHolder | None
    made_at: float
    step: bool
    member: str
    """The node id of the member that signed the message, if anybody did."""
    steps_before: int
    """How often the weights had been updated when the graph was made."""


def graph_bytes(config: DecoderConfig, layers: range, batch: int, seq: int) -> int:
    """An estimate of a graph's memory: all activations, with those of attention, and logits."""
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
    """Gradients of the inputs, unless they are token ids, and of the parameters. Frees the graph.

    ``gradient`` is that of the output, or None for a loss. Raises NonFiniteStates.
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
    """Gradients by the decoder's own names for its parameters; zeros where there are none."""
    found = {}
    for name, parameter in decoder.named_parameters():
        absolute = _name(name, decoder.held.start, decoder.held)
        gradient = None if absolute is None else gradients.get(absolute)
        found[name] = torch.zeros_like(parameter) if gradient is None else gradient
    return found


def square_of(gradients: Gradients) -> float:
    """The sum of all squares. Unlike norms, those of several parts can be added up."""
    return math.fsum(float(g.double().square().sum()) for g in gradients.values())


def _name(name: str, first: int, layers: range) -> str | None:
    """A parameter's name in the whole model; None if its layer was not run."""
    kind, _, rest = name.partition(".")
    if kind != "layers":
        return name
    place, _, rest = rest.partition(".")
    layer = first + int(place)
    return f"layers.{layer}.{rest}" if layer in layers else None
