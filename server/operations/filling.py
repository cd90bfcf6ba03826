"""Filling a space: every memory of a tenant that has no vector of it gets one, round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from scrubjay.stamp import CommitStamp
from server.providers.embedder import Embedder, TextKind
from server.shard import Shard
from server.store.memory_store import StreamKey
from server.store.vector_codec import encode_vectors
from server.store.vector_reading import Unembedded
from tenants.tenant import Incarnation

AT_ONCE = 64
"""Texts: models are no faster with more, and one commit stores them."""
_NOTHING, _ENDLESS = CommitStamp(0), CommitStamp(2**62)

Make = Callable[[Sequence[str]], list[bytes]]
"""Encoded vectors of the space for texts of memories."""


def making(embedder: Embedder) -> Make:
    """Encoded vectors of texts of memories, made by the embedder."""

    def make(texts: Sequence[str]) -> list[bytes]:
        return encode_vectors(embedder.embed(texts, TextKind.DOCUMENT))

    return make


class Filling:
    """One tenant's vectors of one space, made by ``make``. The first round looks at everything, later ones at
    the streams that were written to since."""

    def __init__(self, shard: Shard, incarnation: Incarnation, space: str, make: Make) -> None:
        self._shard = shard
        self._incarnation = incarnation
        self._space = space
        self.make = make
        self._seen: Mapping[str, CommitStamp] | None = None
        self._together = -1

    def round(self, report: Callable[[int], object] = lambda _count: None) -> int:
        """Embed what has no vector now; how many there were. ``report`` hears of each page how many."""
        together = self._shard.heads_together(self._incarnation)
        if together == self._together:
            return 0
        heads = self._shard.heads(self._incarnation)
        count = 0
        for page in self._everything(heads) if self._seen is None else self._written(heads, self._seen):
            self._fill(page)
            count += len(page)
            report(len(page))
        self._seen, self._together = heads, together
        return count

    def stream(self, key: StreamKey) -> int:
        """Embed what has no vector in one stream; how many there were."""
        return sum(map(self._fill, self._of(key, _NOTHING, _ENDLESS)))

    def _everything(self, heads: Mapping[str, CommitStamp]) -> Iterator[Sequence[Unembedded]]:
        after = "", _NOTHING
        while page := self._shard.unembedded(self._incarnation, self._space, after, AT_ONCE):
            mine = [one for one in page if one.commit_stamp <= heads.get(one.stream, _NOTHING)]
            if mine:
                yield mine
            last = page[-1]
            # What is written meanwhile is the next round's: a stream that grows as fast would have no end.
            after = last.stream, last.commit_stamp if last in mine else _ENDLESS

    def _written(
        self, heads: Mapping[str, CommitStamp], seen: Mapping[str, CommitStamp]
    ) -> Iterator[Sequence[Unembedded]]:
        for stream, head in heads.items():
            if head > (before := seen.get(stream, _NOTHING)):
                yield from self._of(StreamKey(self._incarnation, stream), before, head)

    def _of(self, key: StreamKey, after: CommitStamp, until: CommitStamp) -> Iterator[Sequence[Unembedded]]:
        while page := self._shard.unembedded_of(key, self._space, after, AT_ONCE):
            mine = [one for one in page if one.commit_stamp <= until]
            if mine:
                yield mine
            if len(mine) < len(page):
                return
            after = page[-1].commit_stamp

    def _fill(self, page: Sequence[Unembedded]) -> int:
        vectors = self.make([one.content for one in page])
        self._shard.put_vectors(self._incarnation, self._space, list(zip(page, vectors, strict=True)))
        return len(page)
