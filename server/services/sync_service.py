"""The door of SyncService: a device's subject, client and scopes come from its token alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from scrubjay import v1
from scrubjay.errors import CursorInvalid, InvalidField, PrincipalMismatch, Unavailable
from scrubjay.feed import MAX_PAGE_BYTES, PACKED_FROM_BYTES, pack, seal_page
from scrubjay.memory import Micros, Subject, Viewer, id_bytes
from scrubjay.operation import OperationId
from scrubjay.wire import to_timestamp
from server.cursor import Cursors
from server.ending import Ending
from server.feed import Position, at_head
from server.ingest.author import Author, server_replica
from server.ingest.batch import MOST_AHEAD_MILLIS, Sender
from server.ingest.offers import Offered
from server.ingest.operations import Merged
from server.ingest.uploads import Arrived, Upload, arrive
from server.providers.embedder import TextKind
from server.providers.embedders import Embedders
from server.pull import Pull, Pulled
from server.router import Router, tenant_of
from server.services.downloading import Downloads
from server.services.offers import read_offers
from server.services.requests import fitting
from server.services.uploads import (
    read_counts_after,
    read_digests,
    read_operation_ids,
    read_upload,
    read_vector_keys,
)
from server.services.watching import MAX_INLINE_BYTES, watch
from server.shard import Shard
from server.snapshots import Snapshots
from server.store.memory_store import StreamKey
from server.store.vector_codec import SCALE_BYTES, encode_vectors
from tenants.tenant import Caller, Role, Tenant, principal

_PATH = "/scrubjay.v1.SyncService/"
_DEVICE = frozenset({Role.DEVICE})
ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {f"{_PATH}{rpc}": _DEVICE for rpc in ("Snapshot", "Watch", "Reconcile", "Reoffer", "Vectors")}
    | {
        f"{_PATH}RegisterDevice": frozenset({Role.ENROLMENT}),
        f"{_PATH}RefreshToken": frozenset({Role.DEVICE, Role.EXPIRED_DEVICE}),
        f"{_PATH}Sync": frozenset({Role.DEVICE, Role.REVOKED_DEVICE}),
    }
)
"""Who may call what. A revoked device that calls Sync is told to delete what it holds."""

_PACKED_FROM_RESULTS = 100
"""Results are some 14 bytes each; fewer gain nothing from being compressed."""
PROTOCOL = 1
"""The oldest protocol that is spoken."""


class Registration(Protocol):
    """Makes devices and their tokens."""

    def register_device(self, request: v1.RegisterDeviceRequest, caller: Caller) -> v1.RegisterDeviceResponse:
        """A device of the enrolment that is the caller's credential."""

    def refresh_token(self, request: v1.RefreshTokenRequest, caller: Caller) -> v1.RefreshTokenResponse:
        """The next token of the device."""

    def note_wipe(self, caller: Caller) -> None:
        """Note that a revoked device is told to delete what it holds."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device's calls go: its tenant's shard, its subject's stream, and who looks."""

    tenant: Tenant
    shard: Shard
    key: StreamKey
    subject: Subject
    viewer: Viewer

    @property
    def principal(self) -> bytes:
        """Names tenant, subject and client."""
        return principal(self.tenant.incarnation, self.subject, self.viewer.client_id)


class SyncService:
    """Answers SyncService's RPCs. ``clock`` gives microseconds since 1970."""

    def __init__(
        self,
        router: Router,
        embedders: Embedders,
        secret: bytes,
        clock: Callable[[], Micros],
        registration: Registration,
        snapshots: Snapshots,
    ) -> None:
        self._router = router
        self._embedders = embedders
        self._cursors = Cursors(secret)
        self._clock = clock
        self._registration = registration
        self._downloads = Downloads(snapshots, secret)

    def register_device(self, request: v1.RegisterDeviceRequest, caller: Caller) -> v1.RegisterDeviceResponse:
        """A device of the enrolment that is the caller's credential."""
        return self._registration.register_device(request, caller)

    def refresh_token(self, request: v1.RefreshTokenRequest, caller: Caller) -> v1.RefreshTokenResponse:
        """The next token of the device."""
        return self._registration.refresh_token(request, caller)

    def place(self, caller: Caller) -> Place:
        """Where the device's calls go."""
        tenant, device = tenant_of(caller), caller.device
        if device is None:
            raise ValueError("a caller that is no device reached SyncService")
        return Place(
            tenant,
            self._router.shard(tenant),
            StreamKey(tenant.incarnation, device.subject.key),
            device.subject,
            Viewer(caller.client_id, device.scopes),
        )

    def watch(self, request: v1.WatchRequest, caller: Caller, ending: Ending) -> Iterator[v1.WatchResponse]:
        """Changes as they come, until the stream ends."""
        place = self.place(caller)
        cursor = self._cursors.read(place.key, place.viewer.client_id, request.last_sync_at)
        pull = Pull(place.key, place.subject, place.viewer, cursor, MAX_INLINE_BYTES)
        return watch(place.shard, pull, request.last_sync_at, self._cursors, self._clock, ending)

    def snapshot(
        self, request: v1.SnapshotRequest, caller: Caller, ending: Ending
    ) -> Iterator[v1.SnapshotResponse]:
        """Everything that the device may see, as a file in chunks."""
        place = self.place(caller)
        return self._downloads.responses(place.shard, place.key, place.subject, place.viewer, request, ending)

    # --- Sync -------------------------------------------------------------------------------------

    def sync(self, request: v1.SyncRequest, caller: Caller) -> v1.SyncResponse:
        """Take what the replica sends up, then send down what changed."""
        now = self._clock()
        place = self.place(caller)
        if request.principal and request.principal != place.principal:
            raise PrincipalMismatch
        if caller.role is Role.REVOKED_DEVICE:
            self._registration.note_wipe(caller)
            return self._directed(v1.DIRECTIVE_WIPE)
        if request.protocol < PROTOCOL:
            return self._directed(v1.DIRECTIVE_UPGRADE)
        upload = read_upload(request, now)
        pull = self._pull(request, place)
        if upload is None or upload.empty:
            return self._answer(request, place, place.shard.pull(pull, upload), [])
        merged = self._take(request, place, pull, upload, caller, now)
        if not isinstance(merged, Merged):
            return self._directed(merged)
        return self._answer(request, place, place.shard.pull(pull, own=merged.own), merged.results)

    def _pull(self, request: v1.SyncRequest, place: Place) -> Pull:
        return Pull(
            place.key,
            place.subject,
            place.viewer,
            self._cursors.read(place.key, place.viewer.client_id, request.last_sync_at),
            min(request.max_bytes or MAX_PAGE_BYTES, MAX_PAGE_BYTES),
            request.include_digest,
            read_counts_after(request),
        )

    def _take(
        self,
        request: v1.SyncRequest,
        place: Place,
        pull: Pull,
        upload: Upload,
        caller: Caller,
        now: Micros,
    ) -> Merged | v1.Directive.ValueType:
        arrived = arrive(upload, place.viewer.client_id, place.subject)
        saying = [one.operation_id for one in arrived if one.content is not None]
        known = place.shard.known_operations(pull, upload, saying)
        if isinstance(known, int):
            return known
        arrived = self._read(place.tenant, arrived, known)
        sender = Sender(
            place.viewer, _author(caller, upload, request.spell), upload.replica_id, place.subject
        )
        merged = place.shard.take(place.key, place.tenant.space, sender, upload, arrived, now)
        return v1.DIRECTIVE_FORK if merged is None else merged

    def _read(self, tenant: Tenant, arrived: list[Arrived], known: Container[OperationId]) -> list[Arrived]:
        """The operations with what is read of the contents that they write, and those contents' vectors, but
        for those that are ``known``. Without the model, they have none."""
        texts = {
            n: text
            for n, one in enumerate(arrived)
            if (text := one.content) is not None and one.operation_id not in known
        }
        if not texts:
            return arrived
        try:
            vectors = self._vectors_of(tenant, list(texts.values()))
        except Unavailable:
            return arrived
        made = dict(zip(texts, vectors, strict=True))
        return [one.read(made[n]) if n in made else one for n, one in enumerate(arrived)]

    def _vectors_of(self, tenant: Tenant, texts: Sequence[str]) -> list[bytes]:
        return encode_vectors(self._embedders.of(tenant).embed(texts, TextKind.DOCUMENT))

    def _answer(
        self,
        request: v1.SyncRequest,
        place: Place,
        pulled: Pulled | v1.Directive.ValueType,
        results: Sequence[v1.OperationResult],
    ) -> v1.SyncResponse:
        if isinstance(pulled, Pulled):
            response = self._page(place, pulled)
        elif results:  # what was taken is answered first; the next call gets the directive
            response = v1.SyncResponse(last_sync_at=request.last_sync_at, more=True)
        else:
            return self._directed(pulled)
        response.directive = v1.DIRECTIVE_OK
        response.server_time.CopyFrom(to_timestamp(self._clock()))
        if request.accept_packed_results and len(results) >= _PACKED_FROM_RESULTS:
            response.packed_results = pack(v1.Results(results=results))
        else:
            response.results.extend(results)
        return response

    def _page(self, place: Place, pulled: Pulled) -> v1.SyncResponse:
        position = pulled.page.position
        response = v1.SyncResponse(
            last_sync_at=self._cursors.text(place.key, place.viewer.client_id, position),
            commit_stamp=position.stamp,
            more=pulled.page.more,
            digest=pulled.digest,
            counts=[
                v1.AccessCount(
                    memory_id=id_bytes(one.memory_id),
                    count=one.count,
                    last_access_at=to_timestamp(one.last_access_at),
                )
                for one in pulled.counts
            ],
            counts_after=pulled.counts_after,
        )
        page = seal_page(pulled.page.changes)
        if page.ByteSize() < PACKED_FROM_BYTES:
            response.page.CopyFrom(page)
        else:
            response.packed_page = pack(page)
        return response

    # --- what sync does seldom --------------------------------------------------------------------

    def reconcile(self, request: v1.ReconcileRequest, caller: Caller) -> v1.ReconcileResponse:
        """Which operations the server knows, and which buckets differ."""
        place = self.place(caller)
        ids = read_operation_ids(request)
        theirs = read_digests(request)
        cursor = self._cursors.read(place.key, place.viewer.client_id, request.last_sync_at)
        known, head, ours = place.shard.reconcile(place.key, place.viewer, ids, include_digests=bool(theirs))
        nothing = v1.OperationResult()
        behind = head is not None and cursor != at_head(head)
        return v1.ReconcileResponse(
            results=[v1.OperationResult.FromString(known[i]) if i in known else nothing for i in ids],
            differing_buckets=[n for n, digest in enumerate(ours) if digest != theirs[n]],
            behind=behind,
        )

    def reoffer(self, request: v1.ReofferRequest, caller: Caller) -> v1.ReofferResponse:
        """Join what a replica of an earlier epoch still holds."""
        now, place = self._clock(), self.place(caller)
        cursor = self._cursors.read(place.key, place.viewer.client_id, request.last_sync_at)
        head = place.shard.head(place.key)
        if not isinstance(cursor, Position) or cursor.stamp == 0:
            raise CursorInvalid
        if head is not None and cursor.epoch == head.epoch:
            raise InvalidField.of(
                "last_sync_at", "is of the epoch that stands; only what an earlier one held is taken"
            )
        offered = read_offers(request, place.subject, now // 1000 + MOST_AHEAD_MILLIS)
        replica = server_replica(place.tenant.incarnation)
        author = Author(caller.client_id, replica, caller.key_id, caller.role.name)
        sender = Sender(place.viewer, author, replica, place.subject)
        offered = self._offered(place, offered)
        count = place.shard.reoffer(place.key, place.tenant.space, sender, offered, now)
        return v1.ReofferResponse(taken_count=count)

    def _offered(self, place: Place, offered: Sequence[Offered]) -> list[Offered]:
        """What is offered, with the vectors of contents that the server does not have so."""
        ids = [one.memory_id for one in offered]
        standing = place.shard.content_stamps(place.tenant.incarnation, ids)
        texts = {
            n: one.state.memory.content
            for n, one in enumerate(offered)
            if one.state is not None and standing.get(one.memory_id) != one.state.stamps["content"]
        }
        if not texts:
            return list(offered)
        made = dict(zip(texts, self._vectors_of(place.tenant, list(texts.values())), strict=True))
        return [replace(one, vector=made.get(n)) for n, one in enumerate(offered)]

    def vectors(self, request: v1.VectorsRequest, caller: Caller) -> v1.VectorsResponse:
        """The embeddings of memories, as they are stored."""
        place = self.place(caller)
        asked = read_vector_keys(request)
        found = place.shard.vectors(
            place.key, place.tenant.space, place.viewer, [memory_id for memory_id, _ in asked]
        )
        vectors = [
            v1.Vector(key=key, code=code[SCALE_BYTES:] + code[:SCALE_BYTES])
            for key, (memory_id, stamp) in zip(request.keys, asked, strict=True)
            if memory_id in found
            for content_stamp, code in [found[memory_id]]
            if content_stamp.pack() == stamp
        ]
        count = fitting(len(vector.code) for vector in vectors)
        return v1.VectorsResponse(space=place.tenant.space, vectors=vectors[:count])

    def _directed(self, directive: v1.Directive.ValueType) -> v1.SyncResponse:
        return v1.SyncResponse(directive=directive, server_time=to_timestamp(self._clock()))


def _author(caller: Caller, upload: Upload, spell: int) -> Author:
    return Author(
        caller.client_id,
        upload.replica_id,
        caller.key_id,
        caller.role.name,
        f"{upload.replica_id.hex()[:8]}-{spell}",
    )
