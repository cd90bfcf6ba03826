"""What recent credentials turned into, so that a call costs no database read for its key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from scrubjay.memory import Micros
from tenants.tenant import Caller, Incarnation

_MICROS_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that exists and is not revoked: who calls with it, and until when."""

    caller: Caller
    expires_at: Micros | None

    def is_valid(self, now: Micros) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True, slots=True)
class _Entry:
    credential: Credential | None
    read_at: Micros


class _Recent:
    """The latest entries, each served for a while after it was read."""

    def __init__(self, capacity: int, seconds: float) -> None:
        self._capacity = capacity
        self._micros = int(seconds * _MICROS_PER_SECOND)
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    def get(self, digest: bytes, now: Micros) -> _Entry | None:
        entry = self._entries.get(digest)
        if entry is None or not 0 <= now - entry.read_at < self._micros:
            return None
        self._entries.move_to_end(digest)
        return entry

    def put(self, digest: bytes, entry: _Entry) -> None:
        self._entries[digest] = entry
        self._entries.move_to_end(digest)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        self._entries.pop(digest, None)

    def forget_of(self, incarnation: Incarnation) -> None:
        theirs = [digest for digest, entry in self._entries.items() if _is_of(entry.credential, incarnation)]
        for digest in theirs:
            del self._entries[digest]


def _is_of(credential: Credential | None, incarnation: Incarnation) -> bool:
    tenant = None if credential is None else credential.caller.tenant
    return tenant is not None and tenant.incarnation == incarnation


class CredentialCache:
    """Credentials by key digest, safe for many threads. The digest is the HMAC, never the key.

    What another server revoked or changed shows when an entry has aged ``seconds``, what this one did at
    once. Keys that no row answers for are kept apart, so that a flood of made-up keys cannot push the good
    ones out.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        seconds: float = 30,
        unknown_capacity: int = 1_000,
        unknown_seconds: float = 5,
    ) -> None:
        self._lock = threading.Lock()
        self._known = _Recent(capacity, seconds)
        self._unknown = _Recent(unknown_capacity, unknown_seconds)
        self._forgotten = 0

    def get(self, digest: bytes, now: Micros) -> tuple[bool, Credential | None]:
        """Whether the answer is here, and the answer: None for a key that is no credential."""
        with self._lock:
            entry = self._known.get(digest, now) or self._unknown.get(digest, now)
        return (False, None) if entry is None else (True, entry.credential)

    def moment(self) -> int:
        """To be taken before a row is read and given to ``put`` with what was read."""
        with self._lock:
            return self._forgotten

    def put(self, digest: bytes, credential: Credential | None, now: Micros, moment: int) -> None:
        """Keep what was read; nothing if a key was revoked meanwhile, for it may be this one."""
        entry = _Entry(credential, now)
        with self._lock:
            if moment == self._forgotten:
                (self._unknown if credential is None else self._known).put(digest, entry)

    def forget(self, digest: bytes) -> None:
        """A key was revoked: its next use is read from the database."""
        with self._lock:
            self._forgotten += 1
            self._known.forget(digest)

    def forget_tenant(self, incarnation: Incarnation) -> None:
        """A tenant was changed: all that its credentials turned into is read again."""
        with self._lock:
            self._forgotten += 1
            self._known.forget_of(incarnation)
