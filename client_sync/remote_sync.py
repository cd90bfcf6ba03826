"""What synchronizing needs of a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from scrubjay import v1


class RemoteSync(Protocol):
    """SyncService as one device calls it. Every method raises ScrubjayError where the call fails."""

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        """One round trip."""

    def snapshot(self, request: v1.SnapshotRequest) -> Iterator[v1.SnapshotResponse]:
        """The parts of a snapshot file, until it is whole."""

    def watch(self, request: v1.WatchRequest) -> Iterator[v1.WatchResponse]:
        """Changes as they come, until the stream is cut."""

    def reconcile(self, request: v1.ReconcileRequest) -> v1.ReconcileResponse:
        """Which operations the server knows, and which buckets differ."""

    def reoffer(self, request: v1.ReofferRequest) -> v1.ReofferResponse:
        """Give back what a restored server lost."""

    def vectors(self, request: v1.VectorsRequest) -> v1.VectorsResponse:
        """Embeddings of memories."""
