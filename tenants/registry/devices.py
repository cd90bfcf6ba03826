"""Devices and their tokens over SQL.

A token lives an hour and is replaced by the next one, which only its holder can ask for. The answer may be
lost, so a token that asks again gets the same next one, as long as nobody has used that. Once it was used,
who still asks with a token before it holds a copy, or was copied from: the device is revoked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    RowMapping,
    Select,
    Update,
    delete,
    func,
    insert,
    select,
    update,
)

from scrubjay.errors import CredentialInvalid, DeviceNotFound, DeviceRevoked
from scrubjay.memory import ClientId, Micros
from tenants.audit import Act
from tenants.credential_cache import Credential, CredentialCache
from tenants.credentials import (
    KEY_ID_BYTES,
    SECRET_BYTES,
    derive_secret,
    key_digest,
    new_key_id,
    new_token,
    same_digest,
)
from tenants.registry import rows
from tenants.registry.audit import AuditLog
from tenants.registry.enrolments import has_ended, read_enrolment
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.stocks import check_room
from tenants.registry.tables import devices, enrolments
from tenants.tenant import Caller, Device, DeviceBinding, Incarnation, Role, Tenant

TOKEN_MICROS = 3600 * 1_000_000
"""What a copied token is good for without being noticed; a device in use asks for a new one once an hour."""

log = logging.getLogger("scrubjay.devices")


@dataclass(frozen=True, slots=True)
class DeviceToken:
    """A device with the token it is to use. ``token`` is the whole token and is stored nowhere."""

    device: Device
    expires_at: Micros
    token: str = field(repr=False)


class Rotation(Enum):
    """What becomes of a token that asks for the next one."""

    NEXT = auto()
    """It is the newest: there is a next one now."""
    AGAIN = auto()
    """It asked before and the answer seems lost: the same next one."""
    COPIED = auto()
    """A later one is in use, so somebody else has this one, or the later one."""


def rotation(asking: int, newest: int, confirmed: int) -> Rotation:
    """Whether the token of generation ``asking`` may have the next one.

    ``newest`` was given out last, ``confirmed`` is the latest that was used. A generation above the newest
    was given out before the catalogue was restored from a backup.
    """
    if asking >= newest:
        return Rotation.NEXT
    return Rotation.COPIED if asking < confirmed else Rotation.AGAIN


class Devices:
    """The devices of a catalogue, as its Registry opens them."""

    def __init__(
        self,
        engine: Engine,
        *,
        pepper: bytes,
        cache: CredentialCache,
        entropy: Callable[[int], bytes],
        audit: AuditLog,
    ) -> None:
        self._engine = engine
        self._pepper = pepper
        self._cache = cache
        self._entropy = entropy
        self._audit = audit

    # --- for devices ------------------------------------------------------------------------------

    def register_device(
        self, enrolment_id: str, installation_id: bytes, *, now: Micros, display_name: str = ""
    ) -> DeviceToken:
        """The device of this enrolment and installation, made where it is not there yet.

        ``installation_id`` has 16 bytes and is as secret as a token. ``display_name`` defaults to the
        enrolment's. A repeat gets the same device and token until the device has asked for its second
        token. Raises CredentialInvalid where the code has ended, or another installation has used it,
        DeviceRevoked, and QuotaExceeded, after which the code is as good as before.
        """
        with self._engine.begin() as connection:
            enrolment = read_enrolment(connection, enrolment_id)
            if enrolment is None or has_ended(enrolment, now):
                raise CredentialInvalid
            if enrolment["device_id"] is None:
                tenant = rows.tenant_of_life(connection, Incarnation(enrolment["incarnation"]))
                check_room(connection, tenant, "devices", now)
                row = self._new_device(connection, enrolment, installation_id, display_name, now)
            elif same_digest(enrolment["installation_id"], installation_id):
                row = _locked(connection, enrolment["device_id"])
            else:
                raise CredentialInvalid
            if row["revoked_at"] is not None:
                raise DeviceRevoked
            return self._issue(connection, row, {}, now)

    def refresh_token(self, device_id: str, generation: int, *, now: Micros) -> DeviceToken:
        """The next token of a device that holds the token of ``generation``, expired or not.

        Raises DeviceRevoked, also where that token shows that somebody has a copy: then, and for ever.
        """
        with self._engine.begin() as connection:
            row = _locked(connection, device_id)
            if row["revoked_at"] is not None:
                raise DeviceRevoked
            turn = rotation(generation, row["generation"], row["confirmed"])
            if turn is not Rotation.COPIED:
                values = _next(connection, row, generation) if turn is Rotation.NEXT else {}
                issued = self._issue(connection, row, values, now)
            else:
                connection.execute(_change(device_id).values(revoked_at=now))
                life = Incarnation(row["incarnation"])
                self._audit.append(connection, _copied(rows.tenant_of_life(connection, life), device_id, now))
        for digest in self._digests(row):
            self._cache.forget(digest)
        if turn is Rotation.COPIED:
            log.warning("an older token came back: the device is revoked", extra={"device_id": device_id})
            raise DeviceRevoked
        return issued

    def read_credential(
        self, device_id: str, generation: int, digest: bytes, now: Micros
    ) -> Credential | None:
        """Who calls with a token of this digest; None where it is unknown. Notes its first use."""
        with self._engine.begin() as connection:
            row = connection.execute(_select(device_id)).mappings().first()
            if row is None or not same_digest(self._digest(row, generation), digest):
                return None
            if row["confirmed"] < generation == row["generation"]:
                first_use = _change(device_id).where(devices.c.confirmed < generation)
                connection.execute(first_use.values(confirmed=generation))
            tenant = rows.tenant_of_life(connection, Incarnation(row["incarnation"]))
        role, expires_at = _standing(row, generation, now)
        binding = DeviceBinding(device_id, rows.subject(row), rows.scopes(row), generation)
        wiped = role is Role.REVOKED_DEVICE and row["wipe"]
        caller = Caller(role, device_id, ClientId(row["client_id"]), tenant, binding, wiped)
        return Credential(caller, expires_at)

    def note_wipe(self, device_id: str, *, now: Micros) -> None:
        """Note when a device was told for the first time to delete what it holds."""
        first = _change(device_id).where(devices.c.wipe_told_at.is_(None), devices.c.wipe)
        with self._engine.begin() as connection:
            connection.execute(first.values(wipe_told_at=now))

    # --- for admins -------------------------------------------------------------------------------

    def list_devices(self, tenant_id: str, limit: int, after: str = "") -> list[Device]:
        """At most ``limit`` devices with ids greater than ``after``, by id in byte order, revoked ones too.

        Raises TenantNotFound.
        """
        with self._engine.begin() as connection:
            tenant = rows.read_tenant(connection, tenant_id)
            page = select(devices).where(
                devices.c.incarnation == tenant.incarnation, devices.c.device_id > after
            )
            found = connection.execute(page.order_by(devices.c.device_id).limit(limit)).mappings()
            return [rows.device({**row, "tenant_id": tenant_id}) for row in found]

    def revoke_device(
        self,
        tenant_id: str,
        device_id: str,
        *,
        now: Micros,
        wipe: bool = False,
        request: RequestKey | None = None,
    ) -> Device:
        """End a device; with ``wipe`` it is told to delete what it holds, now or a later time.

        Refused by this process when this returns, by others within the cache's seconds. A device that was
        revoked before keeps its time, and the order to wipe. Raises TenantNotFound, DeviceNotFound,
        RequestIdReused.
        """

        def revoke(connection: Connection) -> Answer:
            tenant = rows.read_tenant(connection, tenant_id)
            ended = _change(device_id).where(devices.c.incarnation == tenant.incarnation)
            values: dict[str, Any] = {"revoked_at": func.coalesce(devices.c.revoked_at, now)}
            if wipe:
                values["wipe"] = True
            row = connection.execute(ended.values(values).returning(*devices.c)).mappings().first()
            if row is None:
                raise DeviceNotFound(device_id)
            return {
                "device": rows.kept_device({**row, "tenant_id": tenant_id}),
                "digests": [digest.hex() for digest in self._digests(row)],
            }

        detail = "wipe" if wipe else ""
        asked = Asked("revoke_device", tenant_id, [device_id, wipe], now, request, detail)
        with self._engine.begin() as connection:
            answer = once(connection, self._audit, asked, revoke)
        for digest in answer["digests"]:
            self._cache.forget(bytes.fromhex(digest))
        return rows.device(answer["device"])

    # --- parts ------------------------------------------------------------------------------------

    def _new_device(
        self,
        connection: Connection,
        enrolment: RowMapping,
        installation_id: bytes,
        display_name: str,
        now: Micros,
    ) -> RowMapping:
        """The row of the device that this enrolment lets in; the enrolment is used then."""
        device_id = new_key_id(self._entropy(KEY_ID_BYTES))
        bound = {name: enrolment[name] for name in _FROM_ENROLMENT}
        row = bound | {
            "device_id": device_id,
            "display_name": display_name or enrolment["display_name"],
            "seed": self._entropy(SECRET_BYTES),
            "generation": 1,
            "confirmed": 0,
            "expires_at": now + TOKEN_MICROS,
            "previous_expires_at": now,
            "created_at": now,
            "seen_at": now,
            "wipe": False,
        }
        used = update(enrolments).where(enrolments.c.enrolment_id == enrolment["enrolment_id"])
        connection.execute(used.values(device_id=device_id, installation_id=installation_id))
        return connection.execute(insert(devices).values(row).returning(*devices.c)).mappings().one()

    def _issue(
        self, connection: Connection, row: RowMapping, values: Mapping[str, Any], now: Micros
    ) -> DeviceToken:
        """The newest token of the device once its row has these values, good from now on."""
        given = {**values, "expires_at": now + TOKEN_MICROS, "seen_at": now}
        changed = _change(row["device_id"]).values(given).returning(*devices.c)
        row = connection.execute(changed).mappings().one()
        tenant = rows.tenant_of_life(connection, Incarnation(row["incarnation"]))
        device = rows.device({**row, "tenant_id": tenant.tenant_id})
        return DeviceToken(device, Micros(row["expires_at"]), self._token(row, row["generation"]))

    def _token(self, row: RowMapping, generation: int) -> str:
        names = ("token of a device", row["device_id"], str(generation))
        return new_token(row["device_id"], generation, derive_secret(self._pepper, row["seed"], *names))

    def _digest(self, row: RowMapping, generation: int) -> bytes:
        return key_digest(self._pepper, self._token(row, generation))

    def _digests(self, row: RowMapping) -> list[bytes]:
        """Of the tokens that may be in the cache: the newest, and the one before it."""
        return [self._digest(row, each) for each in (row["generation"], row["generation"] - 1) if each]


_FROM_ENROLMENT = ("incarnation", "client_id", "subject_kind", "subject_name", "scopes")


def _select(device_id: str) -> Select[Any]:
    return select(devices).where(devices.c.device_id == device_id)


def _change(device_id: str) -> Update:
    return update(devices).where(devices.c.device_id == device_id)


def _locked(connection: Connection, device_id: str) -> RowMapping:
    """A device's row, which nobody else changes before the transaction ends."""
    return connection.execute(_select(device_id).with_for_update()).mappings().one()


def _next(connection: Connection, row: RowMapping, generation: int) -> dict[str, Any]:
    """What a device's row holds once its token of ``generation`` got the next one, its expiry aside.

    Its enrolment is not needed any more: the device has shown that it holds its first token.
    """
    connection.execute(delete(enrolments).where(enrolments.c.device_id == row["device_id"]))
    return {
        "generation": generation + 1,
        "confirmed": generation,
        "previous_expires_at": row["expires_at"],
    }


def _copied(tenant: Tenant, device_id: str, now: Micros) -> Act:
    """A device that nobody revoked."""
    detail = "an older token came back"
    return Act.of_server(now, "RevokeDevice", tenant, resource=f"devices/{device_id}", detail=detail)


def _standing(row: RowMapping, generation: int, now: Micros) -> tuple[Role, Micros | None]:
    """What a device is by a token of ``generation``, and until when."""
    if row["revoked_at"] is not None:
        return Role.REVOKED_DEVICE, None
    ends = {row["generation"]: row["expires_at"], row["generation"] - 1: row["previous_expires_at"]}
    expires_at = ends.get(generation)
    if expires_at is None or now >= expires_at:
        return Role.EXPIRED_DEVICE, None
    return Role.DEVICE, Micros(expires_at)
