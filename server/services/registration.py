"""How a device comes in and stays in: the part of SyncService that needs no shard."""

from __future__ import annotations

from collections.abc import Callable

from scrubjay import v1
from scrubjay.errors import FieldViolation, check
from scrubjay.memory import Micros
from scrubjay.validity import name_violation
from scrubjay.wire import to_timestamp
from server.router import tenant_of
from tenants.registry import Registry
from tenants.tenant import Caller, principal

INSTALLATION_ID_BYTES = 16


class Registration:
    """Devices and their tokens. Callers come authenticated, in the roles of these RPCs."""

    def __init__(self, registry: Registry, clock: Callable[[], Micros]) -> None:
        self._registry = registry
        self._clock = clock

    def register_device(self, request: v1.RegisterDeviceRequest, caller: Caller) -> v1.RegisterDeviceResponse:
        """Raises InvalidField, CredentialInvalid for a code that ended or was used, DeviceRevoked."""
        check(
            _installation_violation(request.installation_id),
            name_violation("display_name", request.display_name),
        )
        issued = self._registry.devices.register_device(
            caller.key_id, request.installation_id, now=self._clock(), display_name=request.display_name
        )
        device = issued.device
        return v1.RegisterDeviceResponse(
            device_id=device.device_id,
            client_id=device.client_id,
            device_token=issued.token,
            expires_at=to_timestamp(issued.expires_at),
            **{f"{device.subject.kind}_id": device.subject.name},
            scopes=device.scopes,
            principal=principal(tenant_of(caller).incarnation, device.subject, device.client_id),
        )

    def refresh_token(self, _request: v1.RefreshTokenRequest, caller: Caller) -> v1.RefreshTokenResponse:
        """Raises DeviceRevoked."""
        if caller.device is None:
            raise ValueError("a caller without a device reached RefreshToken")
        issued = self._registry.devices.refresh_token(
            caller.device.device_id, caller.device.generation, now=self._clock()
        )
        return v1.RefreshTokenResponse(device_token=issued.token, expires_at=to_timestamp(issued.expires_at))

    def note_wipe(self, caller: Caller) -> None:
        """Note that a revoked device is told to delete what it holds."""
        if caller.device is not None:
            self._registry.devices.note_wipe(caller.device.device_id, now=self._clock())


def _installation_violation(installation_id: bytes) -> FieldViolation | None:
    if len(installation_id) == INSTALLATION_ID_BYTES:
        return None
    return FieldViolation(
        "installation_id",
        f"has {len(installation_id)} bytes; send {INSTALLATION_ID_BYTES} random ones, "
        "made once with the installation",
    )
