"""A repeated mutation gets the first answer: it, its answer and its audit event are one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, delete, select, update

from scrubjay.errors import RequestIdReused
from scrubjay.memory import JsonValue, Micros, canonical_json
from tenants.audit import OK, REPEATED, Act
from tenants.registry.audit import AuditLog
from tenants.registry.tables import insert_new, requests, tenants

KEPT_MICROS = 24 * 3600 * 1_000_000
"""A repeat is known for a day; longer, and the answers would outlive the reason to retry."""

Answer: TypeAlias = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Who asks for a mutation, and what makes it repeatable: a ``request_id``, one among that caller's own.

    An empty one makes nothing repeatable. ``scope`` is the incarnation of the caller's tenant, empty for
    platform admins, so that one tenant's request ids never meet another's. ``actor`` is the caller's key.
    """

    request_id: str
    scope: str = ""
    actor: str = ""
    role: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A mutation: all that is asked for, by whom and when.

    ``method`` is the RPC's, in snake case; ``rest`` is what is asked of the tenant beside it. ``detail`` says
    in the audit log what the method does not, without content.
    """

    method: str
    tenant_id: str | None
    rest: Sequence[JsonValue]
    now: Micros
    request: RequestKey | None
    detail: str = ""

    @property
    def digest(self) -> bytes:
        """Of all that is asked for."""
        return hashlib.sha256(canonical_json([self.method, self.tenant_id, *self.rest]).encode()).digest()


def once(
    connection: Connection, audit: AuditLog, asked: Asked, work: Callable[[Connection], Answer]
) -> Answer:
    """The answer of ``work``, or the one it gave when this request came first; either is in the audit log.

    Without a request id, every call works anew. Raises RequestIdReused where the id came with another body.
    """
    answer, outcome = _answer(connection, asked, work)
    audit.append(connection, _act(asked, _incarnation(connection, asked.tenant_id), answer, outcome))
    return answer


def _answer(connection: Connection, asked: Asked, work: Callable[[Connection], Answer]) -> tuple[Answer, str]:
    request = asked.request
    if request is None or not request.request_id:
        return work(connection), OK
    connection.execute(delete(requests).where(requests.c.created_at <= asked.now - KEPT_MICROS))
    row = {
        "scope": request.scope,
        "request_id": request.request_id,
        "digest": asked.digest,
        "answer": "",
        "created_at": asked.now,
        "tenant_id": asked.tenant_id,
    }
    if not insert_new(connection, requests, row):
        return _first_answer(connection, request, asked.digest), REPEATED
    answer = work(connection)
    connection.execute(update(requests).where(*_is(request)).values(answer=json.dumps(answer)))
    return answer, OK


def _act(asked: Asked, incarnation: str, answer: Answer, outcome: str) -> Act:
    request = asked.request or RequestKey("")
    return Act(
        at=asked.now,
        actor=request.actor,
        role=request.role,
        tenant_id=asked.tenant_id or "",
        incarnation=incarnation,
        method="".join(word.title() for word in asked.method.split("_")),
        resource=_resource(answer),
        outcome=outcome,
        detail=asked.detail,
    )


def _resource(answer: Answer) -> str:
    """What of the tenant was touched, by what the answer names."""
    keys = [f"keys/{answer[name]['key_id']}" for name in ("old", "api_key") if name in answer]
    devices = [f"devices/{answer['device']['device_id']}"] if "device" in answer else []
    enrolments = [f"enrolments/{answer['enrolment_id']}"] if "enrolment_id" in answer else []
    operations = [f"operations/{answer['operation_id']}"] if "operation_id" in answer else []
    return " ".join((*keys, *devices, *enrolments, *operations))


def _incarnation(connection: Connection, tenant_id: str | None) -> str:
    found = select(tenants.c.incarnation).where(tenants.c.tenant_id == tenant_id)
    return connection.execute(found).scalar() or ""


def _first_answer(connection: Connection, request: RequestKey, digest: bytes) -> Answer:
    first = connection.execute(select(requests.c.digest, requests.c.answer).where(*_is(request))).one()
    if first.digest != digest:
        raise RequestIdReused(request.request_id)
    answer: Answer = json.loads(first.answer)
    return answer


def _is(request: RequestKey) -> tuple[Any, ...]:
    return requests.c.scope == request.scope, requests.c.request_id == request.request_id
