"""All checks of the suite, in the order in which they run."""

from collections.abc import Mapping
from functools import cache

from conformance.registry import Check, registered


@cache
def checks() -> Mapping[str, Check]:
    """Return all checks by name: by their effect first, then in the order of their definition."""
    # Importing the package registers the checks. This waits for the first call, because Hypothesis
    # then writes its tables, into a folder that the command line chooses first.
    import conformance.checks  # noqa: F401 - imported to register the checks

    return dict(sorted(registered().items(), key=lambda pair: pair[1].effect))
