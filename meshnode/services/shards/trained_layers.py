"""Trained weights of this node's layers while training is switched off (decision 0138).

They are one safetensors file, written when they are freed and removed when they are read again.
Terms: a file *fits* if it is of the same model and layers.
"""

from __future__ import annotations

import logging
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open

from meshnode.datadir import make_private, write_private
from meshnode.model.decoder import Decoder
from meshnode.model.weights import checkpoint_tensors, set_checkpoint_tensors

log = logging.getLogger(__name__)

LAYERS_FILE = "layers.safetensors"


class TrainedLayers:
    """The file. Its calls block."""

    def __init__(self, folder: Path, model_hash: str, held: range) -> None:
        """``model_hash`` names the model whose layers ``held`` were trained."""
        self._path = folder / LAYERS_FILE
        self._metadata = {"model_hash": model_hash, "layers": f"{held.start}-{held.stop - 1}"}

    def save(self, decoder: Decoder) -> None:
        """Write the weights. Raises OSError."""
        make_private(self._path.parent)
        write_private(
            self._path, safetensors.torch.save(checkpoint_tensors(decoder), self._metadata)
        )

    def restore(self, decoder: Decoder) -> bool:
        """Set the weights to those of the file, if there is one that fits, and remove it."""
        try:
            with safe_open(self._path, framework="pt") as file:
                fits = file.metadata() == self._metadata
                tensors = {name: file.get_tensor(name) for name in file.keys()} if fits else {}  # noqa: SIM118 - it is no mapping
            if not fits:
                return False
            set_checkpoint_tensors(decoder, tensors)
            # Should the node end now, the layers would begin with the model's weights, as after any
            # end while training is on.
            self._path.unlink()
        except FileNotFoundError:
            return False
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            log.warning("training: %s cannot be used: %s", self._path.name, type(error).__name__)
            return False
        return True
