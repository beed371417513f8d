"""The tests of `pytest --pyargs conformance --node-url URL`: one for each requirement."""

from typing import Any

import pytest

from conformance.catalogue import load
from conformance.pytest_plugin import judge_item


@pytest.mark.filterwarnings("default::conformance.pytest_plugin.ConformanceWarning")
@pytest.mark.parametrize("ident", load())
def test_requirement(ident: str, conformance_report: dict[str, Any]) -> None:
    """Pass or fail as the requirement did in the run."""
    judge_item(conformance_report, ident)


def test_the_suite_had_no_fault(conformance_report: dict[str, Any]) -> None:
    """Fail if a check broke down or the baseline is stale."""
    troubles = [*conformance_report["faults"], *conformance_report["stale_baseline"].items()]
    if troubles:
        pytest.fail("\n".join(map(str, troubles)), pytrace=False)
