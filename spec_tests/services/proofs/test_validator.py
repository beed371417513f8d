"""Interface 4.3, validators: without weights, during a stop, and with the data they are given."""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from safetensors.torch import load_file, save_file

from meshnode.domain.errors import Unavailable
from meshnode.domain.identity import key_from_seed
from meshnode.domain.proofs.judging import Verdict
from meshnode.domain.proofs.statements import tensor_hash
from meshnode.model.files import open_files
from meshnode.services.proofs import recompute, validator
from meshnode.services.proofs.gossip import Taken
from meshnode.services.proofs.recompute import Recomputation, RecomputedWork
from meshnode.services.shards import messages
from spec_tests.domain.chain.net import ALICE, BOB
from spec_tests.services.ledger.ledgers import eventually
from spec_tests.services.proofs.provers import (
    NEVER,
    Network,
    ask_for_work,
    over_a_chain,
    work_of,
)

pytestmark = pytest.mark.wire


@over_a_chain
async def test_a_validator_without_the_weights_abstains(network: Network) -> None:
    partial = network.directory.parent / "partial"
    if not partial.exists():
        shutil.copytree(network.directory, partial)
        # As on a node that has fetched only its own layers.
        for file in partial.glob("*.safetensors*"):
            keep_layers(file, ("model.embed_tokens", "model.layers.0.", "model.layers.1."))
    alice = await network.node(ALICE, [0, 1], directory=partial)
    bob = await network.node(BOB, [2, 3])
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    await eventually(lambda: alice.proofs.validator.judgements)
    (judgement,) = alice.proofs.validator.judgements.values()
    assert judgement.verdict is Verdict.ABSTAIN
    assert judgement.reason == "it cannot be computed here"
    assert await network.totals() == (1, 0, 0)


@over_a_chain
async def test_computing_again_outlives_its_service(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], policy=NEVER)
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await ask_for_work(alice, bob)
    # The layers are loaded from files, because Alice does not hold them.
    recomputation, work = (
        Recomputation(alice.executor, lambda _: open_files(network.directory)),
        work_of(bob),
    )
    assert await recomputation.agrees(range(2, 4), work)
    # As when the service ends, and a new one starts with the same recomputation.
    recomputation.close()
    assert await recomputation.agrees(range(2, 4), work)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "load_model", fail)
        assert await recomputation.agrees(range(2, 4), work) is None
    recomputation.close()


def keep_layers(file: Path, names: tuple[str, ...]) -> None:
    save_file({k: v for k, v in load_file(file).items() if k.startswith(names)}, file)


@over_a_chain
async def test_a_vote_that_cannot_be_gossiped_counts_on_the_chain(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3])
    await network.stake(BOB)

    async def busy(*_: object) -> Taken:
        await trio.lowlevel.checkpoint()
        raise Unavailable("the ledger is busy")

    setattr(alice.proofs.gossip, "take_vote", busy)  # noqa: B010
    await ask_for_work(alice, bob)
    # Alice has more than two thirds of the power.
    await network.until(0, 1)


class Stuck:
    """A recomputation that never ends."""

    def __init__(self) -> None:
        self.begun = trio.Event()

    async def agrees(
        self, layers: range, work: RecomputedWork, model_hash: str = ""
    ) -> bool | None:
        self.begun.set()
        await trio.sleep_forever()
        raise AssertionError

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


@over_a_chain
async def test_a_node_that_stops_in_the_middle_of_a_judgement_has_not_voted(
    network: Network,
) -> None:
    stuck = Stuck()
    alice = await network.node(ALICE, [0, 1], recomputation=stuck)
    bob = await network.node(BOB, [2, 3])
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    with trio.fail_after(120):
        await stuck.begun.wait()
    await network.stack.aclose()
    (entry,) = (await network.counts())["open"]
    assert entry["votes"] == []
    assert entry["owner"] == key_from_seed(BOB.seed).public_key


@over_a_chain
async def test_inputs_with_impossible_shapes_are_refused(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3])
    await network.stake(BOB)
    other = RecomputedWork((1,) * 2000, b"", (1,), b"")
    setattr(bob.proofs.prover, "give", lambda _: other)  # noqa: B010
    await ask_for_work(alice, bob)
    await eventually(lambda: alice.proofs.validator.judgements)
    (judgement,) = alice.proofs.validator.judgements.values()
    assert judgement.verdict is Verdict.ABSTAIN
    assert judgement.reason == "its prover cannot be asked"


@over_a_chain
async def test_large_work_is_hashed_beside_the_event_loop(network: Network) -> None:
    hashed_by = set[threading.Thread]()

    def noting(shape: Sequence[int], data: bytes) -> str:
        hashed_by.add(threading.current_thread())
        return tensor_hash(shape, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "LARGE", 0)
        patch.setattr(validator, "tensor_hash", noting)
        alice = await network.node(ALICE, [0, 1])
        bob = await network.node(BOB, [2, 3])
        await network.stake(BOB)
        await ask_for_work(alice, bob)
        await network.until(0, 1)
    assert hashed_by
    assert threading.main_thread() not in hashed_by
