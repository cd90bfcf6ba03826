"""A repeated mutation gets the first answer: it and its answer are one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, delete, select, update

from scrubjay.errors import RequestIdReused
from scrubjay.memory import JsonValue, Micros, canonical_json
from tenants.registry.tables import insert_new, requests

KEPT_MICROS = 24 * 3600 * 1_000_000
"""A repeat is known for a day; longer, and the answers would outlive the reason to retry."""

Answer: TypeAlias = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What makes a mutation repeatable: its caller's ``request_id``, one among that caller's own.

    ``scope`` is the incarnation of the caller's tenant, empty for platform admins, so that one tenant's
    request ids never meet another's.
    """

    request_id: str
    scope: str = ""


def once(
    connection: Connection,
    request: RequestKey | None,
    body: Sequence[JsonValue],
    now: Micros,
    work: Callable[[Connection], Answer],
) -> Answer:
    """The answer of ``work``, or the one it gave when this request came first.

    ``body`` is all that the request asks for: its method, the tenant it is about, and the rest. Without a
    request key, every call works anew. Raises RequestIdReused where the id came with another body.
    """
    if request is None:
        return work(connection)
    digest = hashlib.sha256(canonical_json(list(body)).encode()).digest()
    connection.execute(delete(requests).where(requests.c.created_at <= now - KEPT_MICROS))
    row = {"scope": request.scope, "request_id": request.request_id, "digest": digest}
    if not insert_new(connection, requests, {**row, "answer": "", "created_at": now, "tenant_id": body[1]}):
        return _first_answer(connection, request, digest)
    answer = work(connection)
    connection.execute(update(requests).where(*_is(request)).values(answer=json.dumps(answer)))
    return answer


def _first_answer(connection: Connection, request: RequestKey, digest: bytes) -> Answer:
    first = connection.execute(select(requests.c.digest, requests.c.answer).where(*_is(request))).one()
    if first.digest != digest:
        raise RequestIdReused(request.request_id)
    answer: Answer = json.loads(first.answer)
    return answer


def _is(request: RequestKey) -> tuple[Any, ...]:
    return requests.c.scope == request.scope, requests.c.request_id == request.request_id
