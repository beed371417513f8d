"""A device for tests on a machine that has none: the processor, which computes through its code."""

from __future__ import annotations

import copy
from typing import Any

import torch

from meshnode.model.accelerator.device import simulated_device
from meshnode.model.decoder import Decoder
from meshnode.model.kernels.formats import Format
from meshnode.model.linear import pack
from spec_tests.model.small_models import small_config

DEVICE = simulated_device(1 << 30)


def plain_decoder(**changes: Any) -> Decoder:
    """A random decoder that is not packed."""
    random = torch.Generator().manual_seed(1)
    decoder = Decoder(small_config(**changes)).requires_grad_(requires_grad=False)
    decoder.init_weights(random)
    for parameter in decoder.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    return decoder


def placed(decoder: Decoder, form: Format | None = Format.FLOAT32) -> Decoder:
    """A copy of it on the device."""
    found = copy.deepcopy(decoder)
    pack(found, form, where=DEVICE)
    return found
