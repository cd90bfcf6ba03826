"""Cursors: ``last_sync_at``, a place in one stream's feed as text that only the server can write.

The text begins with a readable time and ends with a MAC that binds it to tenant, subject, client and
epoch:

    2026-11-30T08:00:00.000Z.0000.<epoch>.<mac>                       a pull that came to its end
    <stamp>.<base>.<epoch>.<mac>                                      one under way
    <stamp>.<base>.<began>.<epoch>.<mac>                              a first one under way
"""

from __future__ import annotations

import base64
import hmac
import re

from scrubjay import v1
from scrubjay.errors import CursorAhead, CursorInvalid
from scrubjay.memory import ClientId, Micros, parse_time
from scrubjay.stamp import COUNTER_BITS, CommitStamp, parse_time_text, time_text
from server.feed import BEGINNING, Position
from server.store.memory_store import StreamHead, StreamKey

SAFETY_WINDOW_MICROS = 5 * 60 * 1_000_000
"""Longer than any transaction stays open, and than clocks of servers differ."""

_MAC_BYTES = 16
_TIME = r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z\.[0-9a-f]{4}"
_CURSOR = re.compile(
    rf"({_TIME})(?:\.({_TIME}))?(?:\.({_TIME}))?\.(0|[1-9][0-9]{{0,18}})\.([A-Za-z0-9_-]{{22}})"
)


class Cursors:
    """Makes and reads cursors; each holds for one client of one stream."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def text(self, key: StreamKey, client_id: ClientId, position: Position) -> str:
        """The position as text; empty for the beginning."""
        if position.stamp == 0:
            return ""
        times = [position.stamp]
        if position.under_way:
            times += [position.base, position.began] if position.base == 0 else [position.base]
        parts = [*map(time_text, times), str(position.epoch), self._mac(key, client_id, position)]
        return ".".join(parts)

    def read(self, key: StreamKey, client_id: ClientId, text: str) -> Position | Micros:
        """The inverse of ``text``; a simple client's plain time as Micros.

        CursorInvalid for other text, and for a cursor of another stream or client. Its epoch may be any.
        """
        if not text:
            return BEGINNING
        match = _CURSOR.fullmatch(text)
        if match is None:
            time = parse_time(text)
            if time is None:
                raise CursorInvalid
            return time
        position = _position(*match.groups())
        expected = self._mac(key, client_id, position)
        if not hmac.compare_digest(expected, match[5]) or self.text(key, client_id, position) != text:
            raise CursorInvalid
        return position

    def _mac(self, key: StreamKey, client_id: ClientId, position: Position) -> str:
        numbers = (position.epoch, position.stamp, position.base, position.began)
        bound = "\0".join(("cursor", key.incarnation, key.stream, client_id, *map(str, numbers)))
        mac = hmac.digest(self._secret, bound.encode(), "sha256")[:_MAC_BYTES]
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def placed(cursor: Position | Micros, head: StreamHead | None) -> Position | v1.Directive.ValueType:
    """The position that a cursor stands for in the stream, or what its reader must do first.

    A simple client's time lies a safety window earlier than it says, since rows that were stamped before
    it may have been committed after it. CursorAhead where the stream went back in time.
    """
    if not isinstance(cursor, Position):
        return _simple(cursor, head)
    if cursor.stamp == 0:
        return BEGINNING
    if head is None or cursor.epoch != head.epoch:
        return v1.DIRECTIVE_EPOCH_CHANGED
    if cursor.stamp > head.head:
        raise CursorAhead
    return v1.DIRECTIVE_RESYNC if cursor.forgotten(head.horizon) else cursor


def _simple(time: Micros, head: StreamHead | None) -> Position | v1.Directive.ValueType:
    if head is None:
        return BEGINNING
    millis = max(0, (time - SAFETY_WINDOW_MICROS) // 1000)
    stamp = min(CommitStamp(millis << COUNTER_BITS), head.head)
    position = Position(stamp, stamp, head.epoch)
    return v1.DIRECTIVE_RESYNC if position.forgotten(head.horizon) else position


def _position(stamp: str, base: str | None, began: str | None, epoch: str, _mac: str) -> Position:
    try:
        at = CommitStamp(parse_time_text(stamp))
        return Position(
            at,
            at if base is None else CommitStamp(parse_time_text(base)),
            int(epoch),
            CommitStamp(0 if began is None else parse_time_text(began)),
        )
    except ValueError:
        raise CursorInvalid from None
