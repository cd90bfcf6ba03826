"""Credentials and page tokens as text: what was made is read back, and nothing else is."""

from __future__ import annotations

import base64
import string
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrubjay.errors import InvalidField
from tenants.credentials import (
    KEY_ID_BYTES,
    MAX_GENERATION,
    SECRET_BYTES,
    CredentialKind,
    ParsedCredential,
    derive_secret,
    is_key_id,
    key_digest,
    new_code,
    new_key,
    new_key_id,
    new_token,
    parse,
    same_digest,
)
from tenants.page_token import seal, unseal

PEPPER = b"p" * 32
KEY_OF_THIS_FORMAT = "sj_live_000g40r40m30e209_000g40r40m30e209185gr38e1w8124gk02ew2w3y"
CODE_OF_THIS_FORMAT = "sj_enrol_000g40r40m30e209_000g40r40m30e209185gr38e1w8124gk02m42dnw"
TOKEN_OF_THIS_FORMAT = "sj_device_000g40r40m30e209_12_000g40r40m30e209185gr38e1w8124gk03x1swsk"

key_ids = st.binary(min_size=KEY_ID_BYTES, max_size=KEY_ID_BYTES).map(new_key_id)
secrets = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)
generations = st.integers(1, MAX_GENERATION)
keys = (
    st.builds(new_key, key_ids, secrets)
    | st.builds(new_code, key_ids, secrets)
    | st.builds(new_token, key_ids, generations, secrets)
)
LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
any_text = st.text(st.characters(exclude_categories=()))


def with_checksum(body: str) -> str:
    crc = zlib.crc32(body.encode())
    return body + "".join(LETTERS[crc >> shift & 31] for shift in range(35, -1, -5))


@given(key_ids, secrets)
def test_a_key_gives_its_id_back(key_id: str, secret: bytes) -> None:
    key = new_key(key_id, secret)
    assert parse(key) == ParsedCredential(CredentialKind.API_KEY, key_id)
    assert is_key_id(key_id)
    assert key.startswith(f"sj_live_{key_id}_")
    assert not set(key.removeprefix("sj_live_")) & set("ilou")


@given(key_ids, secrets, generations)
def test_codes_and_tokens_give_their_parts_back(id_: str, secret: bytes, generation: int) -> None:
    code, token = new_code(id_, secret), new_token(id_, generation, secret)
    assert parse(code) == ParsedCredential(CredentialKind.ENROLMENT, id_)
    assert parse(token) == ParsedCredential(CredentialKind.DEVICE, id_, generation)
    assert code.startswith(f"sj_enrol_{id_}_")
    assert token.startswith(f"sj_device_{id_}_{generation}_")


def test_a_generation_is_a_tokens_alone_and_never_without() -> None:
    id_, secret = new_key_id(bytes(KEY_ID_BYTES)), bytes(SECRET_BYTES)
    token, key = new_token(id_, 7, secret), new_key(id_, secret)
    for text in (token.replace("device", "live"), key.replace("live", "device")):
        assert parse(with_checksum(text[:-8])) is None
    assert parse(with_checksum(token[:-8])) is not None
    for generation in (0, -1, MAX_GENERATION + 1):
        with pytest.raises(ValueError, match="not a generation"):
            new_token(id_, generation, secret)


@given(any_text)
@example("")
@example("sj_live_")
@example("sj_live_\udcff")
@example("sj_live_0000000000000000_" + "0" * 40)
@example("sj_live_0000000000000000_" + "٠" * 40)
@example("sj_device_0000000000000000_٣_" + "0" * 40)
def test_no_text_but_a_key_is_one_and_none_raises(text: str) -> None:
    assert parse(text) is None
    assert not is_key_id(text) or len(text) == 16


@given(keys, st.data())
def test_one_wrong_letter_is_noticed_without_a_database(key: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(key) - 1))
    letter = data.draw(st.sampled_from(string.printable).filter(lambda letter: letter != key[at]))
    assert parse(key[:at] + letter + key[at + 1 :]) is None


@given(keys, st.data())
def test_letters_swapped_dropped_or_added_are_noticed(key: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(key) - 2))
    swapped = key[:at] + key[at + 1] + key[at] + key[at + 2 :]
    assert swapped == key or parse(swapped) is None
    assert parse(key[:at] + key[at + 1 :]) is None
    assert parse(key[:at] + data.draw(st.sampled_from(string.printable)) + key[at:]) is None
    assert parse(key + "\n") is None
    assert parse(" " + key) is None
    assert parse(key.upper()) is None


@given(keys, keys)
def test_a_digest_tells_keys_and_peppers_apart(one: str, other: str) -> None:
    digest = key_digest(PEPPER, one)
    assert len(digest) == 32
    assert same_digest(digest, key_digest(PEPPER, one))
    assert same_digest(digest, key_digest(PEPPER, other)) == (one == other)
    assert not same_digest(digest, key_digest(b"q" * 32, one))


@given(secrets, key_ids)
def test_a_derived_secret_is_the_same_again_and_needs_the_pepper(seed: bytes, key_id: str) -> None:
    secret = derive_secret(PEPPER, seed, key_id)
    assert secret == derive_secret(PEPPER, seed, key_id)
    assert secret != derive_secret(b"q" * 32, seed, key_id)
    assert secret != derive_secret(PEPPER, seed + b"x", key_id)
    assert secret != derive_secret(PEPPER, seed, key_id, "2")
    assert len(secret) == SECRET_BYTES


def test_a_short_secret_or_a_made_up_id_makes_no_key() -> None:
    with pytest.raises(ValueError, match="not a key id"):
        new_key("admin", bytes(SECRET_BYTES))
    with pytest.raises(ValueError, match="expected 20 bytes"):
        new_key(new_key_id(bytes(KEY_ID_BYTES)), b"secret")


def test_the_format_is_the_same_in_every_release() -> None:
    key_id = new_key_id(bytes(range(10)))
    assert new_key(key_id, bytes(range(20))) == KEY_OF_THIS_FORMAT
    assert new_code(key_id, bytes(range(20))) == CODE_OF_THIS_FORMAT
    assert new_token(key_id, 12, bytes(range(20))) == TOKEN_OF_THIS_FORMAT


# --- page tokens ----------------------------------------------------------------------------------

values = st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.text())


@given(values, st.text())
def test_a_page_token_gives_its_values_back(sealed: tuple[str, int, str], purpose: str) -> None:
    token = seal(PEPPER, purpose, sealed)
    assert unseal(PEPPER, purpose, token, (str, int, str)) == sealed
    assert set(token) <= set(string.ascii_letters + string.digits + "-_")


@given(any_text)
@example("=")
@example("A")
@example("AAAA====")
@example("é")
def test_no_other_text_is_a_page_token_and_none_raises_anything_else(text: str) -> None:
    with pytest.raises(InvalidField, match="page_token"):
        unseal(PEPPER, "tenants", text, (str,))


@given(st.text(), st.data())
def test_a_changed_page_token_is_refused(value: str, data: st.DataObject) -> None:
    sealed = bytearray(base64.urlsafe_b64decode(seal(PEPPER, "tenants", (value,)) + "=="))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidField):
        unseal(PEPPER, "tenants", base64.urlsafe_b64encode(sealed).decode().rstrip("="), (str,))


@pytest.mark.parametrize("value", ["acme", "acme1", "acme12"])
def test_a_page_token_in_another_writing_is_refused(value: str) -> None:
    token = seal(PEPPER, "tenants", (value,))
    base64_letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    others = {token + "=", token + "==", token.replace("-", "+").replace("_", "/")}
    others |= {token[:-1] + letter for letter in base64_letters}
    for other in others - {token}:
        with pytest.raises(InvalidField):
            unseal(PEPPER, "tenants", other, (str,))


@pytest.mark.parametrize(
    ("secret", "purpose", "types"),
    [(b"other", "tenants", (str,)), (PEPPER, "memories", (str,)), (PEPPER, "tenants", (int,))],
    ids=["another secret", "another list", "other types"],
)
def test_a_page_token_of_something_else_is_refused(
    secret: bytes, purpose: str, types: tuple[type[str]]
) -> None:
    token = seal(PEPPER, "tenants", ("acme",))
    with pytest.raises(InvalidField, match="next_page_token as it came"):
        unseal(secret, purpose, token, types)
