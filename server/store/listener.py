"""What other server processes commit, heard at once: PostgreSQL's NOTIFY, sent inside each commit.

A connection that breaks is opened again, and whatever was told meanwhile is lost: ``missed`` says so.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import text

from scrubjay.errors import StorageUnavailable
from scrubjay.stamp import CommitStamp
from server.store.rows import StreamHead, StreamKey
from server.store.transaction import Transaction
from tenants import database
from tenants.tenant import Incarnation

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
"""Between attempts to reach a database that is away; each one waits twice as long as the one before."""

_TELL = text("SELECT pg_notify('scrubjay_heads', head) FROM unnest(CAST(:heads AS text[])) AS head")
_LISTEN = "LISTEN scrubjay_heads"
_logger = logging.getLogger(__name__)


def tell(transaction: Transaction, heads: Mapping[StreamKey, StreamHead]) -> None:
    """Let every listener hear of these heads once the transaction is committed."""
    told = [f"{key.incarnation}|{key.stream}|{head.head}" for key, head in heads.items()]
    transaction.all(_TELL, {"heads": told})


class HeadListener:
    """Hears of every commit to a PostgreSQL database in a thread of its own, until ``close``.

    ``heard`` is called with a stream and its head, ``missed`` where any stream may have moved unheard:
    once at the beginning and after each connection that broke. Neither may wait.
    """

    def __init__(
        self,
        url: str,
        heard: Callable[[StreamKey, CommitStamp], object],
        missed: Callable[[], object],
    ) -> None:
        self._engine = database.open_engine(url, connections=1)
        self._errors: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        self._heard = heard
        self._missed = missed
        self._closing = threading.Event()
        self._waker, self._woken = socket.socketpair()
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._thread = threading.Thread(target=self._run, name="scrubjay-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Disconnect and end the thread. May be called again."""
        if not self._closing.is_set():
            self._closing.set()
            self._waker.send(b"\0")
        self._thread.join()
        self._waker.close()
        self._woken.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._listen()
            except (self._errors, StorageUnavailable) as error:
                _logger.warning("no commits of other servers are heard of", exc_info=error)
            finally:
                self._engine.dispose()
            self._closing.wait(self._wait_seconds)
            self._wait_seconds = min(self._wait_seconds * 2, LONGEST_WAIT_SECONDS)

    def _listen(self) -> None:
        """Hear what is told until the connection breaks, which raises, or the listener closes."""
        pooled = self._engine.raw_connection()
        try:
            connection: Any = pooled.driver_connection
            connection.autocommit = True
            connection.execute(_LISTEN)
            self._wait_seconds = FIRST_WAIT_SECONDS
            self._missed()
            with selectors.DefaultSelector() as readable:
                readable.register(connection.fileno(), selectors.EVENT_READ)
                readable.register(self._woken, selectors.EVENT_READ)
                while not self._closing.is_set():
                    for notice in connection.notifies(timeout=0):
                        self._heard(*_head(notice.payload))
                    readable.select()
        finally:
            pooled.invalidate()
            pooled.close()


def _head(told: str) -> tuple[StreamKey, CommitStamp]:
    incarnation, rest = told.split("|", 1)
    stream, head = rest.rsplit("|", 1)
    return StreamKey(Incarnation(incarnation), stream), CommitStamp(int(head))
