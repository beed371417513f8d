"""How a node is assembled: which settings and which other parts each part is given."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from meshnode import assembly
from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.edges import earned_rewards
from meshnode.assembly.pipeline import pipeline_limits
from meshnode.config import SETTINGS, build_config
from meshnode.domain.errors import Unavailable
from meshnode.domain.metering import RewardFigures

MESHNODE = Path(assembly.__file__).parent.parent
GROUPS = {setting.key.partition(".")[0] for setting in SETTINGS if "." in setting.key}


def test_the_pipeline_goes_by_its_settings() -> None:
    limits = pipeline_limits(
        build_config(
            {
                "pipeline.chain": False,
                "pipeline.call_s": 30.0,
                "limits.max_batch": 3,
                "limits.max_queue": 5,
            }
        )
    )
    assert (limits.relay, limits.call_s) == (False, 30.0)
    assert (limits.max_sessions, limits.max_queue) == (3, 5)


def test_every_setting_is_read_by_something() -> None:
    read: set[str] = set()
    for path in MESHNODE.rglob("*.py"):
        if path.name == "config.py" and path.parent == MESHNODE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                # `config.limits.max_batch` and `limits.max_batch` both read `limits.max_batch`.
                owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
                groups = GROUPS if owner == "config" else {owner}
                read |= {node.attr, *(f"{group}.{node.attr}" for group in groups)}
    assert [setting.key for setting in SETTINGS if setting.key not in read] == []


async def test_metrics_do_without_an_index_that_cannot_be_read() -> None:
    class Index:
        async def earned(self, public_key: str, since_ns: int) -> int:
            await trio.lowlevel.checkpoint()
            raise Unavailable("the explorer index is damaged")

    slot = ChainSlot()
    chain: Any = SimpleNamespace(account="02" + "0" * 64, index=Index())
    slot.chain = chain
    assert await earned_rewards(slot) == RewardFigures()
