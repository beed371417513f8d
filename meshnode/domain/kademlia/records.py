"""The records that a node holds for others (interface 2.3: DHTStore, DHTFindValue; decision 0053).

Terms: a *record* is a key, a value and the *group* whose quota it uses (``policy.quota_group``).
There may be several values under one key, such as the holders of a layer. A record's *age* is the
time since its publisher stored it; a holder that hands a record on passes on the age. A record's
*cost* is the size of its value in bytes, plus OVERHEAD_BYTES.

=========  ===========================================  =========  ================================
record     event                                        next       other effect
=========  ===========================================  =========  ================================
(none)     stored, and there is room                    held
(none)     stored, and the fullest group must give way  held       that group's oldest is dropped
held       stored again with a lower age                held       expires later
held       stored again with a higher age               held       is handed on later
held       EXPIRY_S after its publication               (none)
=========  ===========================================  =========  ================================

Invariants: ``RecordLimits`` bounds the sum of costs, the values under a key, and for each group its
records, its bytes and its values under a key; an expired record is never returned; handing a record
on never lengthens its life; a flood cannot drive out the records of groups that hold less.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.refusals import KeyFull, SenderFull, StoreFull, StoringTooFast
from meshnode.domain.kademlia.value import VALUE_BYTES, VALUES_PER_KEY, check_value
from meshnode.domain.ratelimit import Rate, RateLimit

OVERHEAD_BYTES = 600
"""Memory that a record takes besides its value, as measured by ``bench/dht.py``."""


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The bounds of a record store."""

    value_bytes: int = VALUE_BYTES
    values_per_key: int = VALUES_PER_KEY
    group_values_per_key: int = 16
    group_records: int = 2048
    """Enough for a node of a small network to hand on all its records."""
    group_bytes: int = 2 << 20
    total_bytes: int = 16 << 20
    stores: Rate = Rate(per_second=20.0, burst=2048.0)  # noqa: RUF009 - frozen
    """Stores by one group."""
    expiry_s: float = 3600.0
    """A record outlives two missed publications (``publications.PUBLISH_S``)."""
    hand_on_s: float = 900.0
    """A record is handed on to the nodes nearest to its key this long after it was last stored
    here, or up to half as long again."""


RECORD_LIMITS = RecordLimits()


@dataclass(slots=True)
class Record:
    """One value under one key. Times are seconds of a monotonic clock."""

    key: NodeId
    value: str
    group: str
    published_at: float
    hand_on_at: float

    @property
    def cost(self) -> int:
        """The memory it takes, in bytes."""
        return OVERHEAD_BYTES + len(self.value.encode())


@dataclass(frozen=True, slots=True)
class Due:
    """A record to hand on: look up ``key``, store ``value`` at its K closest with ``age_s``."""

    key: NodeId
    value: str
    age_s: float


class _Group:
    """The records of one group, oldest first, and their cost."""

    __slots__ = ("records", "size")

    def __init__(self) -> None:
        self.records: dict[tuple[NodeId, str], Record] = {}
        self.size = 0


class RecordStore:
    """The records that a node holds, within bounds.

    ``spread``, 0 to 1, differs between nodes, so that the holders of a record do not all hand it on
    at once. The first one that does spares the others the work.
    """

    def __init__(self, limits: RecordLimits = RECORD_LIMITS, spread: float = 0.0) -> None:
        self._limits = limits
        self._hand_on_s = limits.hand_on_s * (1 + spread / 2)
        self._keys: dict[NodeId, dict[str, Record]] = {}
        """By key and value; the records of a key in the order in which they were first stored."""
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        self._size = 0
        self._allowance = RateLimit(limits.stores)

    @property
    def size(self) -> int:
        """The cost of all records, in bytes."""
        return self._size

    def __len__(self) -> int:
        """How many records are held."""
        return sum(map(len, self._keys.values()))

    def __iter__(self) -> Iterator[Record]:
        """All records, including expired ones that ``expire`` has not dropped yet."""
        for records in self._keys.values():
            yield from records.values()

    def values(self, key: NodeId, now: float) -> tuple[str, ...]:
        """The values held under ``key``, in the order in which they were first stored."""
        return tuple(
            record.value
            for record in self._under(key)
            if not self._has_expired(record.published_at, now)
        )

    def store(self, key: NodeId, value: str, group: str, now: float, age_s: float = 0.0) -> None:
        """Hold a record, unless it has expired already.

        Raises BadValue, or Flooded if the record would exceed a bound.
        """
        limits = self._limits

        # A sender stores at a bounded rate. Refused records count too.
        wait = self._allowance.wait(group, now)
        if wait:
            raise StoringTooFast(int(wait) + 1)

        check_value(value, limits.value_bytes)

        # A negative age would let a record outlive the others.
        published_at = now - max(0.0, age_s)
        if self._has_expired(published_at, now):
            return

        record = Record(key, value, group, published_at, now + self._hand_on_s)
        held = self._keys.get(key, {}).get(value)
        if held is not None:
            self._renew(held, record)
            return
        self.expire(now, key)
        self._check_group(record)
        giving_way = self._check_key(record)
        self._make_room(record, now)
        if giving_way is not None and giving_way.value in self._keys.get(key, {}):
            self._drop(giving_way)
        self._add(record)

    def keep_only(self, key: NodeId, value: str, group: str) -> None:
        """Drop the other values of a group under a key."""
        for record in list(self._under(key)):
            if record.group == group and record.value != value:
                self._drop(record)

    def expire(self, now: float, key: NodeId | None = None) -> int:
        """Drop expired records, under one key or all. Returns how many."""
        keys = self._keys if key is None else {key: self._keys.get(key, {})}
        old = [
            record
            for records in keys.values()
            for record in records.values()
            if self._has_expired(record.published_at, now)
        ]
        for record in old:
            self._drop(record)
        return len(old)

    def due(self, now: float) -> list[Due]:
        """Records to hand on now; each is due again ``hand_on_s`` later.

        A record that was stored here again in the meantime is not due: the node that handed it on
        has sent it to the other holders too.
        """
        self.expire(now)
        due: list[Due] = []
        for record in self:
            if record.hand_on_at <= now:
                record.hand_on_at = now + self._hand_on_s
                due.append(Due(record.key, record.value, now - record.published_at))
        return due

    def _has_expired(self, published_at: float, now: float) -> bool:
        return published_at <= now - self._limits.expiry_s

    # Bounds

    def _renew(self, held: Record, again: Record) -> None:
        again.published_at = max(held.published_at, again.published_at)
        if self._answers_better(again, held):
            self._drop(held)
            self._add(again)
        else:
            held.published_at = again.published_at
            held.hand_on_at = again.hand_on_at

    def _answers_better(self, again: Record, held: Record) -> bool:
        # If several groups store the same record, it counts for the one with fewer bytes here.
        # Otherwise a flooder could store another's record first, and have it dropped with its own.
        if self._size_of(again.group) + again.cost >= self._size_of(held.group):
            return False
        try:
            self._check_group(again)
        except SenderFull:
            return False
        return True

    def _size_of(self, group: str) -> int:
        return self._groups[group].size if group in self._groups else 0

    def _check_group(self, record: Record) -> None:
        # A group's records are bounded in number, in bytes, and in number under a key.
        limits = self._limits
        group = self._groups.get(record.group, _Group())
        under_key = sum(other.group == record.group for other in self._under(record.key))
        if (
            len(group.records) >= limits.group_records
            or group.size + record.cost > limits.group_bytes
            or under_key >= limits.group_values_per_key
        ):
            raise SenderFull(self._soon)

    def _check_key(self, record: Record) -> Record | None:
        # The values under a key are bounded. When they are full, the group with most of them gives
        # way to a group that would still have fewer.
        if len(self._under(record.key)) < self._limits.values_per_key:
            return None
        shares = Counter(other.group for other in self._under(record.key))
        fullest, most = shares.most_common(1)[0]
        if most <= shares[record.group] + 1:
            raise KeyFull(self._soon)
        return next(other for other in self._under(record.key) if other.group == fullest)

    def _under(self, key: NodeId) -> Collection[Record]:
        return self._keys.get(key, {}).values()

    def _make_room(self, record: Record, now: float) -> None:
        # The store as a whole is bounded in bytes. When it is full, the same rule applies.
        if self._size + record.cost > self._limits.total_bytes:
            self.expire(now)
        while self._size + record.cost > self._limits.total_bytes:
            fullest = max(self._groups.values(), key=lambda group: group.size, default=_Group())
            if fullest.size <= self._size_of(record.group) + record.cost:
                raise StoreFull(self._soon)
            self._drop(next(iter(fullest.records.values())))

    @property
    def _soon(self) -> int:
        # Room rarely comes sooner, and a publisher retries at its next publication anyway.
        return int(self._limits.hand_on_s)

    def _drop(self, record: Record) -> None:
        records = self._keys[record.key]
        del records[record.value]
        if not records:
            del self._keys[record.key]
        group = self._groups[record.group]
        del group.records[record.key, record.value]
        group.size -= record.cost
        self._size -= record.cost
        if not group.records:
            del self._groups[record.group]

    def _add(self, record: Record) -> None:
        self._keys.setdefault(record.key, {})[record.value] = record
        group = self._groups[record.group]
        group.records[record.key, record.value] = record
        group.size += record.cost
        self._size += record.cost
