"""The mempool: bounded, in order, each transaction once."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from meshnode.domain.chain.envelope import transaction_hash
from meshnode.domain.chain.errors import MempoolFull, TooManyOfSender
from meshnode.domain.chain.mempool import Mempool, MempoolLimits

LIMITS = MempoolLimits(count=6, bytes=60, per_sender=3, blocks=4)


class MempoolMachine(RuleBasedStateMachine):
    """Compares the mempool with a plain list of (raw, sender, since)."""

    raws = Bundle("raws")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Mempool(LIMITS)
        self.model: list[tuple[bytes, str, int]] = []
        self.height = 0

    @rule(target=raws, raw=st.binary(min_size=1, max_size=30))
    def choose(self, raw: bytes) -> bytes:
        return raw

    @rule(target=raws, raw=raws, sender=st.sampled_from("abc"))
    def add(self, raw: bytes, sender: str) -> object:
        known = any(raw == other for other, _, _ in self.model)
        size = sum(len(other) for other, _, _ in self.model) + len(raw)
        full = len(self.model) >= LIMITS.count or size > LIMITS.bytes
        crowded = sum(one == sender for _, one, _ in self.model) >= LIMITS.per_sender
        if known:
            self.pool.add(raw, sender, self.height)
        elif full or crowded:
            with pytest.raises(MempoolFull if full else TooManyOfSender):
                self.pool.add(raw, sender, self.height)
        else:
            self.pool.add(raw, sender, self.height)
            self.model.append((raw, sender, self.height))
        return multiple()

    @rule(raw=raws)
    def remove(self, raw: bytes) -> None:
        self.pool.remove([transaction_hash(raw)])
        self.model = [one for one in self.model if one[0] != raw]

    @rule(blocks=st.integers(1, 3))
    def age(self, blocks: int) -> None:
        self.height += blocks
        self.pool.remove_old(self.height)
        self.model = [one for one in self.model if one[2] + LIMITS.blocks > self.height]

    @invariant()
    def agrees(self) -> None:
        assert list(self.pool) == [raw for raw, _, _ in self.model]
        assert len(self.pool) == len(self.model)
        assert self.pool.bytes == sum(len(raw) for raw, _, _ in self.model)
        assert all(transaction_hash(raw) in self.pool for raw, _, _ in self.model)


TestMempool = MempoolMachine.TestCase
