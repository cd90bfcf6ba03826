"""What makes a request of TenantAdminService valid. Functions whose names end in ``violation`` return what is
wrong, if anything; the others raise InvalidField."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, check
from scrubjay.memory import MAX_MICROS, MIN_MICROS, SUBJECT_FIELDS, Micros, Subject, subject_of
from scrubjay.validity import name_violation, scope_violation
from tenants.registry import MAX_OVERLAP_SECONDS
from tenants.states import MAX_GRACE_DAYS
from tenants.tenant import ACROSS_SUBJECTS, API_KEY_ROLES, SCOPED, Role, tenant_id_violation

MAX_SCOPES = 32
"""Each is compared with the scope of every memory of a stream."""


def mask_violations(fields: Collection[str]) -> Iterator[FieldViolation]:
    """What is wrong with the mask of UpdateTenant."""
    if not fields:
        yield FieldViolation("update_mask", f"is empty; name the fields to write: {', '.join(_UPDATABLE)}")
    for field in sorted(fields):
        if field not in _UPDATABLE:
            known = ", ".join(_UPDATABLE)
            yield FieldViolation("update_mask", f"{field!r} is no field to write; these are: {known}")


_UPDATABLE = ("display_name", "forget_policy", "quotas", "retention", "write_settings")


def grace_violation(grace_days: int) -> FieldViolation | None:
    """Whether a tenant may be purged after so many days."""
    if not 0 <= grace_days <= MAX_GRACE_DAYS:
        return FieldViolation("grace_days", f"is {grace_days}; give 0 to {MAX_GRACE_DAYS}")
    return None


def key_role(number: v1.Role.ValueType) -> Role:
    """The role that a key may have."""
    if number == v1.ROLE_DEVICE:
        raise InvalidField.of("role", "is a device's, which no API key has; CreateEnrolment lets a device in")
    for role in API_KEY_ROLES:
        if role.value == int(number):
            return role
    raise InvalidField.of("role", f"is {number}; name one of the roles of the contract")


def owner_violation(tenant_id: str, role: Role) -> FieldViolation | None:
    """Whether a key of this role belongs to this tenant, or to none."""
    if role is not Role.PLATFORM_ADMIN:
        return tenant_id_violation("tenant_id", tenant_id)
    if tenant_id:
        return FieldViolation("tenant_id", "is set; a platform admin's key belongs to no tenant")
    return None


def overlap_violation(overlap_seconds: int) -> FieldViolation | None:
    """Whether a key that is rotated may be good for so long."""
    if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
        return FieldViolation("overlap_seconds", f"is {overlap_seconds}; give 0 to {MAX_OVERLAP_SECONDS}")
    return None


def grant_violation(across_subjects: bool, role: Role) -> FieldViolation | None:
    """Whether a key of this role may be given the grant."""
    if not across_subjects or role in ACROSS_SUBJECTS:
        return None
    return FieldViolation("across_subjects", f"is set, but a key of role {role.name} searches no memories")


def reach_violations(scopes: Sequence[str], role: Role) -> list[FieldViolation | None]:
    """What is wrong with the scopes of a key of this role."""
    if scopes and role not in SCOPED:
        return [FieldViolation("scopes", f"are set, but a key of role {role.name} reaches no memories")]
    return scope_violations(scopes)


def named_violation(field_path: str, name: str, thing: str) -> FieldViolation | None:
    """What is wrong with the id of a thing that must be named."""
    if not name:
        return FieldViolation(field_path, f"is empty; name {thing}")
    return name_violation(field_path, name)


class NamesSubject(Protocol):
    """A request that names a subject."""

    @property
    def user_id(self) -> str: ...
    @property
    def agent_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...


def sole_subject(request: NamesSubject) -> Subject:
    """The one subject that the request names."""
    given = [name for name in SUBJECT_FIELDS if getattr(request, name)]
    if len(given) > 1:
        raise InvalidField.of(given[1], f"{' and '.join(given)} are set; exactly one is needed")
    subject = subject_of(request.user_id, request.agent_id, request.run_id)
    if subject is None:
        raise InvalidField.of("user_id", "one of user_id, agent_id and run_id is needed")
    check(name_violation(given[0], subject.name))
    return subject


def scope_violations(scopes: Sequence[str]) -> list[FieldViolation | None]:
    """What is wrong with the scopes of a device or a key."""
    if len(scopes) > MAX_SCOPES:
        return [FieldViolation("scopes", f"has {len(scopes)} scopes; at most {MAX_SCOPES} are allowed")]
    return [scope_violation(f"scopes[{n}]", scope) for n, scope in enumerate(scopes)]


def wait_seconds(request: v1.WaitOperationRequest | v1.WaitTenantOperationRequest, most: float) -> float:
    """How long a call waits that may wait ``most`` seconds: as long as it asks, if it does. InvalidField."""
    if not request.HasField("timeout"):
        return most
    asked = request.timeout.ToMicroseconds() / 1_000_000
    if asked < 0:
        raise InvalidField.of("timeout", f"is {asked} s; give none, or a time that is not below 0")
    return min(most, asked)


def time_violation(field_path: str, time: Micros | None) -> FieldViolation | None:
    """Whether a time is one that can be kept."""
    if time is not None and not MIN_MICROS <= time <= MAX_MICROS:
        return FieldViolation(field_path, "lies outside the years 1 to 9999")
    return None
