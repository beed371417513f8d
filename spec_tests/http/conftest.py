"""What tests of the HTTP layer share."""

from typing import Any

import pytest

from meshnode.http import http1
from meshnode.http.exchange import PromptRoute
from meshnode.http.prompt import prompt_answer


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the requests that were answered by their connections (decision 0260)."""
    taken: list[str] = []
    answer = prompt_answer

    async def noting(route: PromptRoute, *rest: Any) -> None:
        taken.append(route.path)
        await answer(route, *rest)

    monkeypatch.setattr(http1, "prompt_answer", noting)
    return taken
