"""Which failures are shortages that pass."""

import errno

import pytest

from meshnode.domain.errors import StartupError
from meshnode.domain.shortage import shortage_in

FULL = OSError(errno.EMFILE, "Too many open files")
BROKEN = OSError(errno.EIO, "Input/output error")


def startup_error_after(cause: Exception) -> StartupError:
    with pytest.raises(StartupError) as caught:  # noqa: PT012 - the context is what counts
        try:
            raise cause
        except OSError:
            raise StartupError("cannot read it") from None
    return caught.value


def test_a_shortage_is_found_behind_what_was_raised_for_it() -> None:
    assert shortage_in(FULL) == "Too many open files"
    assert shortage_in(startup_error_after(FULL)) == "Too many open files"
    assert shortage_in(ExceptionGroup("two", [FULL, startup_error_after(FULL)]))


def test_other_failures_are_none() -> None:
    assert not shortage_in(BROKEN)
    assert not shortage_in(startup_error_after(BROKEN))
    assert not shortage_in(ExceptionGroup("two", [FULL, BROKEN]))
    circle = RuntimeError()
    circle.__context__ = RuntimeError()
    circle.__context__.__context__ = circle
    assert not shortage_in(circle)
