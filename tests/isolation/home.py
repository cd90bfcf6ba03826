"""A tenant as its callers use it, and what is made anew for each call that uses it up."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message

from scrubjay import v1
from tests.isolation.known import Known
from tests.isolation.lines import RPCS, Came, call

SERVICE, ADMIN, PLATFORM, DEVICE, ENROLMENT = "service", "admin", "platform", "device", "enrolment"
"""Who calls: by the names of ``Known.keys``."""
ALICE = {"user_id": "alice"}
WEB = "web"
"""The client of a tenant's service key."""


@dataclass
class Home:
    """A living tenant. ``platform`` is a platform admin's key, ``made`` what is made once for all calls."""

    known: Known
    channel: grpc.Channel
    platform: str
    made: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def tenant(self) -> dict[str, str]:
        """Its id, as a request names it."""
        return {"tenant_id": self.known.tenant_id}

    def call(self, caller: str, name: str, request: Message, client_id: str = "") -> Came:
        """What comes of a request; an enrolment's code is a new one each time."""
        if caller == ENROLMENT:
            key = self.enrolment()
        elif caller == PLATFORM:
            key = self.platform
        else:
            key = self.known.keys[caller]
        return call(self.channel, key, RPCS[name], request, client_id)

    def memories(self, name: str, request: Message, client_id: str = "") -> Message:
        """The answer to the tenant's backend."""
        return self.call(SERVICE, f"MemoryService/{name}", request, client_id).only()

    def admin(self, name: str, request: Message) -> Message:
        """The answer to the tenant's admin."""
        return self.call(ADMIN, f"TenantAdminService/{name}", request).only()

    def govern(self, name: str, request: Message) -> Message:
        """The answer to a platform admin."""
        return self.call(PLATFORM, f"TenantAdminService/{name}", request).only()

    def sync(self, name: str, request: Message) -> Message:
        """The answer to the tenant's device."""
        return self.call(DEVICE, f"SyncService/{name}", request).only()

    # --- made anew --------------------------------------------------------------------------------

    def nobody(self) -> str:
        """A user that nobody knows yet."""
        return f"user-{next(self._numbers)}-{os.urandom(4).hex()}"

    def memory(self, user_id: str = "", **fields: object) -> v1.Memory:
        """A new memory, of a new user where none is named."""
        given = {"content": f"{self.known.canary} likes tea.", **fields}
        one = v1.Memory(user_id=user_id or self.nobody(), **given)
        added = self.memories("Add", v1.AddRequest(memories=[one], dedup=v1.DEDUP_OFF))
        assert isinstance(added, v1.AddResponse)
        return added.results[0].memory

    def enrolment(self, user_id: str = "alice", client_id: str = "") -> str:
        """A new code that lets one device in."""
        asked = v1.CreateEnrolmentRequest(**self.tenant, user_id=user_id, client_id=client_id)
        made = self.govern("CreateEnrolment", asked)
        assert isinstance(made, v1.CreateEnrolmentResponse)
        return made.enrolment_code

    def device(self, user_id: str = "", client_id: str = "") -> v1.RegisterDeviceResponse:
        """A new device, of a new user where none is named."""
        code = self.enrolment(user_id or self.nobody(), client_id)
        asked = v1.RegisterDeviceRequest(installation_id=os.urandom(16), display_name=self.known.canary)
        made = call(self.channel, code, RPCS["SyncService/RegisterDevice"], asked).only()
        assert isinstance(made, v1.RegisterDeviceResponse)
        return made

    def key(self, role: v1.Role.ValueType = v1.ROLE_READER, **fields: object) -> v1.CreateApiKeyResponse:
        """A new key."""
        asked = v1.CreateApiKeyRequest(**self.tenant, role=role, display_name=self.known.canary, **fields)
        made = self.govern("CreateApiKey", asked)
        assert isinstance(made, v1.CreateApiKeyResponse)
        return made

    def spare_tenant(self) -> str:
        """The id of a new tenant, which nobody has a key of."""
        tenant_id = f"spare-{os.urandom(6).hex()}"
        self.govern("CreateTenant", v1.CreateTenantRequest(tenant_id=tenant_id))
        return tenant_id
