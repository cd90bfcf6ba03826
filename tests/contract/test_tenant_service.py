"""The door of TenantAdminService: who may act on what, and what a valid request is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from scrubjay import v1
from scrubjay.errors import (
    ApiKeyNotFound,
    CredentialInvalid,
    DeviceNotFound,
    InvalidField,
    RequestIdReused,
    RoleNotAllowed,
    ScrubjayError,
    TenantExists,
    TenantNotActive,
    TenantNotFound,
)
from scrubjay.memory import ClientId, Micros
from scrubjay.status import to_status
from tenants.admin_parts import AdminParts
from tenants.database import migrate, open_engine
from tenants.forget_policy import ForgetPolicy, ForgetRule
from tenants.messages import tenant_message
from tenants.page_token import seal
from tenants.quotas import Quotas
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry, RequestKey, TenantChanges
from tenants.retention import Retention
from tenants.tenant import Caller, Role, TenantState
from tenants.tenant_service import ALLOWED, TenantAdminService
from tenants.write_settings import WriteSettings
from tests.no_subjects import NoSubjects

NOW = Micros(1_796_000_000_123_456)
SECRET = b"s" * 32
PLATFORM = Caller(Role.PLATFORM_ADMIN, "platform", ClientId("platform"), None)


@contextmanager
def opened_registry(url: str) -> Iterator[Registry]:
    engine = open_engine(url)
    migrate(engine, SCRIPTS, VERSION_TABLE)
    yield Registry(engine, pepper=b"p" * 32, shard_names=["shard-0"], space="lite-1/512")
    engine.dispose()


@pytest.fixture
def registry(database_url: str) -> Iterator[Registry]:
    with opened_registry(database_url) as registry:
        yield registry


@pytest.fixture(scope="module")
def service_with_acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantAdminService]:
    """For requests that change nothing, whatever the database."""
    with opened_registry(f"sqlite:///{tmp_path_factory.mktemp('catalogue') / 'catalogue.db'}") as registry:
        registry.create_tenant("acme", "Acme", now=NOW)
        yield TenantAdminService(AdminParts(registry, SECRET, lambda: NOW, NoSubjects()))


@pytest.fixture
def service(registry: Registry) -> TenantAdminService:
    return TenantAdminService(AdminParts(registry, SECRET, lambda: NOW, NoSubjects()))


@pytest.fixture
def acme_admin(registry: Registry) -> Caller:
    """An admin of the tenant acme, beside a tenant rival."""
    registry.create_tenant("rival", "Rival", now=NOW)
    acme = registry.create_tenant("acme", "Acme", now=NOW)
    return Caller(Role.TENANT_ADMIN, "admin", ClientId("admin"), acme)


def answer_bytes(error: ScrubjayError) -> bytes:
    return bytes(to_status(error).SerializeToString())


def key_request(**changes: Any) -> v1.CreateApiKeyRequest:
    return v1.CreateApiKeyRequest(**{"tenant_id": "acme", "role": v1.ROLE_SERVICE, **changes})


def update_request(*paths: str, request_id: str = "", **changes: Any) -> v1.UpdateTenantRequest:
    tenant = v1.Tenant(**{"tenant_id": "acme", **changes})
    return v1.UpdateTenantRequest(request_id=request_id, tenant=tenant, update_mask=FieldMask(paths=paths))


def policy(*rules: dict[str, Any]) -> v1.ForgetPolicy:
    return v1.ForgetPolicy(rules=[v1.ForgetRule(**rule) for rule in rules])


def quotas_request(**quotas: Any) -> v1.UpdateTenantRequest:
    return update_request("quotas", quotas=v1.Quotas(**quotas))


def retention_request(**days: int) -> v1.UpdateTenantRequest:
    return update_request("retention", retention=v1.Retention(**days))


def settings_request(**settings: Any) -> v1.UpdateTenantRequest:
    return update_request("write_settings", write_settings=v1.WriteSettings(**settings))


def rules_request(*rules: dict[str, Any]) -> v1.UpdateTenantRequest:
    return update_request("forget_policy", forget_policy=policy(*rules))


def enrolment_request(**changes: Any) -> v1.CreateEnrolmentRequest:
    return v1.CreateEnrolmentRequest(**{"tenant_id": "acme", "user_id": "alice", **changes})


# --- what works -----------------------------------------------------------------------------------


def test_a_tenant_is_made_read_and_listed(service: TenantAdminService) -> None:
    made = service.create_tenant(v1.CreateTenantRequest(tenant_id="acme"), PLATFORM).tenant
    assert (made.tenant_id, made.display_name) == ("acme", "acme")
    assert (made.state, made.shard, made.space) == (v1.TENANT_STATE_ACTIVE, "shard-0", "lite-1/512")
    assert made.created_at.ToMicroseconds() == NOW
    assert service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), PLATFORM).tenant == made
    assert list(service.list_tenants(v1.ListTenantsRequest(), PLATFORM).tenants) == [made]


def test_a_tenant_is_changed_by_the_fields_of_the_mask(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    rules = policy(
        {"category": "TASK", "unused_days": 30, "below_confidence": 0.25},
        {"scope": "work/älpha", "unused_days": 365},
    )
    before = service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), PLATFORM).tenant
    assert not before.HasField("forget_policy")
    changed = service.update_tenant(
        update_request("forget_policy", display_name="not named", forget_policy=rules), acme_admin
    ).tenant
    assert (changed.display_name, changed.forget_policy) == ("Acme", rules)
    assert service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), acme_admin).tenant == changed
    renamed = service.update_tenant(update_request("display_name", display_name="Acme Ltd"), PLATFORM).tenant
    assert (renamed.display_name, renamed.forget_policy) == ("Acme Ltd", rules)
    keep_all = update_request("forget_policy", forget_policy=policy())
    kept = service.update_tenant(keep_all, acme_admin).tenant
    assert (kept.HasField("forget_policy"), len(kept.forget_policy.rules)) == (True, 0)
    cleared = service.update_tenant(update_request("forget_policy", "display_name"), acme_admin).tenant
    assert (cleared.HasField("forget_policy"), cleared.display_name) == (False, "acme")
    before.display_name = "acme"
    assert cleared == before
    assert registry.get_tenant("rival").display_name == "Rival"


def test_how_a_tenant_writes_is_set_shown_and_cleared(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    prompts = {"custom_instructions": "Keep 猫.", "custom_reconcile_prompt": "x" * 8192}
    asked: dict[str, Any] = {"policy": v1.WRITE_POLICY_RAW, **prompts}
    key = registry.create_api_key("acme", Role.SERVICE, now=NOW).secret
    assert registry.authenticate(key, NOW).tenant == acme_admin.tenant
    changed = service.update_tenant(settings_request(**asked), acme_admin).tenant
    assert changed.write_settings == v1.WriteSettings(**asked)
    assert service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), PLATFORM).tenant == changed
    assert changed in service.list_tenants(v1.ListTenantsRequest(), PLATFORM).tenants
    caller = registry.authenticate(key, NOW)  # known a moment ago, and read again since the tenant changed
    assert caller.tenant is not None
    assert caller.tenant.write_settings == WriteSettings(v1.WRITE_POLICY_RAW, **prompts)
    service.update_tenant(update_request("display_name", display_name="Acme"), PLATFORM)
    assert registry.get_tenant("acme").write_settings == caller.tenant.write_settings
    cleared = service.update_tenant(update_request("write_settings"), PLATFORM).tenant
    assert cleared.write_settings == v1.WriteSettings()
    assert registry.get_tenant("acme").write_settings == WriteSettings()
    assert registry.get_tenant("rival").write_settings == WriteSettings()


def test_what_a_tenant_may_have_is_set_shown_and_cleared(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    stocks = {"memories": 10**15, "bytes": 1, "devices": 5, "api_keys": 7}
    asked = {**stocks, "calls_per_second": 0.25, "calls_per_second_per_key": 1e6}
    changed = service.update_tenant(quotas_request(**asked), PLATFORM).tenant
    assert changed.quotas == v1.Quotas(**asked)
    assert service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), acme_admin).tenant == changed
    assert registry.get_tenant("acme").quotas == Quotas(**asked)
    assert registry.get_tenant("rival").quotas == Quotas()
    assert service.update_tenant(quotas_request(), PLATFORM).tenant.quotas == v1.Quotas()


def test_how_long_a_tenants_past_is_kept_is_set_shown_and_cleared(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    changed = service.update_tenant(retention_request(history_days=365, tombstone_days=30), acme_admin).tenant
    assert changed.retention == v1.Retention(history_days=365, tombstone_days=30)
    assert service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), PLATFORM).tenant == changed
    assert [one.tenant_id for one in registry.retaining()] == ["acme"]
    registry.lives.suspend_tenant("acme", "", now=NOW)
    assert [one.retention for one in registry.retaining()] == [Retention(365, 30)]
    registry.lives.delete_tenant("acme", 0, now=NOW)
    assert registry.retaining() == []
    registry.lives.undelete_tenant("acme", now=NOW)
    assert service.update_tenant(retention_request(), PLATFORM).tenant.retention == v1.Retention()
    assert registry.retaining() == []


def test_a_repeated_change_gets_the_first_answer_and_changes_nothing(
    service: TenantAdminService, acme_admin: Caller
) -> None:
    request = update_request("display_name", request_id="r-1", display_name="first")
    first = service.update_tenant(request, acme_admin)
    service.update_tenant(update_request("display_name", display_name="second"), acme_admin)
    assert service.update_tenant(request, acme_admin) == first
    assert service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), PLATFORM).tenant.display_name == "second"
    request.update_mask.paths.append("forget_policy")
    with pytest.raises(RequestIdReused):
        service.update_tenant(request, acme_admin)


def test_a_key_is_made_used_and_revoked(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    expires_at = Timestamp(seconds=4_000_000_000)
    request = v1.CreateApiKeyRequest(
        tenant_id="acme", role=v1.ROLE_READER, display_name="Leser", client_id="desk", expires_at=expires_at
    )
    made = service.create_api_key(request, acme_admin)
    key = made.api_key
    assert (key.tenant_id, key.role, key.display_name, key.client_id) == (
        "acme",
        v1.ROLE_READER,
        "Leser",
        "desk",
    )
    assert key.expires_at == expires_at
    assert not key.HasField("revoked_at")
    assert registry.authenticate(made.secret, NOW).key_id == key.key_id

    revoke = v1.RevokeApiKeyRequest(tenant_id="acme", key_id=key.key_id)
    revoked = service.revoke_api_key(revoke, acme_admin).api_key
    assert revoked.revoked_at.ToMicroseconds() == NOW
    assert revoked.key_id == key.key_id


def test_a_rotated_key_is_good_until_its_overlap_is_over(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    request = key_request(display_name="site", client_id="web", across_subjects=True)
    old = service.create_api_key(request, acme_admin)
    assert registry.authenticate(old.secret, NOW).client_id == "web"
    rotate = v1.RotateApiKeyRequest(tenant_id="acme", key_id=old.api_key.key_id, request_id="r-1")
    rotated = service.rotate_api_key(rotate, acme_admin)
    assert service.rotate_api_key(rotate, acme_admin) == rotated
    end = NOW + 24 * 3600 * 1_000_000
    assert rotated.old_api_key.expires_at.ToMicroseconds() == end
    for secret in (old.secret, rotated.secret):
        caller = registry.authenticate(secret, Micros(end - 1))
        assert (caller.client_id, caller.role, caller.across_subjects) == ("web", Role.SERVICE, True)
    with pytest.raises(CredentialInvalid):
        registry.authenticate(old.secret, Micros(end))
    assert registry.authenticate(rotated.secret, Micros(end)).key_id == rotated.api_key.key_id
    assert not rotated.api_key.HasField("expires_at")
    assert rotated.api_key.display_name == "site"


def test_a_rotation_lengthens_no_life(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    ends = Timestamp(seconds=NOW // 1_000_000 + 60)
    old = service.create_api_key(key_request(expires_at=ends), acme_admin).api_key
    rotated = service.rotate_api_key(v1.RotateApiKeyRequest(tenant_id="acme", key_id=old.key_id), acme_admin)
    assert (rotated.api_key.expires_at, rotated.old_api_key.expires_at) == (ends, ends)
    at_once = v1.RotateApiKeyRequest(tenant_id="acme", key_id=rotated.api_key.key_id, overlap_seconds=0)
    service.rotate_api_key(at_once, acme_admin)
    with pytest.raises(CredentialInvalid):
        registry.authenticate(rotated.secret, NOW)
    revoked = service.create_api_key(key_request(), acme_admin).api_key
    service.revoke_api_key(v1.RevokeApiKeyRequest(tenant_id="acme", key_id=revoked.key_id), acme_admin)
    for key_id in (rotated.api_key.key_id, revoked.key_id):
        with pytest.raises(InvalidField, match="has ended"):
            service.rotate_api_key(v1.RotateApiKeyRequest(tenant_id="acme", key_id=key_id), acme_admin)


def test_a_platform_admins_key_is_rotated(service: TenantAdminService, registry: Registry) -> None:
    made = service.create_api_key(v1.CreateApiKeyRequest(role=v1.ROLE_PLATFORM_ADMIN), PLATFORM)
    rotated = service.rotate_api_key(v1.RotateApiKeyRequest(key_id=made.api_key.key_id), PLATFORM)
    assert registry.authenticate(rotated.secret, NOW).role is Role.PLATFORM_ADMIN


def test_a_platform_admin_makes_another_and_revokes_it(service: TenantAdminService) -> None:
    made = service.create_api_key(v1.CreateApiKeyRequest(role=v1.ROLE_PLATFORM_ADMIN), PLATFORM)
    assert (made.api_key.tenant_id, made.api_key.client_id) == ("", made.api_key.key_id)
    revoked = service.revoke_api_key(v1.RevokeApiKeyRequest(key_id=made.api_key.key_id), PLATFORM)
    assert revoked.api_key.HasField("revoked_at")


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_pages_join_to_the_whole_list(service: TenantAdminService, registry: Registry, size: int) -> None:
    for tenant_id in ("e", "a-1", "a", "c", "b9"):
        registry.create_tenant(tenant_id, "", now=NOW)
    found: list[str] = []
    token = ""
    while not found or token:
        page = service.list_tenants(v1.ListTenantsRequest(page_size=size, page_token=token), PLATFORM)
        assert len(page.tenants) <= size
        found += [tenant.tenant_id for tenant in page.tenants]
        token = page.next_page_token
    assert found == ["a", "a-1", "b9", "c", "e"]


def test_a_page_of_tenants_with_long_policies_fits_into_a_message(
    service: TenantAdminService, registry: Registry
) -> None:
    rules = tuple(ForgetRule("s" * 256, "c" * 256, 1, 0.5) for _ in range(32))
    changes = TenantChanges(frozenset({"forget_policy"}), forget_policy=ForgetPolicy(rules))
    made = [f"t{n:03}" for n in range(200)]
    for tenant_id in made:
        registry.create_tenant(tenant_id, "", now=NOW)
        registry.update_tenant(tenant_id, changes, now=NOW)
    first = service.list_tenants(v1.ListTenantsRequest(page_size=1000), PLATFORM)
    assert 1 < len(first.tenants) < 200
    assert first.ByteSize() < 4_000_000
    token = first.next_page_token
    rest = service.list_tenants(v1.ListTenantsRequest(page_size=1000, page_token=token), PLATFORM)
    assert [tenant.tenant_id for tenant in (*first.tenants, *rest.tenants)] == made
    assert not rest.next_page_token


def test_a_repeat_gets_the_first_answer_and_another_body_does_not(service: TenantAdminService) -> None:
    request = v1.CreateTenantRequest(request_id="r-1", tenant_id="acme")
    first = service.create_tenant(request, PLATFORM)
    assert service.create_tenant(request, PLATFORM) == first
    with pytest.raises(RequestIdReused):
        service.create_tenant(v1.CreateTenantRequest(request_id="r-1", tenant_id="other"), PLATFORM)
    key = v1.CreateApiKeyRequest(request_id="r-2", tenant_id="acme", role=v1.ROLE_SERVICE)
    assert service.create_api_key(key, PLATFORM) == service.create_api_key(key, PLATFORM)


def test_a_device_is_enrolled_listed_and_revoked(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    request = enrolment_request(scopes=["work"], client_id="desk", display_name="Büro", request_id="r-1")
    made = service.create_enrolment(request, acme_admin)
    assert service.create_enrolment(request, acme_admin) == made
    assert (made.client_id, made.expires_at.ToMicroseconds()) == ("desk", NOW + 3600 * 1_000_000)
    code = registry.authenticate(made.enrolment_code, NOW)
    issued = registry.devices.register_device(code.key_id, b"i" * 16, now=NOW)

    (device,) = service.list_devices(v1.ListDevicesRequest(tenant_id="acme"), acme_admin).devices
    assert (device.device_id, device.tenant_id) == (issued.device.device_id, "acme")
    assert (device.client_id, device.display_name, list(device.scopes)) == ("desk", "Büro", ["work"])
    assert (device.user_id, device.agent_id, device.run_id) == ("alice", "", "")
    assert device.created_at.ToMicroseconds() == device.last_seen_at.ToMicroseconds() == NOW
    assert not device.HasField("revoked_at")

    revoke = v1.RevokeDeviceRequest(tenant_id="acme", device_id=device.device_id)
    revoked = service.revoke_device(revoke, acme_admin).device
    assert (revoked.revoked_at.ToMicroseconds(), revoked.wipe) == (NOW, False)
    revoke.wipe = True
    assert service.revoke_device(revoke, PLATFORM).device.wipe
    assert registry.authenticate(issued.token, NOW).wiped


@pytest.mark.parametrize("kind", ["user", "agent", "run"])
def test_a_device_is_about_a_user_an_agent_or_a_run(
    service: TenantAdminService, registry: Registry, acme_admin: Caller, kind: str
) -> None:
    request = v1.CreateEnrolmentRequest(tenant_id="acme", **{f"{kind}_id": "x"})
    code = registry.authenticate(service.create_enrolment(request, acme_admin).enrolment_code, NOW)
    registry.devices.register_device(code.key_id, b"i" * 16, now=NOW)
    (device,) = service.list_devices(v1.ListDevicesRequest(tenant_id="acme"), acme_admin).devices
    named = {field.name for field, _ in device.ListFields()} & {"user_id", "agent_id", "run_id"}
    assert named == {f"{kind}_id"}
    assert getattr(device, f"{kind}_id") == "x"


def test_pages_of_devices_join_and_belong_to_one_tenant(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    for _ in range(3):
        made = service.create_enrolment(enrolment_request(), acme_admin)
        code = registry.authenticate(made.enrolment_code, NOW)
        registry.devices.register_device(code.key_id, b"i" * 16, now=NOW)
    request = v1.ListDevicesRequest(tenant_id="acme", page_size=2)
    first = service.list_devices(request, acme_admin)
    request.page_token = first.next_page_token
    rest = service.list_devices(request, acme_admin)
    assert (len(first.devices), len(rest.devices), rest.next_page_token) == (2, 1, "")
    ids = [device.device_id for device in (*first.devices, *rest.devices)]
    assert ids == sorted(set(ids))
    request.tenant_id = "rival"
    with pytest.raises(InvalidField, match="page_token"):
        service.list_devices(request, PLATFORM)


def test_a_page_of_devices_ends_before_it_is_too_large_for_a_message(
    service: TenantAdminService, registry: Registry, acme_admin: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        made = service.create_enrolment(enrolment_request(), acme_admin)
        registry.devices.register_device(
            registry.authenticate(made.enrolment_code, NOW).key_id, b"i" * 16, now=NOW
        )
    request = v1.ListDevicesRequest(tenant_id="acme")
    whole = service.list_devices(request, acme_admin)
    assert (len(whole.devices), whole.next_page_token) == (3, "")
    monkeypatch.setattr("tenants.page.MAX_PAGE_BYTES", sum(one.ByteSize() for one in whole.devices[:2]))
    first = service.list_devices(request, acme_admin)
    request.page_token = first.next_page_token
    rest = service.list_devices(request, acme_admin)
    assert [len(first.devices), len(rest.devices)] == [2, 1]
    assert [*first.devices, *rest.devices] == list(whole.devices)


def test_pages_of_keys_join_hold_no_secret_and_belong_to_one_owner(
    service: TenantAdminService, acme_admin: Caller
) -> None:
    def listed(request: v1.ListApiKeysRequest, caller: Caller) -> tuple[list[v1.ApiKey], int]:
        pages = [service.list_api_keys(request, caller)]
        while pages[-1].next_page_token:
            request.page_token = pages[-1].next_page_token
            pages.append(service.list_api_keys(request, caller))
        return [key for page in pages for key in page.api_keys], len(pages)

    def made(**fields: Any) -> v1.CreateApiKeyResponse:
        return service.create_api_key(v1.CreateApiKeyRequest(**fields), PLATFORM)

    before, _ = listed(v1.ListApiKeysRequest(tenant_id="acme"), PLATFORM)
    mine = [made(role=v1.ROLE_SERVICE, tenant_id="acme", display_name=f"key {n}") for n in range(3)]
    ended = service.revoke_api_key(
        v1.RevokeApiKeyRequest(tenant_id="acme", key_id=mine[0].api_key.key_id), PLATFORM
    ).api_key
    platforms = made(role=v1.ROLE_PLATFORM_ADMIN)
    expected = [*before, ended, *(each.api_key for each in mine[1:])]
    found, pages = listed(v1.ListApiKeysRequest(tenant_id="acme", page_size=2), acme_admin)
    assert found == sorted(expected, key=lambda key: key.key_id)
    assert pages == (len(expected) + 1) // 2
    told = repr(found)
    assert not [each for each in mine if each.secret in told or each.secret.split("_")[3] in told]
    assert platforms.api_key in listed(v1.ListApiKeysRequest(), PLATFORM)[0]
    with pytest.raises(RoleNotAllowed):
        service.list_api_keys(v1.ListApiKeysRequest(), acme_admin)
    token = service.list_api_keys(v1.ListApiKeysRequest(tenant_id="acme", page_size=1), acme_admin)
    for other in ("rival", ""):
        foreign = v1.ListApiKeysRequest(tenant_id=other, page_token=token.next_page_token)
        with pytest.raises(InvalidField, match="page_token"):
            service.list_api_keys(foreign, PLATFORM)


def test_another_tenants_device_is_byte_for_byte_an_unknown_one(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    made = service.create_enrolment(enrolment_request(tenant_id="rival"), PLATFORM)
    code = registry.authenticate(made.enrolment_code, NOW)
    issued = registry.devices.register_device(code.key_id, b"i" * 16, now=NOW)
    device_id = issued.device.device_id
    with pytest.raises(DeviceNotFound) as caught:
        service.revoke_device(v1.RevokeDeviceRequest(tenant_id="acme", device_id=device_id), acme_admin)
    assert answer_bytes(caught.value) == answer_bytes(DeviceNotFound(device_id))
    assert registry.authenticate(issued.token, NOW).role is Role.DEVICE


def test_a_tenants_request_ids_are_its_own(service: TenantAdminService, acme_admin: Caller) -> None:
    request = v1.CreateApiKeyRequest(request_id="r-1", tenant_id="acme", role=v1.ROLE_SERVICE)
    by_platform = service.create_api_key(request, PLATFORM)
    by_tenant = service.create_api_key(request, acme_admin)
    assert by_platform.secret != by_tenant.secret


# --- states ---------------------------------------------------------------------------------------

LATER = Micros(NOW + 30 * 24 * 3600 * 1_000_000)
"""When the grace of a tenant that was deleted now has passed."""
MOVES: dict[str, Callable[[TenantAdminService], v1.Tenant]] = {
    "suspend": lambda service: (
        service.suspend_tenant(v1.SuspendTenantRequest(tenant_id="acme", reason="invoice 7"), PLATFORM).tenant
    ),
    "resume": lambda service: (
        service.resume_tenant(v1.ResumeTenantRequest(tenant_id="acme"), PLATFORM).tenant
    ),
    "delete": lambda service: (
        service.delete_tenant(v1.DeleteTenantRequest(tenant_id="acme"), PLATFORM).tenant
    ),
    "undelete": lambda service: (
        service.undelete_tenant(v1.UndeleteTenantRequest(tenant_id="acme"), PLATFORM).tenant
    ),
}
WAYS = {
    "ACTIVE": (),
    "SUSPENDED": ("suspend",),
    "DELETING": ("delete",),
    "DELETING after SUSPENDED": ("suspend", "delete"),
    "PURGED": ("delete", "purge"),
}
LEGAL = {
    ("ACTIVE", "suspend"): "SUSPENDED",
    ("ACTIVE", "delete"): "DELETING",
    ("SUSPENDED", "resume"): "ACTIVE",
    ("SUSPENDED", "delete"): "DELETING",
    ("DELETING", "undelete"): "ACTIVE",
    ("DELETING after SUSPENDED", "undelete"): "SUSPENDED",
}


def make_purged(registry: Registry) -> None:
    tenant = registry.lives.begin_purge(registry.get_tenant("acme"), now=LATER)
    registry.lives.finish_purge(tenant, {}, now=LATER)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("way", WAYS)
def test_a_move_is_made_where_it_is_legal_and_else_the_state_is_named(
    service: TenantAdminService, registry: Registry, acme_admin: Caller, way: str, move: str
) -> None:
    for step in WAYS[way]:
        make_purged(registry) if step == "purge" else MOVES[step](service)
    before = registry.get_tenant("acme")
    if (way, move) in LEGAL:
        moved = MOVES[move](service)
        assert v1.TenantState.Name(moved.state) == f"TENANT_STATE_{LEGAL[way, move]}"
        assert tenant_message(registry.get_tenant("acme")) == moved
    else:
        with pytest.raises(TenantNotActive, match=way.partition(" ")[0]):
            MOVES[move](service)
        assert registry.get_tenant("acme") == before
    assert registry.get_tenant("rival").state is TenantState.ACTIVE


def test_why_a_tenant_is_suspended_is_kept_until_it_is_resumed(
    service: TenantAdminService, acme_admin: Caller
) -> None:
    MOVES["suspend"](service)
    shown = service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), acme_admin).tenant
    assert (shown.suspension_reason, shown.suspended_at.ToMicroseconds()) == ("invoice 7", NOW)
    MOVES["delete"](service)
    assert MOVES["undelete"](service) == shown
    resumed = MOVES["resume"](service)
    assert (resumed.suspension_reason, resumed.HasField("suspended_at")) == ("", False)


def test_a_deleted_tenant_has_its_days_of_grace(service: TenantAdminService, acme_admin: Caller) -> None:
    deleted = MOVES["delete"](service)
    assert deleted.deleted_at.ToMicroseconds() == NOW
    assert deleted.purge_at.ToMicroseconds() == NOW + 30 * 24 * 3600 * 1_000_000
    MOVES["undelete"](service)
    request = v1.DeleteTenantRequest(tenant_id="acme", grace_days=0)
    assert service.delete_tenant(request, PLATFORM).tenant.purge_at.ToMicroseconds() == NOW


def test_nobody_is_let_into_a_deleted_tenant_and_its_admin_still_sees_it(
    service: TenantAdminService, acme_admin: Caller
) -> None:
    MOVES["suspend"](service)
    service.create_api_key(key_request(), acme_admin)
    MOVES["delete"](service)
    with pytest.raises(TenantNotActive, match="DELETING"):
        service.create_api_key(key_request(), acme_admin)
    with pytest.raises(TenantNotActive, match="DELETING"):
        service.create_enrolment(enrolment_request(), acme_admin)
    shown = service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), acme_admin).tenant
    assert shown.state == v1.TENANT_STATE_DELETING


def test_a_repeated_move_gets_the_first_answer(service: TenantAdminService, acme_admin: Caller) -> None:
    suspend = v1.SuspendTenantRequest(tenant_id="acme", reason="x", request_id="r-1")
    first = service.suspend_tenant(suspend, PLATFORM)
    MOVES["resume"](service)
    assert service.suspend_tenant(suspend, PLATFORM) == first
    with pytest.raises(RequestIdReused):
        service.delete_tenant(v1.DeleteTenantRequest(tenant_id="acme", request_id="r-1"), PLATFORM)


def test_a_purge_that_has_begun_is_not_taken_back(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    MOVES["delete"](service)
    with pytest.raises(TenantNotActive, match="grace"):
        registry.lives.begin_purge(registry.get_tenant("acme"), now=Micros(LATER - 1))
    registry.lives.begin_purge(registry.get_tenant("acme"), now=LATER)
    with pytest.raises(TenantNotActive, match="its purge has begun"):
        MOVES["undelete"](service)


def test_a_purged_tenants_id_is_given_again_and_nothing_of_it_is_left(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    life = registry.get_tenant("acme").incarnation
    key = registry.create_api_key("acme", Role.SERVICE, now=NOW, request=RequestKey("r-1", life))
    assert registry.authenticate(key.secret, NOW).role is Role.SERVICE
    code = service.create_enrolment(enrolment_request(), acme_admin).enrolment_code
    enrolment_id = registry.authenticate(code, NOW).key_id
    token = registry.devices.register_device(enrolment_id, b"i" * 16, now=NOW).token
    unused = service.create_enrolment(enrolment_request(), acme_admin).enrolment_code
    create = v1.CreateTenantRequest(tenant_id="acme")
    for step in ("suspend", "delete"):
        with pytest.raises(TenantExists):
            service.create_tenant(create, PLATFORM)
        MOVES[step](service)
    tenant = registry.lives.begin_purge(registry.get_tenant("acme"), now=LATER)
    registry.lives.finish_purge(tenant, {"memories": 3}, now=Micros(LATER + 1))
    purged = service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), PLATFORM).tenant
    assert purged.state == v1.TENANT_STATE_PURGED
    assert purged.purge_receipt.finished_at.ToMicroseconds() == LATER + 1
    swept = {each.place: each.count for each in purged.purge_receipt.swept}
    assert swept == {
        "memories": 3,
        "API keys": 1,
        "devices": 1,
        "enrolments": 2,
        "admin requests": 1,
        "operations": 0,
        "usage": 0,
    }
    for credential in (key.secret, token, unused):
        with pytest.raises(CredentialInvalid):
            registry.authenticate(credential, NOW)
    again = service.create_tenant(create, PLATFORM).tenant
    with pytest.raises(TenantNotFound):
        registry.lives.finish_purge(tenant, {}, now=LATER)
    assert again.incarnation != purged.incarnation
    assert again.state == v1.TENANT_STATE_ACTIVE
    assert not again.HasField("purge_receipt")
    assert not again.suspension_reason
    assert not service.list_devices(v1.ListDevicesRequest(tenant_id="acme"), PLATFORM).devices


# --- whose tenant ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda service, tenant_id, caller: service.get_tenant(
            v1.GetTenantRequest(tenant_id=tenant_id), caller
        ),
        lambda service, tenant_id, caller: service.update_tenant(
            update_request("display_name", tenant_id=tenant_id), caller
        ),
        lambda service, tenant_id, caller: service.create_api_key(
            v1.CreateApiKeyRequest(tenant_id=tenant_id, role=v1.ROLE_SERVICE), caller
        ),
        lambda service, tenant_id, caller: service.list_api_keys(
            v1.ListApiKeysRequest(tenant_id=tenant_id), caller
        ),
        lambda service, tenant_id, caller: service.rotate_api_key(
            v1.RotateApiKeyRequest(tenant_id=tenant_id, key_id="0000000000000000"), caller
        ),
        lambda service, tenant_id, caller: service.revoke_api_key(
            v1.RevokeApiKeyRequest(tenant_id=tenant_id, key_id="0000000000000000"), caller
        ),
        lambda service, tenant_id, caller: service.create_enrolment(
            enrolment_request(tenant_id=tenant_id), caller
        ),
        lambda service, tenant_id, caller: service.list_devices(
            v1.ListDevicesRequest(tenant_id=tenant_id), caller
        ),
        lambda service, tenant_id, caller: service.list_audit_events(
            v1.ListAuditEventsRequest(tenant_id=tenant_id), caller
        ),
        lambda service, tenant_id, caller: service.get_usage(v1.GetUsageRequest(tenant_id=tenant_id), caller),
        lambda service, tenant_id, caller: service.revoke_device(
            v1.RevokeDeviceRequest(tenant_id=tenant_id, device_id="0000000000000000"), caller
        ),
    ],
    ids=[
        "get_tenant",
        "update_tenant",
        "create_api_key",
        "list_api_keys",
        "rotate_api_key",
        "revoke_api_key",
        "create_enrolment",
        "list_devices",
        "list_audit_events",
        "get_usage",
        "revoke_device",
    ],
)
def test_another_tenant_is_byte_for_byte_an_unknown_one(
    service: TenantAdminService,
    acme_admin: Caller,
    call: Callable[[TenantAdminService, str, Caller], object],
) -> None:
    with pytest.raises(TenantNotFound) as another:
        call(service, "rival", acme_admin)
    with pytest.raises(TenantNotFound) as unknown:
        call(service, "rivak", acme_admin)
    swapped = answer_bytes(unknown.value).replace(b"rivak", b"rival")
    assert answer_bytes(another.value) == swapped
    with pytest.raises(TenantNotFound) as nobody:
        call(service, "rivak", PLATFORM)
    assert answer_bytes(nobody.value) == answer_bytes(unknown.value)


def test_another_tenants_key_is_byte_for_byte_an_unknown_one(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    theirs = registry.create_api_key("rival", Role.SERVICE, now=NOW)
    key_id = theirs.api_key.key_id
    with pytest.raises(ApiKeyNotFound) as caught:
        service.revoke_api_key(v1.RevokeApiKeyRequest(tenant_id="acme", key_id=key_id), acme_admin)
    assert answer_bytes(caught.value) == answer_bytes(ApiKeyNotFound(key_id))
    with pytest.raises(ApiKeyNotFound) as caught:
        service.rotate_api_key(v1.RotateApiKeyRequest(tenant_id="acme", key_id=key_id), acme_admin)
    assert answer_bytes(caught.value) == answer_bytes(ApiKeyNotFound(key_id))
    assert registry.authenticate(theirs.secret, NOW).key_id == key_id


def test_a_tenants_admin_has_no_hand_in_the_platforms_keys(
    service: TenantAdminService, registry: Registry, acme_admin: Caller
) -> None:
    key = registry.create_api_key(None, Role.PLATFORM_ADMIN, now=NOW)
    with pytest.raises(RoleNotAllowed):
        service.create_api_key(v1.CreateApiKeyRequest(role=v1.ROLE_PLATFORM_ADMIN), acme_admin)
    with pytest.raises(RoleNotAllowed):
        service.revoke_api_key(v1.RevokeApiKeyRequest(key_id=key.api_key.key_id), acme_admin)
    with pytest.raises(RoleNotAllowed):
        service.rotate_api_key(v1.RotateApiKeyRequest(key_id=key.api_key.key_id), acme_admin)
    with pytest.raises(InvalidField):
        service.create_api_key(
            v1.CreateApiKeyRequest(role=v1.ROLE_PLATFORM_ADMIN, tenant_id="acme"), acme_admin
        )
    assert registry.authenticate(key.secret, NOW).role is Role.PLATFORM_ADMIN


def test_every_rpc_has_a_policy_and_only_admins_are_let_in() -> None:
    rpcs = v1.tenant_service_pb2.DESCRIPTOR.services_by_name["TenantAdminService"]
    assert set(ALLOWED) == {f"/{rpcs.full_name}/{rpc.name}" for rpc in rpcs.methods}
    assert all(roles <= {Role.PLATFORM_ADMIN, Role.TENANT_ADMIN} for roles in ALLOWED.values())
    tenants_own = {path.rpartition("/")[2] for path, roles in ALLOWED.items() if Role.TENANT_ADMIN in roles}
    assert tenants_own == {
        "GetTenant",
        "UpdateTenant",
        "GetUsage",
        "CreateApiKey",
        "ListApiKeys",
        "RotateApiKey",
        "RevokeApiKey",
        "CreateEnrolment",
        "ListDevices",
        "RevokeDevice",
        "ExportSubject",
        "EraseSubject",
        "ExportTenant",
        "DownloadExport",
        "UploadImport",
        "ImportTenant",
        "ListAuditEvents",
        "GetTenantOperation",
        "ListTenantOperations",
        "CancelTenantOperation",
        "WaitTenantOperation",
    }


# --- what a valid request is ----------------------------------------------------------------------

TENANT = {"tenant_id": "acme"}
LONG = "x" * 257


@pytest.mark.parametrize(
    ("request_message", "fields"),
    [
        (v1.CreateTenantRequest(), ["tenant_id"]),
        *(
            (v1.CreateTenantRequest(tenant_id=wrong), ["tenant_id"])
            for wrong in ("Acme", "1acme", "-a", "a_b", "a.b", "a\0", "a\n", "ä", "a" * 64, "٣", " acme")
        ),
        (v1.CreateTenantRequest(display_name=LONG, **TENANT), ["display_name"]),
        (v1.CreateTenantRequest(display_name="é" * 129, **TENANT), ["display_name"]),
        (v1.CreateTenantRequest(display_name="a\0b", **TENANT), ["display_name"]),
        (v1.CreateTenantRequest(display_name="  ", **TENANT), ["display_name"]),
        (v1.CreateTenantRequest(request_id="x" * 129, **TENANT), ["request_id"]),
        (v1.CreateTenantRequest(request_id="\0", **TENANT), ["request_id"]),
        (
            v1.CreateTenantRequest(tenant_id="A", display_name=LONG, request_id="\0"),
            ["request_id", "tenant_id", "display_name"],
        ),
        (v1.GetTenantRequest(), ["tenant_id"]),
        (v1.GetTenantRequest(tenant_id="a\0"), ["tenant_id"]),
        (v1.ListTenantsRequest(page_size=-1), ["page_size"]),
        (v1.ListTenantsRequest(page_size=1001), ["page_size"]),
        (v1.ListTenantsRequest(page_token="x"), ["page_token"]),
        (v1.ListTenantsRequest(page_token="\0é"), ["page_token"]),
        (v1.ListTenantsRequest(page_token=seal(SECRET, "memories", ("a",))), ["page_token"]),
        (v1.ListTenantsRequest(page_token=seal(b"t" * 32, "tenants", ("a",))), ["page_token"]),
        (update_request(), ["update_mask"]),
        (update_request("display_name", "space"), ["update_mask"]),
        (update_request("tenant_id"), ["update_mask"]),
        (update_request("display_name", tenant_id=""), ["tenant.tenant_id"]),
        (update_request("display_name", display_name=LONG), ["tenant.display_name"]),
        (update_request("display_name", request_id=LONG), ["request_id"]),
        (rules_request({}), ["tenant.forget_policy.rules[0].unused_days"]),
        (rules_request({"unused_days": 36_501}), ["tenant.forget_policy.rules[0].unused_days"]),
        (
            rules_request({"unused_days": 1}, {"unused_days": 1, "scope": "a//b"}),
            ["tenant.forget_policy.rules[1].scope"],
        ),
        (
            rules_request({"unused_days": 1, "category": "\0"}),
            ["tenant.forget_policy.rules[0].category"],
        ),
        *(
            (
                rules_request({"unused_days": 1, "below_confidence": wrong}),
                ["tenant.forget_policy.rules[0].below_confidence"],
            )
            for wrong in (0, -0.1, 1.1, float("nan"))
        ),
        (rules_request(*[{"unused_days": 1}] * 33), ["tenant.forget_policy.rules"]),
        (quotas_request(devices=-1), ["tenant.quotas.devices"]),
        (quotas_request(api_keys=10**15 + 1), ["tenant.quotas.api_keys"]),
        (quotas_request(calls_per_second=float("nan")), ["tenant.quotas.calls_per_second"]),
        (quotas_request(calls_per_second_per_key=-1), ["tenant.quotas.calls_per_second_per_key"]),
        (retention_request(history_days=-1), ["tenant.retention.history_days"]),
        (
            retention_request(history_days=36_501, tombstone_days=3_651),
            ["tenant.retention.history_days", "tenant.retention.tombstone_days"],
        ),
        (settings_request(policy=99), ["tenant.write_settings.policy"]),
        (settings_request(custom_instructions="é" * 4097), ["tenant.write_settings.custom_instructions"]),
        (settings_request(custom_reconcile_prompt="\0"), ["tenant.write_settings.custom_reconcile_prompt"]),
        (v1.SuspendTenantRequest(reason=LONG), ["tenant_id", "reason"]),
        (v1.SuspendTenantRequest(request_id=LONG, **TENANT), ["request_id"]),
        (v1.ResumeTenantRequest(request_id=LONG), ["request_id", "tenant_id"]),
        (v1.DeleteTenantRequest(request_id=LONG), ["request_id", "tenant_id"]),
        (v1.DeleteTenantRequest(tenant_id="acme", grace_days=-1), ["grace_days"]),
        (v1.DeleteTenantRequest(tenant_id="acme", grace_days=366), ["grace_days"]),
        (v1.UndeleteTenantRequest(request_id=LONG), ["request_id", "tenant_id"]),
        (v1.CreateApiKeyRequest(tenant_id="acme"), ["role"]),
        (v1.CreateApiKeyRequest(tenant_id="acme", role=99), ["role"]),  # type: ignore[arg-type]  # open enum
        (v1.CreateApiKeyRequest(tenant_id="acme", role=101), ["role"]),  # type: ignore[arg-type]  # open enum
        (v1.CreateApiKeyRequest(tenant_id="acme", role=v1.ROLE_DEVICE), ["role"]),
        (v1.CreateApiKeyRequest(role=v1.ROLE_SERVICE), ["tenant_id"]),
        (v1.CreateApiKeyRequest(role=v1.ROLE_TENANT_ADMIN), ["tenant_id"]),
        (v1.CreateApiKeyRequest(role=v1.ROLE_PLATFORM_ADMIN, tenant_id="acme"), ["tenant_id"]),
        (key_request(display_name=LONG), ["display_name"]),
        (key_request(client_id=LONG), ["client_id"]),
        (key_request(client_id="\0"), ["client_id"]),
        (key_request(request_id=LONG), ["request_id"]),
        (key_request(expires_at=Timestamp(seconds=2**40)), ["expires_at"]),
        (key_request(expires_at=Timestamp(seconds=-(2**40))), ["expires_at"]),
        (key_request(expires_at=Timestamp(seconds=NOW // 1_000_000)), ["expires_at"]),
        (v1.RotateApiKeyRequest(tenant_id="acme"), ["key_id"]),
        (
            v1.RotateApiKeyRequest(key_id="x", overlap_seconds=-1, request_id=LONG),
            ["request_id", "overlap_seconds"],
        ),
        (
            v1.RotateApiKeyRequest(tenant_id="A", key_id="x", overlap_seconds=2_592_001),
            ["tenant_id", "overlap_seconds"],
        ),
        (v1.RevokeApiKeyRequest(tenant_id="acme"), ["key_id"]),
        (v1.RevokeApiKeyRequest(tenant_id="acme", key_id="\0"), ["key_id"]),
        (v1.RevokeApiKeyRequest(tenant_id="ACME", key_id=LONG), ["tenant_id", "key_id"]),
        (v1.RevokeApiKeyRequest(tenant_id="acme", key_id="x", request_id="\0"), ["request_id"]),
        (v1.CreateEnrolmentRequest(user_id="u"), ["tenant_id"]),
        (v1.CreateEnrolmentRequest(**TENANT), ["user_id"]),
        (v1.CreateEnrolmentRequest(user_id="u", run_id="r", **TENANT), ["run_id"]),
        (v1.CreateEnrolmentRequest(agent_id=LONG, **TENANT), ["agent_id"]),
        (enrolment_request(scopes=["a", "b//c", ""]), ["scopes[1]", "scopes[2]"]),
        (enrolment_request(scopes=["a"] * 33), ["scopes"]),
        (enrolment_request(client_id=LONG, display_name="\0"), ["client_id", "display_name"]),
        (enrolment_request(request_id=LONG), ["request_id"]),
        (enrolment_request(expires_at=Timestamp(seconds=2**40)), ["expires_at"]),
        (enrolment_request(expires_at=Timestamp(seconds=NOW // 1_000_000)), ["expires_at"]),
        (enrolment_request(expires_at=Timestamp(seconds=NOW // 1_000_000 + 31 * 86_400)), ["expires_at"]),
        (v1.ListApiKeysRequest(tenant_id="A"), ["tenant_id"]),
        (v1.ListApiKeysRequest(page_size=1001, **TENANT), ["page_size"]),
        (v1.ListApiKeysRequest(page_token=seal(SECRET, "tenants", ("a",)), **TENANT), ["page_token"]),
        (v1.ListDevicesRequest(), ["tenant_id"]),
        (v1.ListDevicesRequest(page_size=1001, **TENANT), ["page_size"]),
        (v1.ListDevicesRequest(page_token=seal(SECRET, "tenants", ("a",)), **TENANT), ["page_token"]),
        (v1.ListAuditEventsRequest(tenant_id="A"), ["tenant_id"]),
        (v1.ListAuditEventsRequest(page_size=1001), ["page_size"]),
        (v1.ListAuditEventsRequest(page_token=seal(SECRET, "tenants", ("a",))), ["page_token"]),
        (v1.GetUsageRequest(), ["tenant_id"]),
        (v1.GetUsageRequest(page_size=1001, **TENANT), ["page_size"]),
        (v1.GetUsageRequest(page_token=seal(SECRET, "tenants", ("a",)), **TENANT), ["page_token"]),
        *(
            (v1.GetUsageRequest(from_day=wrong, **TENANT), ["from_day"])
            for wrong in ("20261130", "2026-11-31", "yesterday", "2026-11-30T00:00", "9999-12-31")
        ),
        (v1.GetUsageRequest(to_day="0000-01-01", **TENANT), ["to_day"]),
        (v1.VerifyAuditEventsRequest(after_number=-1), ["after_number"]),
        (v1.RevokeDeviceRequest(**TENANT), ["device_id"]),
        (v1.RevokeDeviceRequest(device_id="\0", request_id="\0", **TENANT), ["request_id", "device_id"]),
    ],
)
def test_a_wrong_field_is_named_with_what_would_be_right(
    service_with_acme: TenantAdminService, request_message: object, fields: list[str]
) -> None:
    service = service_with_acme
    methods: dict[type, Callable[[Any, Caller], object]] = {
        v1.CreateTenantRequest: service.create_tenant,
        v1.GetTenantRequest: service.get_tenant,
        v1.ListTenantsRequest: service.list_tenants,
        v1.UpdateTenantRequest: service.update_tenant,
        v1.SuspendTenantRequest: service.suspend_tenant,
        v1.ResumeTenantRequest: service.resume_tenant,
        v1.DeleteTenantRequest: service.delete_tenant,
        v1.UndeleteTenantRequest: service.undelete_tenant,
        v1.CreateApiKeyRequest: service.create_api_key,
        v1.ListApiKeysRequest: service.list_api_keys,
        v1.RotateApiKeyRequest: service.rotate_api_key,
        v1.RevokeApiKeyRequest: service.revoke_api_key,
        v1.CreateEnrolmentRequest: service.create_enrolment,
        v1.ListDevicesRequest: service.list_devices,
        v1.RevokeDeviceRequest: service.revoke_device,
        v1.ListAuditEventsRequest: service.list_audit_events,
        v1.GetUsageRequest: service.get_usage,
        v1.VerifyAuditEventsRequest: service.verify_audit_events,
    }
    with pytest.raises(InvalidField) as caught:
        methods[type(request_message)](request_message, PLATFORM)
    assert [violation.field for violation in caught.value.field_violations] == fields
    assert all(violation.description for violation in caught.value.field_violations)


def test_names_in_any_script_and_ids_of_any_length_are_kept(service: TenantAdminService) -> None:
    for n, name in enumerate(("松鸦", "مرحبا", "🪶 jay", "x" * 256, "<b>&'\"%s[red]")):
        request = v1.CreateTenantRequest(tenant_id=f"t{n}", display_name=name)
        assert service.create_tenant(request, PLATFORM).tenant.display_name == name
    longest = v1.CreateTenantRequest(tenant_id="a" + "-" * 62)
    assert service.create_tenant(longest, PLATFORM).tenant.tenant_id == longest.tenant_id
