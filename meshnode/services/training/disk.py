"""The training state that must survive a crash (interface 2.1; decision 0095).

It is one folder: ``round.json`` has the state and names the anchor's file; the anchor and this
node's contribution are files beside it.

Invariants: a file is replaced as a whole, and ``round.json`` last, so it only names files that
exist; a damaged folder is refused with a clear error, and nothing in it is overwritten.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from meshnode.datadir import write_private
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Persisted
from meshnode.model.checkpoint import dump_anchor, read_anchor
from meshnode.model.trained_model import Anchor

ROUND_FILE = "round.json"
CONTRIBUTION_FILE = "contribution.bin"
FORMAT = "meshnode-training-v1"
BEGIN_ANEW = "move the training folder of the data folder away to begin anew"


class TrainingDisk:
    """The folder. All calls block."""

    def __init__(self, folder: Path, initial: WeightsVersion) -> None:
        """Create the folder if it is missing. ``initial`` is the model's untrained weights."""
        self._folder = folder
        self._initial = initial
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(
        self, shapes: dict[str, tuple[int, ...]]
    ) -> tuple[Persisted, Anchor | None, list[float]]:
        """The state, the anchor unless it is the initial one, and the losses of the last rounds.

        Raises StartupError if the folder is damaged or belongs to another model. Its message is
        also shown to clients without a token, so it names the files without their folder.
        """
        path, initial = self._folder / ROUND_FILE, self._initial
        try:
            document = json.loads(path.read_bytes())
            if document["format"] != FORMAT:
                raise ValueError("unknown format")
            kept = WeightsVersion(int(document["version"]), str(document["model_hash"]))
            contributed = document["contributed"]
            persisted = Persisted(kept, int(document["round_id"]), contributed)
            losses = [float(loss) for loss in document["losses"]]
            origin = str(document["origin"])
        except FileNotFoundError:
            return Persisted(initial, 0), None, []
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise StartupError(f"{path.name} is damaged; {BEGIN_ANEW}") from None
        if origin != initial.model_hash:
            raise StartupError(f"{path.name} is of another model's training; {BEGIN_ANEW}")
        if kept == initial:
            return persisted, None, losses
        anchor_path = self._anchor(kept)
        try:
            anchor = read_anchor(anchor_path.read_bytes(), shapes, kept.model_hash)
        except (OSError, InvalidRequest):
            reason = f"{anchor_path.name} is damaged or missing; {BEGIN_ANEW}"
            raise StartupError(reason) from None
        return persisted, anchor, losses

    def save_anchor(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Save an anchor, before :meth:`save` names it."""
        write_private(self._anchor(weights), dump_anchor(anchor, weights.version))

    def save(self, persisted: Persisted, losses: list[float]) -> None:
        """Save the state, whose anchor must be saved already. Removes all other anchors."""
        state = asdict(persisted)
        kept = state.pop("kept")
        origin = self._initial.model_hash
        document = {"format": FORMAT, "origin": origin, "losses": losses, **kept, **state}
        write_private(self._folder / ROUND_FILE, json.dumps(document).encode())
        for path in self._folder.glob("anchor-*.safetensors"):
            if path != self._anchor(persisted.kept):
                path.unlink(missing_ok=True)

    def save_contribution(self, message: bytes) -> None:
        """Save this node's contribution, before it is sent."""
        write_private(self._folder / CONTRIBUTION_FILE, message)

    def contribution(self) -> bytes | None:
        """This node's latest saved contribution."""
        try:
            return (self._folder / CONTRIBUTION_FILE).read_bytes()
        except FileNotFoundError:
            return None

    def _anchor(self, weights: WeightsVersion) -> Path:
        return self._folder / f"anchor-{weights.version}-{weights.model_hash[:16]}.safetensors"
