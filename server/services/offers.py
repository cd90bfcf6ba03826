"""What a replica gives back in a Reoffer, as values."""

from __future__ import annotations

from collections.abc import Iterator

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.feed import MAX_CHANGES, open_page, unpack
from scrubjay.memory import MemoryId, Subject
from scrubjay.merge import State, is_register, registers
from scrubjay.stamp import unpack_field_stamps
from scrubjay.validity import violations
from scrubjay.wire import from_stored
from server.ingest.offers import Offered


def read_offers(request: v1.ReofferRequest, subject: Subject, latest_millis: int) -> list[Offered]:
    """The memories and dead ids that a replica gives back, in order; what can be none is left out.

    Stamps later than ``latest_millis`` make a memory none. InvalidField for a page that is damaged, too
    large, or of another kind of change.
    """
    page = unpack(v1.Page, "packed_page", request.packed_page)
    if len(page.changes) > MAX_CHANGES:
        raise InvalidField.of("packed_page", f"has {len(page.changes)} changes; at most {MAX_CHANGES}")
    return list(_offers(page, subject, latest_millis))


def _offers(page: v1.Page, subject: Subject, latest_millis: int) -> Iterator[Offered]:
    try:
        changes = open_page(page)
    except ValueError as error:
        raise InvalidField.of("packed_page", str(error)) from None
    for memory_id, _, change in changes:
        if change.kind == v1.CHANGE_KIND_DELETED:
            yield Offered(memory_id, None)
        elif change.kind != v1.CHANGE_KIND_WHOLE:
            raise InvalidField.of("packed_page", "holds a change that is neither WHOLE nor DELETED")
        elif (state := _state(memory_id, change, subject, latest_millis)) is not None:
            yield Offered(memory_id, state)


def _state(memory_id: MemoryId, change: v1.Change, subject: Subject, latest_millis: int) -> State | None:
    change.memory.id = memory_id
    setattr(change.memory, f"{subject.kind}_id", subject.name)
    try:
        memory = from_stored(change.memory)
        stamps = unpack_field_stamps(change.field_stamps)
    except (InvalidField, ValueError):
        return None
    named = {field for field, _ in registers(memory)}
    valid = (
        memory.subject == subject
        and not violations(memory)
        and named <= stamps.keys()
        and all(map(is_register, stamps))
        and all(stamp.millis <= latest_millis for stamp in stamps.values())
    )
    return State(memory, stamps) if valid else None
