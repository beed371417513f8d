"""The training state that must survive a crash (interface 2.1; decision 0095).

It is one folder: ``round.json`` has the state and names the files of the anchor and the feedback;
these and this node's contribution are files beside it.

Invariants: a file is replaced as a whole, and ``round.json`` last, so it only names files that
exist; a damaged folder is refused with a clear error, and nothing in it is overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import Tensor

from meshnode.datadir import write_private, write_private_parts
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Persisted
from meshnode.model.checkpoint import anchor_parts, map_anchor, read_anchor
from meshnode.model.feedback import read_feedback
from meshnode.model.tensor_file import file_parts
from meshnode.model.trained_model import Anchor
from meshnode.services.training.progress import Counts

ROUND_FILE = "round.json"
CONTRIBUTION_FILE = "contribution.bin"
FORMAT = "meshnode-training-v1"
BEGIN_ANEW = "move the training folder of the data folder away to begin anew"


@dataclass(frozen=True, slots=True)
class Judging:
    """What a verdict on the kept weights needs (decision 0226)."""

    previous: WeightsVersion | None = None
    """The weights that they were made from, which are kept beside them; None if not here."""
    dropped: int = 0
    """Rounds that were dropped since the last one that was good."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What ``round.json`` says."""

    persisted: Persisted
    losses: list[float]
    """Held-out losses of the weights that were kept, oldest first."""
    counts: Counts
    judging: Judging = Judging()


class TrainingDisk:
    """The folder. All calls block."""

    round_file = ROUND_FILE
    suffix = "safetensors"
    """Of the files of anchors."""

    def __init__(self, folder: Path, initial: WeightsVersion) -> None:
        """Create the folder if it is missing. ``initial`` is the model's untrained weights."""
        self._folder = folder
        self._initial = initial
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self) -> Saved:
        """What was saved last; the initial state of a new folder.

        Raises StartupError if the folder is damaged or belongs to another model. Its message is
        also shown to clients without a token, so it names the files without their folder.
        """
        path, initial = self._folder / self.round_file, self._initial
        try:
            document = json.loads(path.read_bytes())
            if document["format"] != FORMAT:
                raise ValueError("unknown format")
            kept = WeightsVersion(int(document["version"]), str(document["model_hash"]))
            contributed = document["contributed"]
            # Absent from a folder of an earlier version.
            rest = document.get("feedback"), bool(document.get("restored", False))
            last = document.get("last")
            last = None if last is None else int(last)
            persisted = Persisted(kept, int(document["round_id"]), contributed, *rest, last)
            losses = [float(loss) for loss in document["losses"]]
            counts = Counts(**document.get("counts", {}))
            origin = str(document["origin"])
            judged = document.get("judging", {"previous": None, "dropped": 0})
            previous = judged["previous"]
            judging = Judging(
                WeightsVersion(**previous) if previous else None, int(judged["dropped"])
            )
        except FileNotFoundError:
            return Saved(Persisted(initial, 0), [], Counts())
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise StartupError(f"{path.name} is damaged; {BEGIN_ANEW}") from None
        if origin != initial.model_hash:
            raise StartupError(
                f"{path.name} is of another model's training: name that model with --model, or "
                f"{BEGIN_ANEW}"
            )
        return Saved(persisted, losses, replace(counts, shards=tuple(counts.shards)), judging)

    def anchor(
        self, kept: WeightsVersion, shapes: Mapping[str, tuple[int, ...]], *, mapped: bool = False
    ) -> Anchor | None:
        """The anchor that was kept; None if that is the initial one. Raises StartupError.

        If it is ``mapped``, it takes no private memory.
        """
        if kept == self._initial:
            return None
        path = self._anchor(kept)
        try:
            if mapped:
                return map_anchor(path, shapes, kept.model_hash)
            return read_anchor(path.read_bytes(), shapes, kept.model_hash)
        except (OSError, InvalidRequest):
            raise StartupError(f"{path.name} is damaged or missing; {BEGIN_ANEW}") from None

    def save_anchor(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Save an anchor, before :meth:`save` names it."""
        write_private_parts(self._anchor(weights), anchor_parts(anchor, weights.version))

    def save(
        self,
        persisted: Persisted,
        losses: list[float],
        counts: Counts,
        judging: Judging = Judging(),
    ) -> None:
        """Save the state, whose files must be saved already. Removes those of other states."""
        state = asdict(persisted)
        kept = state.pop("kept")
        origin = self._initial.model_hash
        document = {
            "format": FORMAT,
            "origin": origin,
            "losses": losses,
            "counts": asdict(counts),
            "judging": asdict(judging),
            **kept,
            **state,
        }
        write_private(self._folder / self.round_file, json.dumps(document).encode())
        for path in self._folder.glob(f"anchor-*.{self.suffix}"):
            earlier = judging.previous and self._anchor(judging.previous)
            if path not in (self._anchor(persisted.kept), earlier):
                path.unlink(missing_ok=True)
        needed = {persisted.feedback, persisted.contributed} - {None}
        for path in self._folder.glob("feedback-*.safetensors"):
            if path not in {self._feedback(str(digest)) for digest in needed}:
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

    def save_feedback(self, digest: str, feedback: Mapping[str, Tensor]) -> None:
        """Save what the contribution ``digest`` leaves unsent, before the contribution."""
        write_private_parts(self._feedback(digest), file_parts(feedback))

    def feedback(self, digest: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """What the contribution ``digest`` left unsent. Raises FeedbackUnreadable."""
        return read_feedback(self._feedback(digest), shapes)

    def _feedback(self, digest: str) -> Path:
        return self._folder / f"feedback-{digest[:16]}.safetensors"

    def _anchor(self, weights: WeightsVersion) -> Path:
        return anchor_file(self._folder, weights).with_suffix(f".{self.suffix}")


def anchor_file(folder: Path, weights: WeightsVersion) -> Path:
    """The file of an anchor in a training folder."""
    return folder / f"anchor-{weights.version}-{weights.model_hash[:16]}.safetensors"
