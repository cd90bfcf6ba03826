"""What waits, taken in turns: an owner after the other, first come, first served within each."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """At most ``size`` items of any number of owners. Whoever shares it between threads locks around it.

    One owner may fill it alone. Then it is this owner that gives way to others: where it is full, the newest
    item of whoever has most in it makes room, so that it never keeps out one who has little there.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._lanes: OrderedDict[str, deque[T]] = OrderedDict()
        """The items of each owner that has some; the first one's turn is next."""

    def __len__(self) -> int:
        return self._count

    def put(self, owner: str, item: T) -> T | None:
        """Let an item wait behind its owner's others. What is turned away for it, if anything is: the newest
        item of another owner that has more, or else the item itself."""
        turned_away = None
        if self._count >= self._size:
            turned_away = self._make_room(owner, item)
            if turned_away is item:
                return item
        self._lanes.setdefault(owner, deque()).append(item)
        self._count += 1
        return turned_away

    def take(self, may: Callable[[str], bool] = lambda _: True) -> T | None:
        """The oldest item of the owner whose turn it is, among those that ``may``; None where none is."""
        owner = next((owner for owner in self._lanes if may(owner)), None)
        if owner is None:
            return None
        lane = self._lanes[owner]
        item = lane.popleft()
        self._lanes.move_to_end(owner)
        self._shrunk(owner)
        return item

    def _make_room(self, owner: str, item: T) -> T:
        most = max(self._lanes, key=lambda other: len(self._lanes[other]), default=owner)
        mine = len(self._lanes.get(owner, ()))
        # With one more it would have as many: to turn another's away for that would only trade places.
        if most == owner or len(self._lanes[most]) <= mine + 1:
            return item
        newest = self._lanes[most].pop()
        self._shrunk(most)
        return newest

    def _shrunk(self, owner: str) -> None:
        self._count -= 1
        if not self._lanes[owner]:
            del self._lanes[owner]
