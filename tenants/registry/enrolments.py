"""Enrolments over SQL: codes that let one device in, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, RowMapping, delete, insert, select

from scrubjay.errors import InvalidField
from scrubjay.memory import ClientId, JsonValue, Micros, Subject
from tenants.credential_cache import Credential
from tenants.credentials import (
    KEY_ID_BYTES,
    SECRET_BYTES,
    derive_secret,
    key_digest,
    new_code,
    new_key_id,
    same_digest,
)
from tenants.registry import rows
from tenants.registry.audit import AuditLog
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.tables import enrolments
from tenants.tenant import Caller, Incarnation, Role

DEFAULT_LIFE_MICROS = 3600 * 1_000_000
"""Long enough to walk to the other device, too short for a code left in a chat to matter."""
MAX_LIFE_MICROS = 30 * 24 * 3600 * 1_000_000
"""A device that is sent by post arrives; a code forgotten in a mailbox does not wait for a finder."""


@dataclass(frozen=True, slots=True)
class NewEnrolment:
    """An enrolment that was just made. ``code`` is the whole code and is stored nowhere."""

    client_id: ClientId
    expires_at: Micros
    code: str = field(repr=False)


class Enrolments:
    """The enrolments of a catalogue, as its Registry opens them."""

    def __init__(
        self, engine: Engine, *, pepper: bytes, entropy: Callable[[int], bytes], audit: AuditLog
    ) -> None:
        self._engine = engine
        self._pepper = pepper
        self._entropy = entropy
        self._audit = audit

    def create_enrolment(
        self,
        tenant_id: str,
        subject: Subject,
        *,
        now: Micros,
        scopes: tuple[str, ...] = (),
        client_id: str = "",
        display_name: str = "",
        expires_at: Micros | None = None,
        request: RequestKey | None = None,
    ) -> NewEnrolment:
        """A code for one device of this subject, within ``scopes``; without any, within all.

        ``client_id`` defaults to the enrolment's own id, ``expires_at`` to ``DEFAULT_LIFE_MICROS`` from
        now. A repeat of ``request`` gives the same code again, as a repeat gives a key. Raises
        TenantNotFound, TenantNotActive for a deleted one, InvalidField for a time that has passed or lies
        beyond ``MAX_LIFE_MICROS``, RequestIdReused.
        """

        def create(connection: Connection) -> Answer:
            ends = _end(expires_at, now)
            tenant = rows.read_usable_tenant(connection, tenant_id)
            connection.execute(delete(enrolments).where(_IS_UNUSED, enrolments.c.expires_at <= now))
            enrolment_id = new_key_id(self._entropy(KEY_ID_BYTES))
            seed = self._entropy(SECRET_BYTES)
            row = {
                "enrolment_id": enrolment_id,
                "incarnation": tenant.incarnation,
                "digest": key_digest(self._pepper, self._code(enrolment_id, seed)),
                "client_id": client_id or enrolment_id,
                **rows.subject_columns(subject, scopes),
                "display_name": display_name,
                "expires_at": ends,
            }
            connection.execute(insert(enrolments).values(row))
            kept = {name: row[name] for name in ("enrolment_id", "client_id", "expires_at")}
            return {**kept, "seed": seed.hex()}

        rest: list[JsonValue] = [subject.key, list(scopes), client_id, display_name, expires_at]
        asked = Asked("create_enrolment", tenant_id, rest, now, request)
        with self._engine.begin() as connection:
            answer = once(connection, self._audit, asked, create)
        code = self._code(answer["enrolment_id"], bytes.fromhex(answer["seed"]))
        return NewEnrolment(ClientId(answer["client_id"]), Micros(answer["expires_at"]), code)

    def read_credential(self, enrolment_id: str, digest: bytes, now: Micros) -> Credential | None:
        """Who calls with a code of this digest: None where it is unknown, or has ended before it was used.

        A code that was used still names its caller, whose answer may have been lost.
        """
        with self._engine.begin() as connection:
            row = read_enrolment(connection, enrolment_id)
            if row is None or not same_digest(row["digest"], digest) or has_ended(row, now):
                return None
            tenant = rows.tenant_of_life(connection, Incarnation(row["incarnation"]))
        caller = Caller(Role.ENROLMENT, enrolment_id, ClientId(row["client_id"]), tenant)
        return Credential(caller, expires_at=None)

    def _code(self, enrolment_id: str, seed: bytes) -> str:
        return new_code(
            enrolment_id, derive_secret(self._pepper, seed, "secret of an enrolment", enrolment_id)
        )


_IS_UNUSED = enrolments.c.device_id.is_(None)


def read_enrolment(connection: Connection, enrolment_id: str) -> RowMapping | None:
    """The row of an enrolment; nobody else uses it before the transaction ends."""
    found = select(enrolments).where(enrolments.c.enrolment_id == enrolment_id).with_for_update()
    return connection.execute(found).mappings().first()


def has_ended(row: RowMapping, now: Micros) -> bool:
    """Whether an enrolment's row lets no device in any more, if none has used it."""
    return row["device_id"] is None and bool(now >= row["expires_at"])


def _end(expires_at: Micros | None, now: Micros) -> Micros:
    if expires_at is None:
        return Micros(now + DEFAULT_LIFE_MICROS)
    if expires_at <= now:
        raise InvalidField.of("expires_at", "has passed; give a later time, or none for an hour")
    if expires_at > now + MAX_LIFE_MICROS:
        raise InvalidField.of("expires_at", "lies more than 30 days ahead; give an earlier time")
    return expires_at
