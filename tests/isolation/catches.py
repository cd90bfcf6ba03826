"""What notices that a guard is missing: a field of the walk, another check here, or a test elsewhere."""

from __future__ import annotations

from tests.isolation.mutants import READS, STORED

_DEVICES = "tests/rpc/test_privacy.py::test_a_device_has_what_its_client_and_its_scopes_may_see"
_STATES = "tests/rpc/test_tenant_states.py::test_every_rpc_on_memories_is_refused_at_once"
_KEYS = (
    "tests/contract/test_tenant_service.py::test_pages_of_keys_join_hold_no_secret_and_belong_to_one_owner"
)
_CATALOGUE = "tests/isolation/test_catalogue.py"
_WRITES = f"{_CATALOGUE}::test_what_is_written_of_one_tenant_is_anothers_never"
_TWINS = "tests/isolation/test_twins.py"

CATCHES: dict[str, str] = {
    # what a caller only carries
    "page tokens of memories": "MemoryService/List page_token",
    "page tokens of admins": "TenantAdminService/ListApiKeys page_token",
    "revisions": "MemoryService/Get min_revision",
    "cursors": "SyncService/Watch last_sync_at",
    "resume tokens": "MemoryService/Watch resume_token",
    "download tokens": "SyncService/Snapshot resume_token",
    "snapshot files": "SyncService/Snapshot resume_token",
    "principals": "SyncService/Sync principal",
    "request ids of admins": "TenantAdminService/RotateApiKey request_id",
    # whose it is
    "owners": "TenantAdminService/GetTenant tenant_id",
    "readers": "TenantAdminService/ListAuditEvents tenant_id",
    "secrets": "tests/contract/test_registry.py::test_all_that_is_no_credential_gets_one_answer[sqlite]",
    "roles": "TenantAdminService/CreateTenant tenant_id",
    "incarnations": READS,
    "resident streams": READS,
    # the catalogue
    "catalogue keys.list_api_keys": f"{_KEYS}[sqlite]",
    "catalogue keys.rotate_api_key": "TenantAdminService/RotateApiKey key_id",
    "catalogue keys.revoke_api_key": "TenantAdminService/RevokeApiKey key_id",
    "catalogue devices.list_devices": READS,
    "catalogue devices.revoke_device": "TenantAdminService/RevokeDevice device_id",
    "catalogue subjects.erase_subject": "TenantAdminService/EraseSubject request_id",
    "catalogue subjects.devices_of": READS,
    "catalogue audit.list_events": READS,
    "catalogue stocks.stock_of": READS,
    "catalogue operations.get": "TenantAdminService/GetTenantOperation operation_id",
    "catalogue operations.cancel": "TenantAdminService/CancelTenantOperation operation_id",
    "catalogue lives._change": "TenantAdminService/SuspendTenant request_id",
    "catalogue lives._delete_all_of": STORED,
    "catalogue registry.living": f"{_CATALOGUE}::test_a_life_is_one_tenants[sqlite]",
    "catalogue rows.tenant_of_life": READS,
    "catalogue usage.list_usage": READS,
    "catalogue placing._write": f"{_WRITES}[sqlite-_assign]",
    "catalogue reindexing.switch": f"{_WRITES}[sqlite-_switch]",
    # what the store says in SQL of its own; its other statements are taken away among twins
    "rows that are followed": f"{_TWINS}::test_every_step_can_be_done[sqlite]",
    "copies of streams": f"{_TWINS}::test_a_copy_of_a_stream_is_of_its_tenant_alone[sqlite]",
    # inside a tenant
    "private to its client": READS,
    "kept to its scopes": f"{_DEVICES}[sqlite-shared]",
    "kept to its subject": f"{_DEVICES}[sqlite-shared]",
    "across subjects by a grant": (
        "tests/rpc/test_across_subjects.py::test_a_key_without_the_grant_is_refused[sqlite]"
    ),
    "one client a device": (
        "tests/rpc/test_devices.py::test_a_device_is_one_client_whatever_the_header_says[sqlite]"
    ),
    "known to who asked": (
        "tests/rpc/test_operations.py::test_an_operation_is_known_to_who_asked_for_it_alone[False-3]"
    ),
    "active tenants": f"{_STATES}[sqlite-suspend]",
    "lives that ended": "tests/contract/test_purging.py::test_a_life_that_ended_is_not_the_next_one[sqlite]",
    "credentials forgotten": f"{_STATES}[sqlite-suspend]",
}

IMPLIED: dict[str, str] = {
    "catalogue operations.list_operations": (
        "the tenant's id is compared too, and the operations of an earlier life go with that life"
    ),
}
"""Guards that another condition implies: nothing can tell that they are missing, and why."""
