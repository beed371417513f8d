"""The browser of the system, and nodes for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spec_tests.browser.visits import Visit
from spec_tests.processes.nodes import Node, running_node

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is missing")
    pytest.importorskip("axe_playwright_python", reason="the extra `browser` is missing")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        # Chromium's sandbox does not work for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Node]:
    with running_node(tmp_path_factory.mktemp("browser") / "node") as node:
        yield node


@pytest.fixture
def visits(browser: Browser, tmp_path: Path) -> Iterator[Visits]:
    """Opens pages; at the end, none of them may have complained."""
    with ExitStack() as stack:
        visits = Visits(browser, stack)
        yield visits
        for visit in visits.opened:
            assert visit.complaints == []


class Visits:
    def __init__(self, browser: Browser, stack: ExitStack) -> None:
        self._browser = browser
        self._stack = stack
        self.opened: list[Visit] = []

    def open(
        self,
        node: Node,
        page: str = "chat",
        *,
        token: str = "",
        width: int = 1280,
        dark: bool = False,
    ) -> Visit:
        """A new visitor on a page, who has typed in a token if there is one."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        self._stack.callback(context.close)
        visit = Visit(context.new_page(), node)
        self.opened.append(visit)
        visit.go(page)
        if token:
            visit.enter(token)
            # The node is asked whether it takes the token, before the dialog closes.
            visit.button("Token").wait_for()
        return visit
