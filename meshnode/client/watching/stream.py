"""Following a node's websocket: connecting, coming back, and showing what comes (decision 0167).

Invariants: after an interruption it goes on behind the last event, or begins with a new snapshot;
a node that has gone silent is given up after ``SILENCE_S``; a refusal that waiting does not mend
ends the command.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from ssl import SSLContext
from typing import Any, TextIO

import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    open_websocket_url,
)

from meshnode.client.errors import Declined, GatewayMisbehaves
from meshnode.client.watching.screen import render
from meshnode.client.watching.state import Watched, visible

CONNECT_S = 10.0
SILENCE_S = 40.0
"""The node gives a sign of life every 15 s."""
PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before each further attempt to connect; the last one again and again."""
MAX_MESSAGE = 1 << 20
DRAW_EVERY_S = 0.25
REFUSED = {401: "the node does not accept the token", 403: "this token may not do that"}
NO_EVENTS = (404, 426)
"""What a node without live events answers."""

ENTER = "\x1b[?1049h\x1b[?25l"
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(slots=True)
class Watch:
    """One run of the command. ``url`` is that of the websocket."""

    url: str
    token: str = ""
    trust: SSLContext | None = None
    """For a URL with wss; without one, what the machine trusts."""
    watched: Watched = field(default_factory=Watched)
    said: Callable[[str], None] = lambda words: None
    """Is given each piece of news."""
    trouble: str = "connecting"
    _last: str = ""

    async def follow(self) -> None:
        """Take events until cancelled. Raises Declined or GatewayMisbehaves for good."""
        failures = 0
        while True:
            try:
                got = await self._once()
            except ConnectionRejected as refusal:
                self._end_for_good(refusal)
                got, reason = False, f"the node answered {refusal.status_code}"
            except (HandshakeError, ConnectionClosed, OSError, trio.TooSlowError) as error:
                got, reason = False, visible(str(error)) or "no connection"
            else:
                reason = "the connection ended"
            failures = 0 if got else failures + 1
            self.trouble = f"{reason}; trying again"
            if failures == 1:
                self.said(self.trouble)
            await trio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])

    async def _once(self) -> bool:
        """One connection to its end. Returns whether any event came."""
        headers = [(b"authorization", f"Bearer {self.token}".encode())] if self.token else []
        if self._last:
            headers.append((b"last-event-id", self._last.encode()))
        got = False
        async with open_websocket_url(
            self.url,
            ssl_context=self.trust,
            extra_headers=headers,
            max_message_size=MAX_MESSAGE,
            connect_timeout=CONNECT_S,
            disconnect_timeout=1.0,
        ) as socket:
            while True:
                try:
                    with trio.fail_after(SILENCE_S):
                        message = await socket.get_message()
                except (ConnectionClosed, trio.TooSlowError):
                    return got
                self._take(message)
                got, self.trouble = True, ""

    def _take(self, message: str | bytes) -> None:
        try:
            event: Any = json.loads(message)
            kind, data = event["event"], event.get("data", {})
            identifier = event.get("id", "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise GatewayMisbehaves(f"{self.url} sends something else than events") from None
        if isinstance(kind, str) and isinstance(data, dict):
            words = self.watched.apply(kind, data, trio.current_time())
            if words:
                self.said(words)
        if isinstance(identifier, str) and identifier.isascii() and identifier.isprintable():
            self._last = identifier or self._last

    def _end_for_good(self, refusal: ConnectionRejected) -> None:
        if refusal.status_code in REFUSED:
            raise Declined(REFUSED[refusal.status_code]) from None
        if refusal.status_code in NO_EVENTS:
            raise GatewayMisbehaves(f"{self.url} has no live events") from None


async def watch_in_lines(watch: Watch, out: TextIO = sys.stdout) -> None:
    """Print a line for each piece of news, until cancelled."""

    def say(words: str) -> None:
        print(f"{datetime.now().strftime('%H:%M:%S')} {words}", file=out, flush=True)

    watch.said = say
    await watch.follow()


async def watch_on_screen(watch: Watch, out: TextIO = sys.stdout) -> None:
    """Show a table that is kept up to date, until cancelled. The screen is restored at the end."""
    out.write(ENTER)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.follow)
            while True:
                width, height = shutil.get_terminal_size()
                watch.watched.measure(trio.current_time())
                lines = render(watch.watched, watch.trouble, width, height)
                body = f"{END_OF_LINE}\r\n".join(lines)
                out.write(f"{HOME}{body}{END_OF_LINE}{END_OF_SCREEN}")
                out.flush()
                await trio.sleep(DRAW_EVERY_S)
    finally:
        out.write(LEAVE)
        out.flush()
