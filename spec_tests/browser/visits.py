"""What a user does with the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spec_tests.processes.nodes import Node

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WAIT_MS = 60_000
"""Only reached when a test fails."""
EXPECTED = (*(f"status of {status}" for status in (400, 401, 402, 403, 404)), "net::ERR")
"""What the browser itself writes about answers that a test brings about."""


class Visit:
    """One tab."""

    def __init__(self, page: Page, node: Node) -> None:
        self.page = page
        self.node = node
        self.complaints: list[str] = []
        """Errors of scripts, and whatever the browser refused, as the policy demands."""
        self.hosts: set[str] = set()
        """Every address that was asked for anything."""
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _note(self, message: Any) -> None:
        if message.type == "error" and not any(text in message.text for text in EXPECTED):
            self.complaints.append(message.text)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.node.port}"

    def go(self, page: str) -> None:
        """Open a page by its address, and wait until the node's state is there."""
        self.page.goto(f"{self.base}/#{page}")
        self.text("Running").wait_for()

    def enter(self, token: str) -> None:
        """Type in a token."""
        self.page.get_by_role("button", name="Enter token").click()
        self.page.get_by_label("Token", exact=True).fill(token)
        self.button("Use this token").click()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def text(self, text: str) -> Locator:
        return self.page.get_by_text(text).first

    def tile(self, name: str) -> str:
        """The value of a figure."""
        place = self.page.locator(".tile", has=self.page.get_by_text(name, exact=True))
        value: str = place.locator("dd").inner_text()
        return value

    def ask(self, prompt: str) -> str:
        """Write something in the chat; returns the finished answer."""
        self.page.get_by_label("Your message").fill(prompt)
        self.page.keyboard.press("Enter")
        answer = self.page.locator(".answer").last
        self.page.wait_for_selector(".answer:last-child[aria-busy=false]")
        text: str = answer.locator(".text").inner_text()
        return text

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return width

    def findings(self) -> list[str]:
        """What axe has to say about the page."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {where['html'][:120]}" for each in found for where in each["nodes"]]
