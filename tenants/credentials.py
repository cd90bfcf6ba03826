"""Credentials as text: an API key, an enrolment code, a device's token.

    sj_live_<id>_<secret><crc>                 sj_enrol_<id>_<secret><crc>
    sj_device_<id>_<generation>_<secret><crc>

The id is public and finds the row; the generation counts a device's tokens; the secret is 160 bits that
look random; the checksum covers everything before it, so a mistyped credential is refused without a
database read and a scanner recognises a leaked one. All but the generation, a decimal, are base 32 in lower
case without the look-alikes i, l, o and u. A database holds only the HMAC of a whole key or code under a
pepper that it does not know, and of tokens only a seed: a token follows from the pepper, the seed and its
generation, so that the same one can be given again. Secrets are random or as good, so a slow hash would add
nothing.
"""

from __future__ import annotations

import base64
import hmac
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum

KEY_ID_BYTES = 10
SECRET_BYTES = 20
MAX_GENERATION = 10**12 - 1
"""A token an hour for a hundred million years; it fits the database's integers."""

_ALPHABET = b"0123456789abcdefghjkmnpqrstvwxyz"
_FROM_RFC_4648 = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", _ALPHABET)
_CHECKSUM_BYTES = 5
_LETTERS = f"[{_ALPHABET.decode()}]"
_KEY_ID = re.compile(rf"{_LETTERS}{{16}}")
_GENERATION = "[1-9][0-9]{0,11}"
_CREDENTIAL = re.compile(
    rf"(sj_(live|enrol|device)_({_LETTERS}{{16}})_(?:({_GENERATION})_)?{_LETTERS}{{32}})({_LETTERS}{{8}})"
)


class CredentialKind(StrEnum):
    """What a credential opens; the value is its second part."""

    API_KEY = "live"
    ENROLMENT = "enrol"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class ParsedCredential:
    """The public parts of a credential. ``generation`` is a device token's, from 1; 0 elsewhere."""

    kind: CredentialKind
    id: str
    generation: int = 0


def new_key_id(randomness: bytes) -> str:
    """The public part of a credential, 16 letters of ``KEY_ID_BYTES`` random bytes."""
    return _encode(randomness, KEY_ID_BYTES)


def is_key_id(text: str) -> bool:
    """Whether ``text`` is made as ``new_key_id`` makes it."""
    return _KEY_ID.fullmatch(text) is not None


def new_key(key_id: str, secret: bytes) -> str:
    """The whole API key of a key id and ``SECRET_BYTES`` secret bytes; ValueError for anything else."""
    return _text(ParsedCredential(CredentialKind.API_KEY, key_id), secret)


def new_code(enrolment_id: str, secret: bytes) -> str:
    """The whole enrolment code, as ``new_key`` makes a key."""
    return _text(ParsedCredential(CredentialKind.ENROLMENT, enrolment_id), secret)


def new_token(device_id: str, generation: int, secret: bytes) -> str:
    """A device's token of one generation, 1 to ``MAX_GENERATION``, as ``new_key`` makes a key."""
    if not 1 <= generation <= MAX_GENERATION:
        raise ValueError(f"not a generation: {generation}")
    return _text(ParsedCredential(CredentialKind.DEVICE, device_id, generation), secret)


def parse(text: str) -> ParsedCredential | None:
    """The parts of a well-formed credential, None for any other text. Says nothing about who may use it."""
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        return None
    body, kind_text, key_id, generation, checksum = found.groups()
    kind = CredentialKind(kind_text)
    if checksum != _checksum(body) or (generation is None) == (kind is CredentialKind.DEVICE):
        return None
    return ParsedCredential(kind, key_id, int(generation or 0))


def key_digest(pepper: bytes, credential: str) -> bytes:
    """What is stored of a key or code: 32 bytes of HMAC-SHA256."""
    return hmac.digest(pepper, credential.encode(), "sha256")


def same_digest(one: bytes, other: bytes) -> bool:
    """Equality in a time that does not tell where two digests differ."""
    return hmac.compare_digest(one, other)


def derive_secret(pepper: bytes, seed: bytes, *names: str) -> bytes:
    """``SECRET_BYTES`` secret bytes of ``names`` that only the pepper and the seed together give again.

    ``names`` say what it is the secret of; none holds a NUL.
    """
    named = "".join(f"{name}\0" for name in names).encode()
    return hmac.digest(pepper, named + seed, "sha256")[:SECRET_BYTES]


def _text(parts: ParsedCredential, secret: bytes) -> str:
    if not is_key_id(parts.id):
        raise ValueError(f"not a key id: {parts.id!r}")
    generation = f"{parts.generation}_" if parts.generation else ""
    body = f"sj_{parts.kind}_{parts.id}_{generation}{_encode(secret, SECRET_BYTES)}"
    return body + _checksum(body)


def _checksum(body: str) -> str:
    return _encode(zlib.crc32(body.encode()).to_bytes(_CHECKSUM_BYTES, "big"), _CHECKSUM_BYTES)


def _encode(value: bytes, size: int) -> str:
    if len(value) != size:
        raise ValueError(f"expected {size} bytes, not {len(value)}")
    return base64.b32encode(value).translate(_FROM_RFC_4648).decode()
