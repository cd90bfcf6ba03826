"""What the memory RPCs' requests share: subjects, scopes, pages, and the rules they must meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from scrubjay.errors import InvalidField, RoleNotAllowed, check
from scrubjay.memory import SUBJECT_FIELDS, Subject, subject_of, within
from scrubjay.validity import is_memory_id, name_violation
from tenants.tenant import Caller
from tenants.validation import NamesSubject, scope_violations

MAX_BATCH = 100
"""One transaction's work: more would hold other writers of the shard up."""
MAX_TOP_K = 200
"""More hits than this are a list, not an answer."""
MAX_NEIGHBOURS = 5
"""On either side of each hit."""
MAX_PAGE = 1000
"""A page of 1 000 memories of usual size is some 300 KiB."""
DEFAULT_PAGE = 100
MAX_PAGE_BYTES = 3 * 1024 * 1024
"""A page ends here even if more was asked for: clients refuse messages past 4 MiB by default."""


def read_subject(request: NamesSubject) -> Subject:
    """The subject of a read; the narrower ids beside it stay filters."""
    check(*(name_violation(name, getattr(request, name)) for name in SUBJECT_FIELDS))
    subject = subject_of(request.user_id, request.agent_id, request.run_id)
    if subject is None:
        raise InvalidField.of("user_id", "one of user_id, agent_id and run_id is needed")
    return subject


def no_subject(request: NamesSubject) -> None:
    """Refuse what a read across all subjects can't take: agent_id and run_id alone narrow it."""
    check(*(name_violation(name, getattr(request, name)) for name in SUBJECT_FIELDS))
    if request.user_id:
        raise InvalidField.of(
            "user_id", "is set beside across_subjects; leave one of them out, or filter by the field user_id"
        )


def narrowing(request: NamesSubject, subject: Subject | None) -> tuple[str, str]:
    """The agent_id and run_id that narrow a read; the one that is the subject itself does not."""
    agent_id = request.agent_id if subject is None or subject.kind == "user" else ""
    run_id = request.run_id if subject is None or subject.kind != "run" else ""
    return agent_id, run_id


def check_memory_id(field: str, memory_id: str) -> None:
    """Refuse what can't be a memory's id."""
    if not is_memory_id(memory_id):
        raise InvalidField.of(field, f"{memory_id!r} is no UUID in canonical lower-case form")


def reached_scopes(asked: Sequence[str], caller: Caller) -> tuple[str, ...]:
    """The scopes of a read that the caller's key reaches; empty: all."""
    scopes, granted = check_scopes(asked), caller.scopes
    if not scopes or not granted:
        return scopes or granted
    found = [one for one in scopes if any(within(one, mine) for mine in granted)]
    found += [mine for mine in granted if any(within(mine, one) for one in scopes) and mine not in found]
    if not found:
        raise InvalidField.of("scopes", f"lie outside of this key's scopes: {', '.join(granted)}")
    return tuple(found)


def check_unscoped(caller: Caller, what: str) -> None:
    """RoleNotAllowed where the caller's key reaches some scopes alone, and this is of all of them."""
    if caller.scopes:
        reached = ", ".join(caller.scopes)
        raise RoleNotAllowed(f"{what} is for keys without scopes; this one reaches {reached}")


def check_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """The scopes of a read."""
    check(*scope_violations(scopes))
    return tuple(scopes)


def fitting(sizes: Iterable[int]) -> int:
    """How many leading elements of these sizes in bytes make a page, at least one."""
    total = count = 0
    for size in sizes:
        total += size
        if count and total > MAX_PAGE_BYTES:
            break
        count += 1
    return count


def bounded(field: str, value: int, default: int, most: int) -> int:
    """A count from 1 to ``most``; 0 stands for the default."""
    if not 0 <= value <= most:
        raise InvalidField.of(field, f"is {value}; give a number from 1 to {most}, or 0 for {default}")
    return value or default


def at_most(field: str, value: int, most: int) -> int:
    """A count from 0 to ``most``."""
    if not 0 <= value <= most:
        raise InvalidField.of(field, f"is {value}; give a number from 0 to {most}")
    return value


@contextmanager
def inside(field: str) -> Iterator[None]:
    """Tell of what is wrong in the block as of a part of the request's ``field``."""
    try:
        yield
    except InvalidField as error:
        raise InvalidField(violation.under(field) for violation in error.field_violations) from None
