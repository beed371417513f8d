"""What a crash of a node in training must not lose (document, 2.1; decisions/0095).

One folder: ``round.json`` names the state and the anchor's file; the anchor and the node's own
contribution are files beside it.

Invariants: a file is replaced whole, and ``round.json`` last, so it always names files that are
there; a damaged folder is refused in one line, and nothing in it is overwritten.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from meshnode.datadir import write_private
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.training.agreement import Weights
from meshnode.domain.training.replica import Persisted
from meshnode.model.checkpoint import dump_anchor, read_anchor
from meshnode.model.replica import Anchor

ROUND_FILE = "round.json"
CONTRIBUTION_FILE = "contribution.bin"
FORMAT = "meshnode-training-v1"


class TrainingDisk:
    """The folder. Its calls block."""

    def __init__(self, folder: Path, initial: Weights) -> None:
        """Make the folder where it is missing. ``initial`` are the model's untrained weights."""
        self._folder = folder
        self._initial = initial
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(
        self, shapes: dict[str, tuple[int, ...]]
    ) -> tuple[Persisted, Anchor | None, list[float]]:
        """The state, the anchor if it is not the initial one, and the losses of the last rounds.

        Raises StartupError when the folder is damaged, or belongs to another model.
        """
        path, initial = self._folder / ROUND_FILE, self._initial
        try:
            document = json.loads(path.read_bytes())
            if document["format"] != FORMAT:
                raise ValueError("unknown format")
            kept = Weights(int(document["version"]), str(document["model_hash"]))
            contributed = document["contributed"]
            persisted = Persisted(kept, int(document["round_id"]), contributed)
            losses = [float(loss) for loss in document["losses"]]
            origin = str(document["origin"])
        except FileNotFoundError:
            return Persisted(initial, 0), None, []
        except (OSError, ValueError, KeyError, TypeError):
            raise StartupError(f"{path} is damaged; move the folder away to begin anew") from None
        if origin != initial.model_hash:
            raise StartupError(f"{self._folder} belongs to the training of another model")
        if kept == initial:
            return persisted, None, losses
        try:
            anchor = read_anchor(self._anchor(kept).read_bytes(), shapes, kept.model_hash)
        except (OSError, InvalidRequest):
            raise StartupError(f"{self._anchor(kept)} is damaged or missing") from None
        return persisted, anchor, losses

    def save_anchor(self, anchor: Anchor, weights: Weights) -> None:
        """File an anchor, before :meth:`save` names it."""
        write_private(self._anchor(weights), dump_anchor(anchor, weights.version))

    def save(self, persisted: Persisted, losses: list[float]) -> None:
        """File the state; its anchor must be there. Anchors that are not named are removed."""
        state = asdict(persisted)
        kept = state.pop("kept")
        origin = self._initial.model_hash
        document = {"format": FORMAT, "origin": origin, "losses": losses, **kept, **state}
        write_private(self._folder / ROUND_FILE, json.dumps(document).encode())
        for path in self._folder.glob("anchor-*.safetensors"):
            if path != self._anchor(persisted.kept):
                path.unlink(missing_ok=True)

    def save_contribution(self, message: bytes) -> None:
        """File the own contribution, before it is sent to anybody."""
        write_private(self._folder / CONTRIBUTION_FILE, message)

    def contribution(self) -> bytes | None:
        """The own contribution that was filed last."""
        try:
            return (self._folder / CONTRIBUTION_FILE).read_bytes()
        except FileNotFoundError:
            return None

    def _anchor(self, weights: Weights) -> Path:
        return self._folder / f"anchor-{weights.version}-{weights.model_hash[:16]}.safetensors"
