"""The short way of plain answers ends where the long way of all others does."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from client_sync import Replica, exchange
from client_sync.confirming import Answered
from client_sync.exchange import apply_response, bodies_of, next_request
from client_sync.identity import Identity
from client_sync.outbox import Outbox
from scrubjay import v1
from scrubjay.feed import read_state, seal_page
from scrubjay.memory import ClientId, MemoryId, Micros, Subject, id_text
from scrubjay.merge import create
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.wire import to_timestamp

PHONE = Identity(b"principa", ClientId("phone"), Subject("user", "alice"))
NOW = Micros(1_796_000_000_000_000)
AT = (NOW // 1000) << 16
LAPTOP = ReplicaId(b"a laptop's file.")
ROUNDS = 6

_COMPARED = {
    "beneath": "id, commit_stamp, message IS NULL, field_stamps",
    "outbox": "memory_id, kind, body, number, operation_id, result, commit_stamp",
    "graves": "id",
    "dead_letters": "memory_id, body, reason",
    "journal": "memory_id, origin, kind, outcome, changes",
    "meta": "key, iif(key = 'to_forget', NULL, value)",  # that one is drawn by SQLite
}


def played(path: Path, seed: int) -> tuple[Any, ...]:
    """What a file holds after rounds of writes and answers that are of every kind."""
    chance = random.Random(seed)
    with Replica.create(path, PHONE, wall=lambda: NOW, entropy=chance.randbytes) as replica:
        apply_response(replica, next_request(replica), response(chance, [], {}, 0))
        for number in range(1, ROUNDS):
            write(replica, chance)
            request = next_request(replica)
            write(replica, chance)  # while the answer is on its way
            known = {
                MemoryId(id_text(v1.Operation.FromString(each).memory_id)) for each in bodies_of(request)
            }
            page = {each: replica for each in sorted(known) if chance.random() < 0.15}
            apply_response(replica, request, response(chance, bodies_of(request), page, number))
        return held(replica)


def write(replica: Replica, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        replica.add(f"note {chance.random()}", tags=["new"] * chance.randint(0, 1))
    for memory in replica.list():
        choice = chance.random()
        if choice < 0.3:
            replica.update(memory.id, {f"tags.t{chance.randint(0, 2)}": chance.choice([True, None])})
        elif choice < 0.4:
            replica.update(memory.id, {"content": f"note {chance.random()}", "pinned": True})
        elif choice < 0.45:
            replica.delete(memory.id)


def response(
    chance: random.Random, bodies: list[bytes], told: dict[MemoryId, Replica], number: int
) -> v1.SyncResponse:
    """An answer to operations, most of them taken as they were made, and a page about ``told``."""
    begins, results = AT + number * 10_000, []
    for place, body in enumerate(bodies, start=1):
        result = v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED, commit_stamp=begins + place)
        fields = list(v1.Operation.FromString(body).fields)
        choice = chance.random()
        if choice < 0.08 and fields:
            result.registers.add(field=fields[0], outcome=v1.OUTCOME_SUPERSEDED)
        elif choice < 0.16:
            result.status, result.first_status = v1.OPERATION_STATUS_DUPLICATE, v1.OPERATION_STATUS_APPLIED
        elif choice < 0.24:
            result.status = chance.choice(OTHERWISE)
        results.append(result)
    reached = begins + chance.choice([len(bodies) // 2, len(bodies) + 1000])
    changes = [(each, CommitStamp(begins + 500 + n), edited(n)) for n, each in enumerate(told)]
    return v1.SyncResponse(
        directive=v1.DIRECTIVE_OK,
        results=results,
        page=seal_page([each for each in changes if each[1] <= reached]),
        last_sync_at=f"cursor {reached}",
        commit_stamp=reached,
        server_time=to_timestamp(NOW),
    )


OTHERWISE = (
    v1.OPERATION_STATUS_APPLIED_CONCURRENT,
    v1.OPERATION_STATUS_SUPERSEDED,
    v1.OPERATION_STATUS_REJECTED,
    v1.OPERATION_STATUS_NOT_VISIBLE,
)


def edited(number: int) -> v1.Change:
    """Another's change of a whole memory, or its end."""
    if number % 2:
        return v1.Change(kind=v1.CHANGE_KIND_DELETED)
    memory = v1.Memory(content=f"theirs {number}", owner_client_id="laptop", created_at=to_timestamp(NOW))
    value = read_state(memory.SerializeToString(), pack_field_stamps({})).memory
    stamps = pack_field_stamps(create(value, Stamp(AT + 7, LAPTOP)).stamps)
    return v1.Change(kind=v1.CHANGE_KIND_WHOLE, memory=memory, field_stamps=stamps)


def held(replica: Replica) -> tuple[Any, ...]:
    with replica.file.reading() as sql:
        rows = sql.execute("SELECT id, commit_stamp, created_at, message, field_stamps FROM rows ORDER BY id")
        shown = [(*row[:3], read_state(*row[3:])) for row in rows]
        rest = {
            table: sql.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()
            if "," in columns
            else sql.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()
            for table, columns in _COMPARED.items()
        }
    return shown, rest


@pytest.mark.parametrize("seed", range(12))
def test_the_short_way_ends_where_the_long_way_does(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortened = 0

    def counted(
        sql: sqlite3.Connection, outbox: Outbox, answered: list[Answered], *rest: Any
    ) -> list[Answered]:
        nonlocal shortened
        left = confirm(sql, outbox, answered, *rest)
        shortened += len(answered) - len(left)
        return left

    confirm = exchange.confirm
    monkeypatch.setattr(exchange, "confirm", counted)
    short = played(tmp_path / "short.db", seed)
    monkeypatch.setattr(exchange, "confirm", lambda _sql, _outbox, answered, *_: list(answered))
    assert short == played(tmp_path / "long.db", seed)
    assert shortened > 0
