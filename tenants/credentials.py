"""API keys as text: ``sj_live_<id>_<secret><crc>``.

The id is public and finds the row; the secret is 160 random bits; the checksum covers everything before
it, so a mistyped key is refused without a database read and a scanner recognises a leaked one. All three
are base 32 in lower case without the look-alikes i, l, o and u. A database holds only the HMAC of the
whole key under a pepper that it does not know. The secret is random, so a slow hash would add nothing.
"""

from __future__ import annotations

import base64
import hmac
import re
import zlib

KEY_ID_BYTES = 10
SECRET_BYTES = 20

_ALPHABET = b"0123456789abcdefghjkmnpqrstvwxyz"
_FROM_RFC_4648 = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", _ALPHABET)
_CHECKSUM_BYTES = 5
_LETTERS = f"[{_ALPHABET.decode()}]"
_KEY_ID = re.compile(rf"{_LETTERS}{{16}}")
_KEY = re.compile(rf"(sj_live_({_LETTERS}{{16}})_{_LETTERS}{{32}})({_LETTERS}{{8}})")


def new_key_id(randomness: bytes) -> str:
    """The public part of a key, 16 letters of ``KEY_ID_BYTES`` random bytes."""
    return _encode(randomness, KEY_ID_BYTES)


def is_key_id(text: str) -> bool:
    """Whether ``text`` is made as ``new_key_id`` makes it."""
    return _KEY_ID.fullmatch(text) is not None


def new_key(key_id: str, secret: bytes) -> str:
    """The whole key of a key id and ``SECRET_BYTES`` secret bytes; ValueError for anything else."""
    if not is_key_id(key_id):
        raise ValueError(f"not a key id: {key_id!r}")
    body = f"sj_live_{key_id}_{_encode(secret, SECRET_BYTES)}"
    return body + _checksum(body)


def parse_key(text: str) -> str | None:
    """The key id of a well-formed key, None for any other text. Says nothing about who may use it."""
    found = _KEY.fullmatch(text)
    if found is None:
        return None
    body, key_id, checksum = found.groups()
    return key_id if checksum == _checksum(body) else None


def key_digest(pepper: bytes, key: str) -> bytes:
    """What is stored of a key: 32 bytes of HMAC-SHA256."""
    return hmac.digest(pepper, key.encode(), "sha256")


def same_digest(one: bytes, other: bytes) -> bool:
    """Equality in a time that does not tell where two digests differ."""
    return hmac.compare_digest(one, other)


def derive_secret(pepper: bytes, seed: bytes, key_id: str) -> bytes:
    """``SECRET_BYTES`` secret bytes that only the pepper and the seed together give again."""
    return hmac.digest(pepper, b"secret of an API key\0" + key_id.encode() + b"\0" + seed, "sha256")[
        :SECRET_BYTES
    ]


def _checksum(body: str) -> str:
    return _encode(zlib.crc32(body.encode()).to_bytes(_CHECKSUM_BYTES, "big"), _CHECKSUM_BYTES)


def _encode(value: bytes, size: int) -> str:
    if len(value) != size:
        raise ValueError(f"expected {size} bytes, not {len(value)}")
    return base64.b32encode(value).translate(_FROM_RFC_4648).decode()
