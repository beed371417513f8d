"""What the checks examine: settings, data folder, and the nodes that this one would talk to."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from meshnode.config import Config
from meshnode.datadir import LOCK_FILE
from meshnode.doctor.nodes import NodeReply, ask_nodes, known_nodes


@dataclass
class Examination:
    """One run of the doctor."""

    config: Config
    settings_error: str = ""
    """Why the settings cannot be read; ``config`` has the defaults then."""
    passphrase: str = field(default="", repr=False)

    @property
    def data_dir(self) -> Path:
        """The data folder, which may be missing."""
        return Path(self.config.data_dir)

    @cached_property
    def running(self) -> bool:
        """Whether a node runs in the data folder."""
        return is_locked(self.data_dir)

    @cached_property
    def replies(self) -> list[NodeReply]:
        """What the trackers and the remembered peers answer. Asked once."""
        known = known_nodes(self.config.tracker_url, self.data_dir)
        return ask_nodes(known, self.config.tls_ca)


def is_locked(data_dir: Path) -> bool:
    """Whether another process holds the folder's lock. Creates nothing."""
    try:
        handle = os.open(data_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
