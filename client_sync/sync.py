"""Synchronizing: push what waits, pull what changed, do what the server directs, until nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from client_sync import recovery
from client_sync.copies import Copies, CopyLost
from client_sync.errors import TransferBroken, UpgradeNeeded, Wiped
from client_sync.exchange import (
    PROTOCOL,
    Exchanged,
    apply_response,
    exchange,
    is_current,
    next_request,
    nothing_waits,
    standing,
)
from client_sync.outbox import Outbox
from client_sync.remote_sync import RemoteSync
from client_sync.replica import Replica
from client_sync.replica_file import get_meta, is_recovering, set_meta
from client_sync.vectors import fetch_vectors
from scrubjay import v1
from scrubjay.feed import open_page
from scrubjay.memory import MemoryId
from scrubjay.wire import from_timestamp

MAX_ROUNDS = 10_000
"""A first load by pages of ten million memories; more is a server that never ends."""
MAX_RECOVERIES = 8
"""Directives followed within one call; a server that asks for more is at fault."""
VERIFIED_MICROS = 24 * 3600 * 1_000_000
"""How often the whole replica is compared with the server by digest, without being asked."""
MOST_NAMED = 1000
"""Changed memories that a report names."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a synchronization is. ``done`` of ``total`` are bytes while ``loading``, else changes so far
    and None."""

    loading: bool
    done: int
    total: int | None


@dataclass(slots=True)
class SyncReport:
    """What a synchronization did.

    ``pushed``: operations answered. ``pulled``: changes that came in. ``refused``: operations that went to
    the dead letters. ``conflicts``: operations that met another's edit. ``unsent``: operations that the
    server takes later. ``loaded``: whether everything was loaded anew. ``reoffered``: what a restored server
    got back. ``vectors``: embeddings that came in. ``to_forget``: whether bytes of what was taken back are
    still in the file, since somebody else was at work on it: the next ``synchronize`` overwrites them.
    ``changed``: memories that show something else now, some 1 000 at most.
    """

    pushed: int = 0
    pulled: int = 0
    refused: int = 0
    conflicts: int = 0
    unsent: int = 0
    loaded: bool = False
    forked: bool = False
    reoffered: int = 0
    vectors: int = 0
    to_forget: bool = False
    rounds: int = 0
    changed: set[MemoryId] = field(default_factory=set)

    def add(self, done: Exchanged) -> None:
        """Count what one exchange did."""
        self.pushed += done.pushed
        self.pulled += done.pulled
        self.refused += done.refused
        self.conflicts += done.conflicts
        if len(self.changed) < MOST_NAMED:
            self.changed |= done.shown


def synchronize(
    replica: Replica,
    remote: RemoteSync,
    *,
    progress: Callable[[Progress], None] | None = None,
    verify: bool = False,
    vectors: bool = False,
) -> SyncReport:
    """Exchange everything with the server. What was done before an error stays done.

    ``vectors`` fetches the embeddings that are missing too, for searching by meaning offline.
    ``verify`` compares the whole replica with the server by digest, and loads it anew where they differ;
    once a day that happens by itself. Raises what the remote raises, Wiped, UpgradeNeeded, TransferBroken.
    """
    report = SyncReport()
    with replica.syncing:
        replica.file.forget()  # what an earlier run, which was cut short, or a Watch left
        run = _Run(replica, remote, report, progress, verify)
        for _ in range(MAX_ROUNDS):
            report.rounds += 1
            if run.round():
                break
        if vectors:
            report.vectors = fetch_vectors(replica, remote)
        with replica.file.reading() as sql:
            report.unsent = Outbox(sql, replica.identity).unanswered_count()
        report.to_forget = not replica.file.forget()
    return report


class _Run:
    def __init__(
        self,
        replica: Replica,
        remote: RemoteSync,
        report: SyncReport,
        progress: Callable[[Progress], None] | None,
        verify: bool,
    ) -> None:
        self._replica = replica
        self._remote = remote
        self._report = report
        self._progress = progress
        self._verify = verify or self._verification_due()
        self._recoveries = 0
        self._met = False
        """Whether the server has seen in this run whose replica this is."""

    def _verification_due(self) -> bool:
        with self._replica.file.reading() as sql:
            cursor, verified_at = get_meta(sql, "cursor", ""), int(get_meta(sql, "verified_at", 0))
        return cursor != "" and self._replica.clock.now() - verified_at > VERIFIED_MICROS

    def round(self) -> bool:
        """One step; whether nothing is left to do."""
        if self._recovered():
            return False
        request = next_request(self._replica, verify=self._verify)
        response = exchange(self._replica, self._remote.sync, request)
        self._met = True
        if response.directive != v1.DIRECTIVE_OK:
            self._follow(response.directive, request)
            return False
        if response.more and not request.last_sync_at and not response.results:
            self._begin(partial(recovery.begin_reload, answered=request))
            return False
        try:
            done = apply_response(self._replica, request, response)
        except CopyLost:
            self._begin(recovery.begin_reload)
            return False
        self._report.add(done)
        if self._progress is not None:
            self._progress(Progress(False, self._report.pulled + self._report.pushed, None))
        return self._judge(done, response)

    def _judge(self, done: Exchanged, response: v1.SyncResponse) -> bool:
        if done.stale:
            return False
        if done.digest_differs:
            self._begin(recovery.begin_reload)
            return False
        if response.more:
            return False
        if response.digest:
            self._verify = False
        if done.retry and not done.pushed:
            self._recoveries += 1
            return self._recoveries > 1
        return nothing_waits(self._replica)

    def _follow(self, directive: v1.Directive.ValueType, request: v1.SyncRequest) -> None:
        if directive == v1.DIRECTIVE_FORK and not is_current(self._replica, request):
            return  # another process on the file sent a batch meanwhile
        if directive == v1.DIRECTIVE_FORK:
            self._report.forked = True
            self._begin(partial(recovery.begin_fork, answered=request))
        elif directive == v1.DIRECTIVE_EPOCH_CHANGED:
            self._begin(partial(recovery.begin_epoch, answered=request))
        elif directive == v1.DIRECTIVE_RESYNC:
            self._begin(partial(recovery.begin_reload, answered=request))
        elif directive == v1.DIRECTIVE_WIPE:
            self._replica.file.delete()
            raise Wiped("this device was told to delete its memories, and did; enrol it again to go on")
        else:
            raise UpgradeNeeded("the server asks for a newer version of this program; nothing was lost")

    def _begin(self, step: Callable[[Replica], None]) -> None:
        self._recoveries += 1
        if self._recoveries > MAX_RECOVERIES:
            raise TransferBroken("the server keeps asking to begin anew; nothing was lost, try again later")
        step(self._replica)

    def _recovered(self) -> bool:
        """Go on with what a directive began, perhaps in an earlier run; whether there was anything."""
        with self._replica.file.reading() as sql:
            cursor, forked, reload = (get_meta(sql, key) for key in ("reoffer_from", "forked", "reload"))
        pending = cursor is not None or forked or reload
        if pending and not self._met:
            self._meet()
        elif cursor is not None:
            self._report.reoffered += recovery.reoffer(self._replica, self._remote, cursor)
        elif forked:
            self._report.add(recovery.reconcile(self._replica, self._remote))
        elif reload:
            recovery.load(self._replica, self._remote, self._loading if self._progress else None)
            self._report.loaded = True
        else:
            return False
        return True

    def _meet(self) -> None:
        """Show the server whose replica this is and where it stands, before a recovery of an earlier run
        goes on: the calls that recover do not say. They would mix two clients' memories where the file is
        used with another's token, and load what a server has that was restored since."""
        with self._replica.file.reading() as sql:
            cursor = standing(sql)
        request = v1.SyncRequest(
            protocol=PROTOCOL,
            principal=self._replica.identity.principal,
            last_sync_at=cursor,
            max_bytes=1,
        )
        response = exchange(self._replica, self._remote.sync, request)
        self._met = True
        if response.directive != v1.DIRECTIVE_OK:
            self._follow(response.directive, request)

    def _loading(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(Progress(True, done, total))


def apply_watch(replica: Replica, response: v1.WatchResponse) -> SyncReport | None:
    """Take the changes that a Watch response carries; None where a whole ``synchronize`` is needed."""
    if response.more:
        return None
    with replica.syncing:
        try:
            return _apply_watch(replica, response)
        except CopyLost:
            recovery.begin_reload(replica)
            return None


def _apply_watch(replica: Replica, response: v1.WatchResponse) -> SyncReport | None:
    report = SyncReport()
    server_time = from_timestamp(response.server_time)
    with replica.file.transaction(durable=False) as sql:
        outbox = Outbox(sql, replica.identity)
        report.unsent = outbox.unanswered_count()
        recovering = is_recovering(sql)
        if not recovering and get_meta(sql, "cursor", "") != response.from_sync_at:
            echo = response.commit_stamp <= int(get_meta(sql, "position", 0))  # it came by another way
            return report if echo else None
        if recovering or outbox.sent():
            return None
        copies = Copies(sql, replica.identity, outbox)
        changes = open_page(response.page)
        copies.apply_page(changes)
        copies.take_applied(response.commit_stamp, server_time, more=response.more)
        copies.settle(server_time)
        set_meta(sql, cursor=response.last_sync_at, position=response.commit_stamp, synced_at=server_time)
        report.pulled, report.refused, report.changed = len(changes), copies.refused, copies.shown
        report.to_forget = bool(copies.retracted)
    return report
