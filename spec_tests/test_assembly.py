"""How a node is assembled: which settings and which other parts each part is given."""

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from meshnode import assembly
from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.edges import earned_rewards, pending_rewards
from meshnode.assembly.peers import bootstrap_urls
from meshnode.assembly.pipeline import pipeline_limits
from meshnode.config import SETTINGS, build_config
from meshnode.domain.chain.profile import NetworkProfile
from meshnode.domain.chain.proofs import rewards_of
from meshnode.domain.errors import Unavailable
from meshnode.domain.metering import RewardFigures
from meshnode.domain.peers import role_of_claim

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


def test_open_claims_pay_until_the_budget_is_spent() -> None:
    profile = NetworkProfile()
    reward, budget = profile.proving.reward, profile.proving.budget
    stake = 2 * profile.params.atom_scale
    (each,) = {rewards_of(n, stake, 0, profile) // n for n in (1, 2, 5)}
    assert each >= reward
    assert rewards_of(5, stake, budget - each - 1, profile) == each + 1
    assert rewards_of(0, stake, 0, profile) == 0


async def test_pending_rewards_are_those_of_the_nodes_own_claims() -> None:
    profile = NetworkProfile()

    class Ledger:
        genesis = SimpleNamespace(profile=profile)

        async def query(self, path: str, options: Any) -> Any:
            await trio.lowlevel.checkpoint()
            owners = ["us", "them", "us"]
            answers: dict[str, Any] = {
                "/proofs": {"open": [{"owner": owner} for owner in owners], "paid": 0},
                "/stake": {"amount": 0},
            }
            return SimpleNamespace(code=0, log="", value=json.dumps(answers[path]).encode())

    ledger: Any = Ledger()
    assert await pending_rewards(ledger, "us") == rewards_of(2, 0, 0, profile)
    assert await pending_rewards(ledger, "nobody") == 0


def test_a_node_that_joins_learns_this_node_its_trackers_and_its_peers() -> None:
    config = build_config({"port": 8001, "tracker_url": "http://t:8000,http://u:8000"})
    dht: Any = SimpleNamespace(own_address=SimpleNamespace(best=lambda: "2001:db8::1"))
    peers = [SimpleNamespace(address=f"10.0.0.{n}:8000") for n in range(30)]
    book: Any = SimpleNamespace(peers=lambda: peers)
    urls = bootstrap_urls(config, dht, book)
    assert urls[:3] == ["http://[2001:db8::1]:8001", "http://t:8000", "http://u:8000"]
    assert (urls[3], len(urls)) == ("http://10.0.0.0:8000", 16)
    dht.own_address.best = lambda: None
    assert bootstrap_urls(config, dht, book)[0] == "http://t:8000"


def test_a_claim_has_the_role_of_its_hop() -> None:
    held, total = range(15, 30), 30
    assert role_of_claim(15, held, total) == "validator"
    assert role_of_claim(0, range(15), total) == "driver"
    assert role_of_claim(5, range(5, 10), total) == "worker"
    # Of other accounts only the claim's layer is known, and layers may have changed since.
    assert role_of_claim(15, range(0), total) == "worker"
    assert role_of_claim(29, range(15), total) == "validator"
