"""Pages of the lists that TenantAdminService gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from scrubjay.errors import InvalidField
from tenants.page_token import seal, unseal

DEFAULT_PAGE = 100
MAX_PAGE = 1000
"""A page of 1 000 tenants or devices is some 300 KB; gRPC refuses messages past 4 MB."""
MAX_PAGE_BYTES = 3 * 1024 * 1024
"""Where a page ends even if more was asked for: a tenant or a key may have many long rules."""

Row = TypeVar("Row")
Told = TypeVar("Told", bound=Message)


class Paged(Protocol):
    """A request for a page of a list."""

    @property
    def page_size(self) -> int: ...
    @property
    def page_token(self) -> str: ...


def page_of(
    request: Paged,
    secret: bytes,
    purpose: str,
    types: tuple[type, ...],
    *,
    find: Callable[..., Sequence[Row]],
    key: Callable[[Row], tuple[str | int, ...]],
    message: Callable[[Row], Told],
) -> tuple[list[Told], str]:
    """The page that is asked for, and the token of the one behind it, if there is one.

    ``find`` gives at most so many rows, from the first one on, or behind the values of a row's ``key``, which
    are of these ``types``. ``purpose`` binds the token to the list. Raises InvalidField.
    """
    size = _limit(request.page_size)
    after = unseal(secret, purpose, request.page_token, types) if request.page_token else ()
    found = find(size + 1, *after)
    page = _fitting(map(message, found[:size]))
    more = len(found) > len(page)
    return page, seal(secret, purpose, key(found[len(page) - 1])) if more else ""


def _limit(page_size: int) -> int:
    """How many a page has at most."""
    if not 0 <= page_size <= MAX_PAGE:
        raise InvalidField.of("page_size", f"is {page_size}; give 1 to {MAX_PAGE}, or 0 for {DEFAULT_PAGE}")
    return page_size or DEFAULT_PAGE


def _fitting(rows: Iterable[Told]) -> list[Told]:
    """As many of the first ones as a page may hold, at least one."""
    total, page = 0, list[Told]()
    for row in rows:
        total += row.ByteSize()
        if page and total > MAX_PAGE_BYTES:
            break
        page.append(row)
    return page
