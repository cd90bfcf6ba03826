"""Update's mask and base stamps, as an edit."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, check
from scrubjay.memory import ClientId, MemoryId, Micros
from scrubjay.merge import KEYED_FIELDS, PLAIN_FIELDS, is_register
from scrubjay.operation import MAX_FIELDS
from scrubjay.stamp import Stamp
from scrubjay.validity import local_violation, text_violation
from scrubjay.wire import from_message
from server.ingest.edits import Edit

_ALLOWED = ", ".join((*PLAIN_FIELDS, *KEYED_FIELDS, "tags.<tag>", "metadata.<key>"))


def edit_of(request: v1.UpdateRequest, client_id: ClientId, now: Micros) -> Edit:
    """The edit that an Update asks for; its content is not embedded yet."""
    fields = tuple(dict.fromkeys(request.update_mask.paths))
    if not fields:
        raise InvalidField.of("update_mask", f"is empty; name the fields to write: {_ALLOWED}")
    if len(fields) > MAX_FIELDS:
        raise InvalidField.of("update_mask", f"has {len(fields)} paths; at most {MAX_FIELDS} are allowed")
    check(*(_path_violation("update_mask", field) for field in fields))
    memory_id = MemoryId(request.memory.id)
    try:
        values = from_message(request.memory, memory_id=memory_id, owner=client_id, now=now)
    except InvalidField as error:
        raise InvalidField(violation.under("memory") for violation in error.field_violations) from None
    if "content" in fields:
        check(text_violation("memory.content", values.content))
    if "privacy_level" in fields:
        check(local_violation("memory.privacy_level", values.privacy_level))
    return Edit(memory_id, values, fields, _bases(request), request.etag, None)


def _path_violation(where: str, path: str) -> FieldViolation | None:
    known = is_register(path) or path in KEYED_FIELDS
    return None if known else FieldViolation(where, f"{path!r} is no field to write; these are: {_ALLOWED}")


def _bases(request: v1.UpdateRequest) -> dict[str, Stamp]:
    if len(request.base_stamps) > MAX_FIELDS:
        raise InvalidField.of(
            "base_stamps", f"has {len(request.base_stamps)}; at most {MAX_FIELDS} are allowed"
        )
    bases = {}
    for n, base in enumerate(request.base_stamps):
        check(_path_violation(f"base_stamps[{n}].field", base.field))
        try:
            bases[base.field] = Stamp.parse(base.stamp)
        except ValueError as error:
            raise InvalidField.of(f"base_stamps[{n}].stamp", str(error)) from None
    return bases
