"""What notices that a guard is missing: a field of the walk, another check here, or a test elsewhere."""

from __future__ import annotations

from tests.isolation.mutants import READS, STORED

_ERASING = "TenantAdminService/EraseSubject user_id"
_DEVICES = "tests/rpc/test_privacy.py::test_a_device_has_what_its_client_and_its_scopes_may_see"
_STATES = "tests/rpc/test_tenant_states.py::test_every_rpc_on_memories_is_refused_at_once"
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
    "roles": "TenantAdminService/CreateTenant tenant_id",
    "incarnations": READS,
    "resident streams": READS,
    # the catalogue
    "catalogue keys.rotate_api_key": "TenantAdminService/RotateApiKey key_id",
    "catalogue keys.revoke_api_key": "TenantAdminService/RevokeApiKey key_id",
    "catalogue devices.list_devices": READS,
    "catalogue devices.revoke_device": "TenantAdminService/RevokeDevice device_id",
    "catalogue subjects.devices_of": READS,
    "catalogue audit.list_events": READS,
    "catalogue stocks.stock_of": READS,
    "catalogue operations.get": "TenantAdminService/GetTenantOperation operation_id",
    "catalogue operations.cancel": "TenantAdminService/CancelTenantOperation operation_id",
    "catalogue lives._delete_all_of": STORED,
    # a shard's statements
    "entities._DELETE_MENTIONS": STORED,
    "entities._DELETE_RELATIONS": STORED,
    "entities._ENTITIES": READS,
    "entities._LOOKUPS.mentions": READS,
    "entities._RELATIONS": READS,
    "entities._RELATIONS_OF": "MemoryService/ListRelations entity_id",
    "erasing._STATEMENTS.of_memories.access_counts": STORED,
    "erasing._STATEMENTS.of_memories.mentions": STORED,
    "erasing._STATEMENTS.of_memories.relations": STORED,
    "erasing._STATEMENTS.of_memories.vectors": STORED,
    "erasing._STATEMENTS.rows.access_counts": STORED,
    "erasing._STATEMENTS.rows.history": _ERASING,
    "erasing._STATEMENTS.rows.jobs": STORED,
    "erasing._STATEMENTS.rows.mentions": _ERASING,
    "erasing._STATEMENTS.rows.operations": STORED,
    "erasing._STATEMENTS.rows.recent_messages": STORED,
    "erasing._STATEMENTS.rows.relations": _ERASING,
    "erasing._STATEMENTS.rows.replicas": STORED,
    "erasing._STATEMENTS.rows.retractions": STORED,
    "erasing._STATEMENTS.rows.vectors": _ERASING,
    "erasing._STATEMENTS.rows.waiting": STORED,
    "exporting._RECENT": READS,
    "exporting._RELATIONS_OF": READS,
    "exporting._WAITING": READS,
    "feed_reading._GRAVES": READS,
    "feed_reading._LIVING": READS,
    "feed_reading._LOOKUPS.guarded": "SyncService/Sync touches.memory_id",
    "history_reading._HISTORY_OF_MEMORY": READS,
    "history_reading._HISTORY_OF_STREAM": READS,
    "jobs._JOB": "MemoryService/GetOperation id",
    "jobs._OF_TENANT": READS,
    "reading._FIRST_PAGE": READS,
    "reading._LOOKUPS.changes": READS,
    "reading._LOOKUPS.get_many": "MemoryService/BatchGet ids",
    "reading._LOOKUPS.living": READS,
    "replicas._LOOKUPS.results": "SyncService/Reconcile operation_ids",
    "reading._GET": "MemoryService/Get id",
    "reading._REQUEST": "MemoryService/Update request_id",
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
    "active tenants": f"{_STATES}[sqlite-suspend]",
    "credentials forgotten": f"{_STATES}[sqlite-suspend]",
}
