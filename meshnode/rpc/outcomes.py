"""The status with which a handler's work ends (interface 7.3)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from meshnode.domain.errors import MeshnodeError
from meshnode.rpc.errors import NOT_IMPLEMENTED, Code, status_of
from meshnode.rpc.stubs import NotOffered

log = logging.getLogger(__name__)


async def outcome(name: str, work: Callable[[], Awaitable[None]]) -> tuple[Code, str]:
    """Do the work of an operation, and return its status; an unexpected error is logged."""
    try:
        await work()
    except NotOffered:
        return NOT_IMPLEMENTED
    except Exception as error:
        code, message = status_of(error)
        if not isinstance(error, MeshnodeError) and code is Code.INTERNAL:
            log.error("operation %s failed", name, exc_info=error)
        return code, message
    return Code.OK, ""
