"""What the catalogue does where a subject is exported or erased."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Table, delete, func, select, true, update

from scrubjay.memory import Micros, Subject
from tenants.audit import OK, Act
from tenants.credential_cache import CredentialCache
from tenants.database import compact
from tenants.registry import rows
from tenants.registry.audit import AuditLog
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.operations import check_alone
from tenants.registry.tables import devices, enrolments
from tenants.tenant import Caller, Device, Incarnation, Tenant


@dataclass(frozen=True, slots=True)
class AskedErasure:
    """That a subject is to be erased: when that was asked first, of which tenant, and what the catalogue
    deleted, by place."""

    tenant: Tenant
    asked_at: Micros
    swept: Mapping[str, int]


class Subjects:
    """The subjects of a catalogue's tenants, as its Registry opens them."""

    def __init__(self, engine: Engine, *, cache: CredentialCache, audit: AuditLog) -> None:
        self._engine = engine
        self._cache = cache
        self._audit = audit

    def erase_subject(
        self, tenant_id: str, subject: Subject, *, now: Micros, request: RequestKey
    ) -> AskedErasure:
        """End the subject's devices, which are told to delete what they hold, and delete its enrolments.

        Refused by this process when this returns, by others within the cache's seconds. Raises
        TenantNotFound, TenantNotActive where the tenant was deleted, OperationUnderWay, RequestIdReused.
        """

        def erase(connection: Connection) -> Answer:
            tenant = rows.read_usable_tenant(connection, tenant_id, locked=True)
            check_alone(connection, tenant.incarnation)
            ended = {"revoked_at": func.coalesce(devices.c.revoked_at, now), "wipe": true()}
            connection.execute(update(devices).where(*_of(devices, tenant, subject)).values(ended))
            count = connection.execute(delete(enrolments).where(*_of(enrolments, tenant, subject))).rowcount
            return {"incarnation": tenant.incarnation, "asked_at": now, "swept": {"enrolments": count}}

        asked = Asked("erase_subject", tenant_id, [subject.kind, subject.name], now, request)
        with self._engine.begin() as connection:
            answer = once(connection, self._audit, asked, erase)
            tenant = rows.tenant_of_life(connection, Incarnation(answer["incarnation"]))
        self._cache.forget_tenant(tenant.incarnation)
        compact(self._engine)
        return AskedErasure(tenant, Micros(answer["asked_at"]), answer["swept"])

    def export_subject(self, tenant_id: str, caller: Caller, *, now: Micros) -> Tenant:
        """The tenant whose subject is exported; that it is, is in the audit log.

        Raises TenantNotFound, TenantNotActive where the tenant was deleted.
        """
        with self._engine.begin() as connection:
            tenant = rows.read_usable_tenant(connection, tenant_id)
            self._note(connection, tenant, caller, "ExportSubject", now)
        return tenant

    def note_given(self, tenant: Tenant, caller: Caller, method: str, *, now: Micros) -> None:
        """Note in the audit log that content of the tenant was given."""
        with self._engine.begin() as connection:
            self._note(connection, tenant, caller, method, now)

    def _note(self, connection: Connection, tenant: Tenant, caller: Caller, method: str, now: Micros) -> None:
        act = Act(
            at=now,
            actor=caller.key_id,
            role=caller.role,
            tenant_id=tenant.tenant_id,
            incarnation=tenant.incarnation,
            method=method,
            resource="",
            outcome=OK,
        )
        self._audit.append(connection, act)

    def devices_of(self, tenant: Tenant, subject: Subject) -> list[Device]:
        """The subject's devices by id, revoked ones too."""
        found = select(devices).where(*_of(devices, tenant, subject)).order_by(devices.c.device_id)
        with self._engine.begin() as connection:
            named = [{**row, "tenant_id": tenant.tenant_id} for row in connection.execute(found).mappings()]
        return [rows.device(row) for row in named]


def _of(table: Table, tenant: Tenant, subject: Subject) -> tuple[Any, ...]:
    return (
        table.c.incarnation == tenant.incarnation,
        table.c.subject_kind == subject.kind,
        table.c.subject_name == subject.name,
    )
