"""What one Sync brings down, read in one transaction: a page, and beside it a digest and access counts."""

from __future__ import annotations

from dataclasses import dataclass

from scrubjay import v1
from scrubjay.feed import digest
from scrubjay.memory import Micros, Subject, Viewer
from scrubjay.stamp import CommitStamp
from server.cursor import placed
from server.feed import NOTHING_OWN, FeedPage, Own, Position, digests, read_page
from server.ingest.counts import counts_after
from server.ingest.uploads import Upload, answered_before
from server.store.memory_store import Reading, StreamKey
from server.store.replicas import AccessCount


@dataclass(frozen=True, slots=True)
class Pull:
    """What a viewer asks for: from where on, how much, and what beside the page.

    ``counts_after`` is None where no counts are asked for.
    """

    key: StreamKey
    subject: Subject
    viewer: Viewer
    cursor: Position | Micros
    max_bytes: int
    include_digest: bool = False
    counts_after: CommitStamp | None = None


@dataclass(frozen=True, slots=True)
class Pulled:
    """The page; the digest, empty where it was not asked for or there is more; the counts."""

    page: FeedPage
    digest: bytes
    counts: list[AccessCount]
    counts_after: CommitStamp


def standing(reading: Reading, pull: Pull, upload: Upload | None) -> Position | v1.Directive.ValueType:
    """The position that the pull begins at, or what its replica must do first. Raises CursorAhead."""
    position = placed(pull.cursor, reading.head(pull.key))
    if upload is not None and isinstance(position, Position):
        mark = reading.replica(pull.key, upload.replica_id)
        if answered_before(upload, mark, pull.viewer.client_id) is None:
            return v1.DIRECTIVE_FORK
    return position


def read_pull(
    reading: Reading, pull: Pull, upload: Upload | None = None, own: Own = NOTHING_OWN
) -> Pulled | v1.Directive.ValueType:
    """What the pull brings, or what its replica must do first. Raises CursorAhead."""
    position = standing(reading, pull, upload)
    if not isinstance(position, Position):
        return position
    page = read_page(
        reading, pull.key, pull.subject, pull.viewer, position, max_bytes=pull.max_bytes, own=own
    )
    all_digest = b""
    if pull.include_digest and not page.more:
        all_digest = digest(digests(reading, pull.key, pull.viewer))
    if pull.counts_after is None:
        return Pulled(page, all_digest, [], CommitStamp(0))
    counts, after = counts_after(reading, pull.key, pull.viewer, pull.counts_after)
    return Pulled(page, all_digest, counts, after)
