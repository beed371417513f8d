"""The feed-forward part of a layer: gated, dense or as a set of experts (interface 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshnode.model.config import DecoderConfig
from meshnode.model.families import Activation, Experts


class FeedForward(nn.Module):
    """A gated feed-forward part. Gate and up projection share a matrix."""

    def __init__(self, config: DecoderConfig, inner: int, *, bias: bool) -> None:
        super().__init__()
        self.activation = config.activation
        self.gate_up = nn.Linear(config.hidden_size, 2 * inner, bias=bias)
        self.down = nn.Linear(inner, config.hidden_size, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to the same."""
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        result: Tensor = self.down(activate(gate, self.activation) * up)
        return result


class SparseFeedForward(nn.Module):
    """Experts, of which a router chooses a few for each position."""

    def __init__(self, config: DecoderConfig, experts: Experts) -> None:
        super().__init__()
        self.used, self.shares_sum_to_one = experts.used, experts.shares_sum_to_one
        self.router = nn.Linear(config.hidden_size, experts.count, bias=False)
        self.experts = nn.ModuleList(
            FeedForward(config, experts.width, bias=False) for _ in range(experts.count)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to the same.

        The experts are added in the order of their numbers, so that a position's sum does not
        depend on the other positions.
        """
        rows = hidden.reshape(-1, hidden.shape[-1])
        shares, chosen = self.router(rows).softmax(-1).topk(self.used, dim=-1)
        if self.shares_sum_to_one:
            shares = shares / shares.sum(-1, keepdim=True)
        total = torch.zeros_like(rows)
        for number in chosen.unique().tolist():
            places, ranks = torch.where(chosen == number)
            outcome = self.experts[number](rows[places]) * shares[places, ranks, None]
            total = total.index_add(0, places, outcome)
        return total.view_as(hidden)


def activate(gate: Tensor, activation: Activation) -> Tensor:
    """Apply the function on the gate, in a way that can be derived."""
    if activation is Activation.GELU_TANH:
        return functional.gelu(gate, approximate="tanh")
    return functional.silu(gate)


def feed_forward_of(config: DecoderConfig, layer: int) -> FeedForward | SparseFeedForward:
    """The feed-forward part of a layer."""
    if config.experts and config.kind(layer).sparse:
        return SparseFeedForward(config, config.experts)
    return FeedForward(config, config.intermediate_size, bias=config.mlp_bias)
