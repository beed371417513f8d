"""The picture of a network while a holder fails in the middle of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from spec_tests.browser.conftest import Visits
from spec_tests.processes.pipelines import ALL, Network, open_network

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Network]:
    with ExitStack() as stack:
        yield open_network(tmp_path_factory.mktemp("pipeline"), stack)


def test_a_failover_is_seen_as_it_happens(visits: Visits, network: Network) -> None:
    network.hold("1-3", "1-3", "4-7")
    driver = network.driver
    watching = visits.open(driver, "network", token=driver.token)
    page = watching.page
    page.locator(".lane-bar").nth(3).wait_for()
    assert watching.tile("Peers") == "3"
    assert page.locator(".route").count() == 0

    chatting = visits.open(driver, token=driver.token)
    network.gate.let(10)
    chatting.page.get_by_label("Your message").fill("Once upon a time")
    chatting.page.keyboard.press("Enter")
    network.gate.wait_held()
    page.locator(".route").wait_for()
    watching.text("running").wait_for()
    network.lose(network.serving("1-3"))
    network.gate.let(ALL)
    chatting.page.wait_for_selector(".answer:last-child[aria-busy=false]")
    watching.text("A stream leaves its path").wait_for()
    watching.text("A stream goes on over").wait_for()
    watching.text("left 1 path").wait_for()
    chatting.page.get_by_text("What each of").wait_for()
    assert chatting.page.locator(".hop").count() >= 3
    assert watching.findings() == []
