"""A block that a new node may begin to trust from, asked of several nodes (decision 0221)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import trio

from meshnode.domain.errors import RateLimited, StartupError, Unavailable
from meshnode.services.ledger.fetch import fetch

ANSWER_S = 10.0
MAX_ANSWER = 8 * 1024 * 1024


def find_trusted_block(urls: Sequence[str], authorities: str = "") -> tuple[int, str]:
    """:func:`trusted_block` for a command."""
    return trio.run(trusted_block, urls, authorities)


async def trusted_block(urls: Sequence[str], authorities: str = "") -> tuple[int, str]:
    """Height and hash of the last block that all of ``urls`` have. Raises StartupError.

    It refuses nodes that are not under CometBFT, and nodes with different blocks.
    """
    heights = {}
    for url in urls:
        network = await _get(url, "/api/network", authorities)
        if network.get("engine") != "cometbft":
            raise StartupError(f"{url} is not under CometBFT: name one of the validators")
        heights[url] = network["latest_block_height"]
    height, found = min(heights.values()), dict[str, str]()
    for url in urls:
        block = await _get(url, f"/api/block/{height}", authorities)
        found[url] = f"{block['chain_id']} {block['hash']}"
    if len(set(found.values())) > 1:
        shown = ", ".join(f"{url} has {name}" for url, name in found.items())
        raise StartupError(f"these nodes differ in block {height}: {shown}")
    return height, block["hash"]


async def _get(url: str, path: str, authorities: str) -> dict[str, Any]:
    try:
        with trio.fail_after(ANSWER_S):
            status, content = await fetch(url, path, most_bytes=MAX_ANSWER, authorities=authorities)
    except (Unavailable, RateLimited, trio.TooSlowError) as failure:
        raise StartupError(f"{url}{path} does not answer: {failure}") from None
    answer = json.loads(content) if status == 200 else None
    if not isinstance(answer, dict):
        raise StartupError(f"{url}{path} is answered with {status}")
    return answer
