"""Settings from every source."""

from __future__ import annotations

from collections.abc import Iterator

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok

CHECK = "settings"


def check(examination: Examination) -> Iterator[Finding]:
    """Whether the settings can be read; the other checks use the defaults if they cannot."""
    if examination.settings_error:
        yield fault(
            CHECK, examination.settings_error, "correct it; what follows is about the defaults"
        )
    else:
        config = examination.config
        model = config.model or "the default model"
        yield ok(CHECK, f"data folder {config.data_dir}, {model}, layers {config.layers}")
