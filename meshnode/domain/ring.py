"""The latest items of a sequence, for any number of readers at their own pace (decision 0166).

Items are numbered from 1. A reader keeps only the number of the last item that it has read, so it
costs no memory here, however slow it is: one that falls behind by more than the ring's room is told
that it has missed something.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """The latest ``room`` items of a sequence."""

    def __init__(self, room: int) -> None:
        if room < 1:
            raise ValueError("a ring has room for one item at least")
        self._items: list[T] = []
        self._room = room
        self.last = 0
        """The number of the newest item; 0 before the first."""

    def push(self, item: T) -> int:
        """Add an item, which may drop the oldest one. Returns its number."""
        if len(self._items) < self._room:
            self._items.append(item)
        else:
            self._items[self.last % self._room] = item
        self.last += 1
        return self.last

    def after(self, number: int, most: int) -> list[tuple[int, T]] | None:
        """The items that follow ``number``, oldest first, ``most`` of them at most.

        None if some of these have been dropped, or if there has been no such item yet.
        """
        if not max(0, self.last - self._room) <= number <= self.last:
            return None
        stop = min(self.last, number + most)
        return [(n, self._items[(n - 1) % self._room]) for n in range(number + 1, stop + 1)]
