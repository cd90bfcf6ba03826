"""Bringing a device in, as its user does."""

from __future__ import annotations

from rpc.conftest import Serving
from scrubjay import v1


def enrolled(serving: Serving, client_id: str, **fields: object) -> tuple[v1.SyncServiceStub, str]:
    """A new device of alice's in the first tenant, and its id."""
    given = {"tenant_id": "dev", "user_id": "alice", "client_id": client_id, **fields}
    code = serving.admin.CreateEnrolment(v1.CreateEnrolmentRequest(**given)).enrolment_code
    stub = v1.SyncServiceStub(serving.open_channel(serving.app.address, code))
    made = stub.RegisterDevice(v1.RegisterDeviceRequest(installation_id=client_id.ljust(16).encode()))
    channel = serving.open_channel(serving.app.address, made.device_token)
    return v1.SyncServiceStub(channel), made.device_id
