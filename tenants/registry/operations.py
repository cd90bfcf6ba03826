"""Long operations on tenants over SQL. Who works on one holds its lease, under a fencing number that every
taking raises: whoever lost the lease can write nothing more of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, delete, insert, select, update

from scrubjay.errors import OperationEnded, OperationNotFound, OperationUnderWay, TenantNotActive
from scrubjay.memory import JsonValue, Micros, canonical_json, new_memory_id
from tenants.operation import Kind, OperationState, TenantOperation
from tenants.registry import rows
from tenants.registry.audit import AuditLog
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.tables import operations
from tenants.tenant import Incarnation, Tenant, TenantState

KEPT_MICROS = 30 * 24 * 3600 * 1_000_000
"""How long an operation is known after its end: what an operator does is asked about a month later."""
USABLE = frozenset({TenantState.ACTIVE, TenantState.SUSPENDED})


class LeaseLost(Exception):
    """Another server has the operation: nothing more of it may be written here."""


class Operations:
    """The long operations of a catalogue, as its Registry opens them."""

    def __init__(self, engine: Engine, *, entropy: Callable[[int], bytes], audit: AuditLog) -> None:
        self._engine = engine
        self._entropy = entropy
        self._audit = audit

    # --- for those who ask --------------------------------------------------------------------------

    def begin(
        self,
        kind: Kind,
        tenant_id: str,
        asked: Mapping[str, JsonValue],
        *,
        now: Micros,
        request: RequestKey,
        states: Collection[TenantState] = USABLE,
        fits: Callable[[Tenant], None] = lambda _: None,
    ) -> TenantOperation:
        """Begin an operation on a tenant, which has it for itself until the operation ends.

        ``fits`` raises where the tenant as it is now is not one for it. Raises TenantNotFound,
        TenantNotActive where it is in none of the ``states``, OperationUnderWay, RequestIdReused.
        """

        def made(connection: Connection) -> Answer:
            tenant = rows.read_tenant(connection, tenant_id, locked=True)
            check_state(tenant, states)
            fits(tenant)
            target = tenant.incarnation
            return self._insert(connection, kind, target, tenant, asked, now, request)

        return self._once(_method(kind), tenant_id, asked, now, request, made)

    def begin_on_shard(
        self, kind: Kind, shard: str, asked: Mapping[str, JsonValue], *, now: Micros, request: RequestKey
    ) -> TenantOperation:
        """The same on a shard. Raises OperationUnderWay, RequestIdReused."""

        def made(connection: Connection) -> Answer:
            return self._insert(connection, kind, f"shard/{shard}", None, asked, now, request)

        return self._once(_method(kind), None, asked, now, request, made)

    def get(self, operation_id: str, incarnation: Incarnation | None = None) -> TenantOperation:
        """An operation, of this life of a tenant or of any. Raises OperationNotFound."""
        ours = () if incarnation is None else (operations.c.incarnation == incarnation,)
        with self._engine.begin() as connection:
            return _read(connection, operation_id, *ours)

    def list_operations(
        self,
        limit: int,
        before: str = "",
        *,
        tenant_id: str = "",
        incarnation: Incarnation | None = None,
        open_only: bool = False,
    ) -> list[TenantOperation]:
        """At most ``limit``, newest first, older than the operation ``before``: all, a tenant's, a life's."""
        page = select(operations).order_by(operations.c.operation_id.desc()).limit(limit)
        if before:
            page = page.where(operations.c.operation_id < before)
        if tenant_id:
            page = page.where(operations.c.tenant_id == tenant_id)
        if incarnation is not None:
            page = page.where(operations.c.incarnation == incarnation)
        if open_only:
            page = page.where(_IS_OPEN)
        with self._engine.begin() as connection:
            return [_operation(row) for row in connection.execute(page).mappings()]

    def under_way(self, incarnation: Incarnation) -> TenantOperation | None:
        """The operation that has the tenant for itself, if any."""
        with self._engine.begin() as connection:
            return _open_of(connection, incarnation)

    def cancel(
        self,
        operation_id: str,
        incarnation: Incarnation | None,
        *,
        now: Micros,
        request: RequestKey,
    ) -> TenantOperation:
        """Have an operation taken back: who works on it hears of it within seconds.

        Raises OperationNotFound, OperationEnded where it has ended or can't be taken back any more,
        RequestIdReused.
        """
        tenant_id = self.get(operation_id, incarnation).tenant_id or None

        def cancelled(connection: Connection) -> Answer:
            may = operations.c.operation_id == operation_id, _IS_OPEN, operations.c.cancellable
            changed = update(operations).where(*may).values(cancelling=True, updated_at=now)
            found = connection.execute(changed).rowcount
            operation = _read(connection, operation_id)
            if not found and operation.state is not OperationState.CANCELLED:
                raise OperationEnded(operation_id)
            return {"operation_id": operation_id}

        rest = {"operation_id": operation_id}
        return self._once("cancel_tenant_operation", tenant_id, rest, now, request, cancelled)

    # --- for those who work on them -----------------------------------------------------------------

    def release_all(self) -> None:
        """Give every lease back, for a catalogue that no other process has."""
        if self._engine.dialect.name == "sqlite":
            with self._engine.begin() as connection:
                connection.execute(update(operations).where(_IS_OPEN).values(lease_until=0))

    def take(self, now: Micros, until: Micros, without: Collection[str]) -> TenantOperation | None:
        """Take the oldest operation that nobody holds, but for those; None where there is none."""
        free = (operations.c.lease_until <= now, operations.c.operation_id.not_in(without))
        oldest = select(operations.c.operation_id).where(*free).order_by(operations.c.operation_id).limit(1)
        with self._engine.begin() as connection:
            operation_id = connection.execute(oldest).scalar()
            if operation_id is None:
                return None
            taken = {
                "state": OperationState.RUNNING,
                "fence": operations.c.fence + 1,
                "lease_until": until,
                "updated_at": now,
            }
            one = operations.c.operation_id == operation_id, operations.c.lease_until <= now
            if not connection.execute(update(operations).where(*one).values(taken)).rowcount:
                return None
            return _read(connection, operation_id)

    def write(
        self, held: TenantOperation, values: Mapping[str, Any], *, unless_cancelling: bool = False
    ) -> bool:
        """Write columns of an operation whose lease is held. LeaseLost where it is not.

        With ``unless_cancelling``, nothing is written and False is returned where it is to be taken back.
        """
        with self._engine.begin() as connection:
            mine = operations.c.operation_id == held.operation_id, operations.c.fence == held.fence, _IS_OPEN
            calm = (~operations.c.cancelling,) if unless_cancelling else ()
            if connection.execute(update(operations).where(*mine, *calm).values(values)).rowcount:
                return True
            found = connection.execute(select(operations.c.cancelling).where(*mine)).first()
        if found is None:
            raise LeaseLost(held.operation_id)
        return False

    def is_cancelling(self, operation_id: str) -> bool:
        """Whether it is to be taken back."""
        one = select(operations.c.cancelling).where(operations.c.operation_id == operation_id)
        with self._engine.begin() as connection:
            return bool(connection.execute(one).scalar())

    def collect(self, ended_until: Micros) -> int:
        """Forget those that ended no later; how many there were."""
        with self._engine.begin() as connection:
            return connection.execute(delete(operations).where(operations.c.ended_at <= ended_until)).rowcount

    # --- parts --------------------------------------------------------------------------------------

    def _once(
        self,
        method: str,
        tenant_id: str | None,
        rest: Mapping[str, JsonValue],
        now: Micros,
        request: RequestKey,
        work: Callable[[Connection], Answer],
    ) -> TenantOperation:
        asked = Asked(method, tenant_id, [dict(rest)], now, request)
        with self._engine.begin() as connection:
            answer = once(connection, self._audit, asked, work)
            return _read(connection, answer["operation_id"])

    def _insert(
        self,
        connection: Connection,
        kind: Kind,
        target: str,
        tenant: Tenant | None,
        asked: Mapping[str, JsonValue],
        now: Micros,
        request: RequestKey,
    ) -> Answer:
        check_alone(connection, target)
        operation_id = new_memory_id(now // 1000, self._entropy(10))
        row = {
            "operation_id": operation_id,
            "kind": kind.value,
            "target": target,
            "tenant_id": tenant.tenant_id if tenant else "",
            "incarnation": tenant.incarnation if tenant else "",
            "state": OperationState.PENDING,
            "asked": canonical_json(dict(asked)),
            "answer": b"",
            "error": b"",
            "actor": request.actor,
            "request_id": request.request_id,
            "created_at": now,
            "updated_at": now,
            "lease_until": 0,
        }
        connection.execute(insert(operations).values(row))
        return {"operation_id": operation_id}


def check_alone(connection: Connection, target: str) -> None:
    """Raise OperationUnderWay where an operation has the target for itself."""
    found = _open_of(connection, target)
    if found is not None:
        raise OperationUnderWay(found.kind, found.operation_id)


def check_state(tenant: Tenant, states: Collection[TenantState]) -> None:
    """Raise TenantNotActive where the tenant is in none of the ``states``."""
    if tenant.state not in states:
        allowed = " or ".join(sorted(state.name for state in states))
        raise TenantNotActive(
            f"the tenant {tenant.tenant_id!r} is {tenant.state.name}; only one that is {allowed} takes this",
            metadata={"tenant_id": tenant.tenant_id, "state": tenant.state.name},
        )


def _open_of(connection: Connection, target: str) -> TenantOperation | None:
    one = select(operations).where(operations.c.target == target, _IS_OPEN)
    row = connection.execute(one).mappings().first()
    return None if row is None else _operation(row)


def _read(connection: Connection, operation_id: str, *conditions: ColumnElement[bool]) -> TenantOperation:
    one = select(operations).where(operations.c.operation_id == operation_id, *conditions)
    row = connection.execute(one).mappings().first()
    if row is None:
        raise OperationNotFound(operation_id)
    return _operation(row)


def _operation(row: RowMapping) -> TenantOperation:
    values = {name: value for name, value in row.items() if name != "lease_until"}
    for name in ("asked", "notes"):
        values[name] = json.loads(values[name])
    for name in ("answer", "error"):
        values[name] = bytes(values[name])
    values["kind"], values["state"] = Kind(values["kind"]), OperationState(values["state"])
    return TenantOperation(**values)


def _method(kind: Kind) -> str:
    """The RPC in snake case: ``MoveTenant`` -> ``move_tenant``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind).lstrip("_")


# Only one that has not ended has a lease_until.
_IS_OPEN = operations.c.lease_until.is_not(None)
