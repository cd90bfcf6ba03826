"""Page tokens: where a list goes on, sealed so that only this service can have written it.

Other tokens that a caller only carries, such as revisions, are sealed in the same way.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from scrubjay.errors import InvalidField

_MAC_BYTES = 16

A = TypeVar("A", str, int)
B = TypeVar("B", str, int)
C = TypeVar("C", str, int)


def seal(secret: bytes, purpose: str, values: Sequence[str | int]) -> str:
    """An opaque token of ``values`` in URL-safe letters.

    ``purpose`` is not in the token but binds it: name the list and everything a page depends on, such as
    the tenant's incarnation and the filter, so that a token cannot go on in another list.
    """
    payload = json.dumps(list(values), separators=(",", ":")).encode()
    return _text(_mac(secret, purpose, payload) + payload)


@overload
def unseal(secret: bytes, purpose: str, token: str, types: tuple[type[A]]) -> tuple[A]: ...
@overload
def unseal(secret: bytes, purpose: str, token: str, types: tuple[type[A], type[B]]) -> tuple[A, B]: ...
@overload
def unseal(
    secret: bytes, purpose: str, token: str, types: tuple[type[A], type[B], type[C]]
) -> tuple[A, B, C]: ...
@overload
def unseal(secret: bytes, purpose: str, token: str, types: tuple[type, ...]) -> tuple[str | int, ...]: ...
def unseal(secret: bytes, purpose: str, token: str, types: tuple[type[Any], ...]) -> tuple[Any, ...]:
    """The values sealed into ``token`` under the same secret and purpose.

    Raises InvalidField for ``page_token`` where the token is not one of this list.
    """
    values = opened(secret, purpose, token)
    if values is None or tuple(type(value) for value in values) != types:
        raise InvalidField.of(
            "page_token",
            "is no token of this list with these parameters; send next_page_token as it came, or nothing",
        )
    return tuple(values)


def opened(secret: bytes, purpose: str, token: str) -> list[str | int] | None:
    """The values sealed into ``token``, as many as they are; None where it is not one of this purpose.

    Only the text that ``seal`` made is one: the same bytes can be written in other ways.
    """
    try:
        sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if _text(sealed) != token:
        return None
    mac, payload = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(secret, purpose, payload)):
        return None
    values: list[str | int] = json.loads(payload)
    return values


def _text(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def _mac(secret: bytes, purpose: str, payload: bytes) -> bytes:
    return hmac.digest(secret, f"page token\0{purpose}\0".encode() + payload, "sha256")[:_MAC_BYTES]
