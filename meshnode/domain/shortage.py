"""Shortages of descriptors or of the kernel's memory, which pass (decision 0126).

A process that has no descriptor left gets EMFILE for each file and socket that it opens, and a
system without any ENFILE; ENOBUFS and ENOMEM say the same of the kernel's memory. Nothing is wrong
with the file or the peer, so whoever meets a shortage tries again later.
"""

from __future__ import annotations

import errno

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
TRY_AGAIN_S = 1.0
"""Before another try. Clients leave meanwhile, and each try costs little."""
_DEEPEST = 16
"""Causes of causes that are looked at."""


def shortage_in(failure: BaseException) -> str:
    """The system's words for the shortage that caused a failure; empty if none did.

    A group of failures counts if all of them do.
    """
    if isinstance(failure, BaseExceptionGroup):
        found = [shortage_in(one) for one in failure.exceptions]
        return found[0] if all(found) else ""
    cause: BaseException | None = failure
    seen = 0
    while cause is not None and seen < _DEEPEST:
        if isinstance(cause, OSError) and cause.errno in SHORTAGES:
            return cause.strerror or errno.errorcode[cause.errno or 0]
        # A StartupError is raised "from None", which leaves only the context.
        cause, seen = cause.__cause__ or cause.__context__, seen + 1
    return ""
