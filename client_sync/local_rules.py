"""What a write on a device may say, beside what any memory may: InvalidField says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from client_sync.identity import Identity
from scrubjay.errors import FieldViolation, InvalidField, check
from scrubjay.memory import JsonValue, Memory, PrivacyLevel, canonical_json
from scrubjay.merge import get, is_register
from scrubjay.validity import violations


def check_new(memory: Memory, identity: Identity) -> None:
    """Whether the device may add the memory: it is valid, of its subject, and within its scopes."""
    wrong = violations(memory)
    if not wrong and memory.subject != identity.subject:
        wrong.append(FieldViolation("user_id", f"this replica is of {identity.subject.key!r} alone"))
    check(*wrong)
    check_scope(memory.scope, identity)


def check_scope(scope: str, identity: Identity) -> None:
    """Whether the device may see memories of this scope."""
    if not identity.viewer.may_enter(scope):
        scopes = ", ".join(identity.scopes)
        raise InvalidField.of("scope", f"{scope!r} lies outside the scopes of this device: {scopes}")


def check_registers(fields: Iterable[str]) -> None:
    """Whether each names a register."""
    known = "is no register; such are content, tags.<tag>, metadata.<key>"
    check(*(FieldViolation(field, known) for field in fields if not is_register(field)))


def check_values(memory: Memory, values: Mapping[str, JsonValue], identity: Identity) -> None:
    """Whether the device may give the memory these values: its privacy is its owner's, and what has left
    the device can't become LOCAL_ONLY."""
    level = values.get("privacy_level", int(memory.privacy_level))
    if level not in [int(each) for each in PrivacyLevel]:
        raise InvalidField.of("privacy_level", f"{level!r} is no privacy level; give 1, 2 or 3")
    if level == memory.privacy_level:
        return
    if memory.owner_client_id != identity.client_id:
        raise InvalidField.of(
            "privacy_level", f"only its owner, the client {memory.owner_client_id!r}, may change it"
        )
    if level == PrivacyLevel.LOCAL_ONLY:
        raise InvalidField.of(
            "privacy_level", "the memory has left this device; delete it and add a LOCAL_ONLY one"
        )


def differing(memory: Memory, values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Those of the values that the memory does not have."""
    return {
        field: value
        for field, value in values.items()
        if canonical_json(get(memory, field)) != canonical_json(value)
    }
