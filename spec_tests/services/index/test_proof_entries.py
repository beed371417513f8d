"""Interface 2.1, proof entries: newest first, limited in number; sums cover all of them."""

from pathlib import Path
from typing import Any

from meshnode.domain.chain.canonical import digest
from meshnode.services.index.entries import block_entries
from meshnode.services.index.store import IndexStore
from spec_tests.domain.chain.net import ALICE, BOB, VALIDATOR, Body, Net
from spec_tests.services.index.test_entries import stored


def test_entries_and_sums_of_an_account_add_up(tmp_path: Path) -> None:
    net, store = Net(), IndexStore(tmp_path / "index.sqlite", "chain")

    def block(*transactions: bytes) -> Any:
        finalized = net.block(transactions)
        store.add([block_entries(stored(finalized), net.app.genesis.profile)])
        return finalized.results

    def prove(who: Any, number: int) -> str:
        fields: Body = {"work_kind": "forward", "layer": number, "statement": digest(number)}
        (result,) = block(net.tx(who, "prove", **fields))
        assert result.code == 0, result.log
        return str(result.id)

    def vote(name: str, *, approve: bool) -> None:
        key = VALIDATOR.consensus_key
        fields: Body = {"proof_id": name, "consensus_key": key, "approve": approve}
        (result,) = block(net.tx(VALIDATOR, "vote", **fields))
        assert result.code == 0, result.log

    for who in (ALICE, BOB):
        block(net.tx(who, "stake", amount=1_000_000, duration_days=1))
    names = []
    # Three are verified: two get the full reward, and one the half reward left in the budget.
    for number, approve in enumerate((True, False, True, True)):
        names.append(prove(ALICE, number))
        vote(names[-1], approve=approve)
    names.append(prove(ALICE, 4))
    prove(BOB, 9)
    page = store.proofs(ALICE.key, 100)
    assert [proof.id for proof in page.proofs] == names[::-1]
    assert [proof.layer for proof in page.proofs] == [4, 3, 2, 1, 0]
    assert [proof.verified for proof in page.proofs] == [False, True, True, False, True]
    assert (page.submitted, page.verified) == (5, 3)
    assert page.earned == sum(proof.reward for proof in page.proofs) == 25_000
    newest = store.proofs(ALICE.key, 2)
    assert newest.proofs == page.proofs[:2]
    assert (newest.submitted, newest.verified, newest.earned) == (5, 3, 25_000)
    assert store.proofs(VALIDATOR.key, 5).proofs == ()
    kinds = [entry.kind for entry in store.history(ALICE.key, 100, 0, 1000, ())[0]]
    assert kinds.count("penalty") == 1
    store.close()
