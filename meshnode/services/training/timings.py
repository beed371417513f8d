"""The intervals, deadlines and sizes of the training service, which tests shorten."""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.domain.training.states import Timings
from meshnode.model.checkpoint import MAX_BYTES


@dataclass(frozen=True, slots=True)
class TrainingTimings:
    """Times in seconds."""

    rounds: Timings = Timings()  # noqa: RUF009 - frozen
    poll_s: float = 1.0
    """Pause between two requests to a peer for its report."""
    ask_s: float = 3.0
    """Deadline of such a request."""
    send_s: float = 30.0
    """Deadline of one contribution, up to 100 MiB."""
    fetch_s: float = 120.0
    """Deadline of a checkpoint in one message, or of one of its pieces."""
    whole_bytes: int = MAX_BYTES
    """The largest checkpoint that comes in one message."""
    resume_s: float = 10.0
    """Pause before rounds are tried again after a failure of the data, the model or the disk."""
    step_retry_s: float = 2.0
    """Pause before a failed step of a pipeline is tried again."""
    recent_s: float = 60.0
    """A follower that has seen no step for this long reports that it does not train."""


TRAINING_TIMINGS = TrainingTimings()
