"""``tools.audit`` fails if the advisory database gives no answer."""

from collections.abc import Callable

import pytest

from tools import audit as tool

CANARY = {"h2": ["CVE-2025-57804"]}


def answers(
    monkeypatch: pytest.MonkeyPatch, canary: dict[str, list[str]], local: dict[str, list[str]]
) -> Callable[[], int]:
    def audit(arguments: list[str]) -> dict[str, list[str]]:
        return local if arguments == ["--local"] else canary

    monkeypatch.setattr(tool, "audit", audit)
    return tool.main


@pytest.mark.parametrize(
    ("canary", "local", "status"),
    [
        ({}, {"trio": []}, 1),
        ({"h2": []}, {"trio": []}, 1),
        # The database became unreachable after the first query.
        (CANARY, {}, 1),
        (CANARY, {"trio": [], "h2": ["CVE-2025-57804"]}, 1),
        (CANARY, {"trio": []}, 0),
    ],
)
def test_only_an_answer_without_advisories_is_safe(
    monkeypatch: pytest.MonkeyPatch,
    canary: dict[str, list[str]],
    local: dict[str, list[str]],
    status: int,
) -> None:
    assert answers(monkeypatch, canary, local)() == status
