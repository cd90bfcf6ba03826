"""Recent messages: the last ones of a scope, kept for the model that reads the next ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Insert, Table, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from scrubjay.memory import ClientId, Micros
from server.store.rows import StreamKey
from server.store.tables import recent_messages
from server.store.transaction import Transaction

KEPT = 10
"""Messages of one scope and client."""


@dataclass(frozen=True, slots=True)
class RecentMessage:
    """One of them, as far as it is kept; ``private`` where what was learnt of it was."""

    role: str
    text: str
    at: Micros
    private: bool


class RecentReading:
    """What can be read of recent messages; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def recent_messages(self, key: StreamKey, scope: str, client_id: ClientId) -> list[RecentMessage]:
        """What the client said last in a scope of the stream, oldest first."""
        row = self._transaction.first(_READ, _place(key, scope, client_id))
        return [] if row is None else [RecentMessage(**one) for one in json.loads(row[0])]


class RecentWriting(RecentReading):
    """What a unit may write of recent messages of a stream that it named; a part of ``Writing``."""

    def __init__(self, transaction: Transaction) -> None:
        RecentReading.__init__(self, transaction)
        self._save_recent = _SAVE[transaction.dialect_name]

    def keep_recent(
        self, key: StreamKey, scope: str, client_id: ClientId, messages: Sequence[RecentMessage]
    ) -> None:
        """Remember the last ``KEPT`` of what is kept and of these."""
        kept = [*self.recent_messages(key, scope, client_id), *messages][-KEPT:]
        text = json.dumps([asdict(one) for one in kept], ensure_ascii=False, separators=(",", ":"))
        self._transaction.run(self._save_recent, {**_place(key, scope, client_id), "messages": text})

    def forget_recent(self, key: StreamKey) -> None:
        """Forget all of the stream: they may hold what was deleted."""
        self._transaction.run(_FORGET, {"of_incarnation": key.incarnation, "of_stream": key.stream})


def _place(key: StreamKey, scope: str, client_id: ClientId) -> dict[str, Any]:
    return {
        "incarnation": key.incarnation,
        "stream": key.stream,
        "scope": scope,
        "client_id": client_id,
    }


def _save(insert: Callable[[Table], Any]) -> Insert:
    save = insert(recent_messages)
    statement: Insert = save.on_conflict_do_update(
        index_elements=list(recent_messages.primary_key), set_={"messages": save.excluded.messages}
    )
    return statement


_READ = select(recent_messages.c.messages).where(
    *(recent_messages.c[name] == bindparam(name) for name in ("incarnation", "stream", "scope", "client_id"))
)
_FORGET = delete(recent_messages).where(
    recent_messages.c.incarnation == bindparam("of_incarnation"),
    recent_messages.c.stream == bindparam("of_stream"),
)
_SAVE = {"sqlite": _save(sqlite.insert), "postgresql": _save(postgresql.insert)}
