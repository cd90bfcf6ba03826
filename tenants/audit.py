"""The audit log's law: who did what, when, to what, and with which outcome, each event chained to the last.

An event's digest covers the event and the digest before it, under a key that follows from the pepper. So an
event that is changed, removed or put between others shows, to who has the pepper: who has the database alone
can't make a whole chain. The head, sealed beside the log, says where it ends, so that its end can't be cut
off either. The tail, sealed too, says up to where a server deleted what was old enough: nobody else cuts off
its beginning unseen. No event holds content: ids, names of fields, and reasons of refusals alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scrubjay.memory import Micros, canonical_json
from tenants.tenant import Tenant

OK = "OK"
REPEATED = "REPEATED"
"""A request came again and got the first answer, a key's secret perhaps."""
NO_DIGEST = bytes(32)
"""Before the first event."""


@dataclass(frozen=True, slots=True)
class Act:
    """What was done. ``actor`` is a key's id and ``role`` its number in the contract; both are empty where
    the server did it, or who has its machine.

    ``tenant_id`` and ``incarnation`` are empty where it is about the platform. ``outcome`` is OK, REPEATED or
    the reason of a refusal.
    """

    at: Micros
    actor: str
    role: int
    tenant_id: str
    incarnation: str
    method: str
    resource: str
    outcome: str
    detail: str = ""

    @classmethod
    def of_server(
        cls, at: Micros, method: str, tenant: Tenant | None = None, *, resource: str = "", detail: str
    ) -> Act:
        """What a server did by itself, to a tenant or to the platform."""
        tenant_id, incarnation = ("", "") if tenant is None else (tenant.tenant_id, tenant.incarnation)
        return cls(at, "", 0, tenant_id, incarnation, method, resource, OK, detail)


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An act in the log; numbers count from 1."""

    number: int
    act: Act
    digest: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """Where the log ends."""

    number: int
    digest: bytes
    seal: bytes


@dataclass(frozen=True, slots=True)
class Tail:
    """Up to where the log was cut off for its age; the event behind is chained to ``digest``."""

    number: int
    digest: bytes
    seal: bytes


NO_TAIL = Tail(0, NO_DIGEST, b"")
"""Of a log that is whole."""
Place = AuditEvent | Tail | None
"""What an event is chained to: the one before it, or where the log was cut off; None at its beginning."""


def chained(key: bytes, before: bytes, number: int, act: Act) -> AuditEvent:
    """The event of an act behind the one with the digest ``before``."""
    covered = [number, *(getattr(act, name) for name in Act.__slots__)]
    return AuditEvent(number, act, hmac.digest(key, before + canonical_json(covered).encode(), "sha256"))


def sealed(key: bytes, event: AuditEvent) -> Head:
    """The head of a log that ends with this event."""
    return Head(event.number, event.digest, _seal(key, b"head", event))


def cut_behind(key: bytes, event: AuditEvent) -> Tail:
    """The tail of a log that begins behind this event."""
    return Tail(event.number, event.digest, _seal(key, b"tail", event))


def _seal(key: bytes, end: bytes, place: AuditEvent | Tail) -> bytes:
    return hmac.digest(key, end + b"\0" + place.number.to_bytes(8, "big") + place.digest, "sha256")


def is_own(key: bytes, tail: Tail) -> bool:
    """Whether the log was cut off there by who has the pepper, or not at all."""
    return tail == NO_TAIL or hmac.compare_digest(_seal(key, b"tail", tail), tail.seal)


def faults(key: bytes, before: Place, events: Iterable[AuditEvent]) -> Iterator[str]:
    """What shows in a run of the log, by number, that somebody changed it. ``before`` is what it is chained
    to."""
    number, digest = (0, NO_DIGEST) if before is None else (before.number, before.digest)
    for event in events:
        if event.number != number + 1:
            yield _missing(number + 1, event.number - 1)
        elif not hmac.compare_digest(chained(key, digest, event.number, event.act).digest, event.digest):
            yield f"event {event.number} was changed"
        number, digest = event.number, event.digest


def end_faults(key: bytes, head: Head, last: Place) -> Iterator[str]:
    """What shows at the end of the log that somebody changed it."""
    number, digest = (0, NO_DIGEST) if last is None else (last.number, last.digest)
    if head.number > number:
        yield _missing(number + 1, head.number)
    elif (head.number, head.digest) != (number, digest) or (
        last is not None and not hmac.compare_digest(_seal(key, b"head", last), head.seal)
    ):
        yield "the head of the log was changed"


def _missing(first: int, last: int) -> str:
    return f"event {first} is missing" if first == last else f"events {first} to {last} are missing"
