"""Which stored memory stands for a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrubjay.memory import ClientId, Memory, MemoryId, Micros, PrivacyLevel, Source
from server.ingest.duplicates import Repeat, repeat_of, stands_for
from server.ingest.wording import Likeness

WEB, PHONE = ClientId("web"), ClientId("phone")
NOW = Micros(1_796_000_000_000_000)
DAY = 86_400_000_000


def memory(number: int, content: str = "I like tea.", **fields: Any) -> Memory:
    given = {"created_at": Micros(NOW - DAY + number), "user_id": "alice", "owner_client_id": WEB, **fields}
    return Memory(MemoryId(f"00000000-0000-7000-8000-{number:012}"), content, **given)


STANDING = memory(1, metadata={"n": 1}, source=Source(role="user"), expires_at=Micros(NOW + DAY))
NEW = memory(2, metadata={"n": 1}, source=Source(role="user"), expires_at=Micros(NOW + DAY))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tags": frozenset({"a"})},
        {"metadata": {}},
        {"metadata": {"n": 1, "m": 2}},
        {"source": Source()},
        {"source": Source(role="user", conversation_id="c2")},
        {"owner_client_id": PHONE},
        {"confidence": 0.5},
    ],
)
def test_what_does_not_matter_keeps_no_memory_from_standing(fields: dict[str, Any]) -> None:
    assert stands_for(STANDING, replace(NEW, **fields), WEB, NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"scope": "work"},
        {"user_id": "bob"},
        {"agent_id": "coder"},
        {"run_id": "r1"},
        {"category": "TASK"},
        {"privacy_level": PrivacyLevel.PRIVATE},
        {"pinned": True},
        {"metadata": {"n": True}},
        {"source": Source(role="assistant")},
        {"valid_from": Micros(NOW)},
        {"valid_to": Micros(NOW)},
        {"expires_at": None},
    ],
)
def test_what_matters_makes_it_another_one(fields: dict[str, Any]) -> None:
    assert not stands_for(STANDING, replace(NEW, **fields), WEB, NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"superseded_by": MemoryId("00000000-0000-7000-8000-000000000009")},
        {"expires_at": Micros(NOW - 1)},
        {"privacy_level": PrivacyLevel.PRIVATE, "owner_client_id": PHONE},
    ],
)
def test_what_is_replaced_expired_or_hidden_stands_for_nothing(fields: dict[str, Any]) -> None:
    standing = replace(STANDING, **fields)
    assert not stands_for(standing, replace(standing, id=NEW.id), WEB, NOW)


def test_the_most_alike_stands_and_of_equal_ones_the_oldest() -> None:
    near, later, older = memory(1, "I really like tea"), memory(3), memory(2)
    found = repeat_of(memory(9, "i like TEA"), [near, later, older], WEB, NOW)
    assert found == Repeat(older.id, Likeness.SAME)
    assert repeat_of(memory(9, "I do like tea"), [near], WEB, NOW) == Repeat(near.id, Likeness.NEAR)
    assert repeat_of(memory(9, "I like rice"), [near, later, older], WEB, NOW) is None


_memories = st.builds(
    memory,
    st.integers(1, 3),
    st.sampled_from(["I like tea.", "I really like tea", "I don't like tea"]),
    scope=st.sampled_from(["general", "work"]),
    privacy_level=st.sampled_from([PrivacyLevel.PRIVATE, PrivacyLevel.SHARED]),
    owner_client_id=st.sampled_from([WEB, PHONE]),
    expires_at=st.sampled_from([None, Micros(NOW - 1), Micros(NOW + DAY)]),
)


@given(_memories, st.lists(_memories, max_size=4), st.sampled_from([WEB, PHONE]))
def test_nobody_is_answered_with_what_is_hidden_gone_or_elsewhere(
    new: Memory, known: list[Memory], client_id: ClientId
) -> None:
    found = repeat_of(new, known, client_id, NOW)
    if found is not None:
        standing = [one for one in known if one.id == found.of and stands_for(one, new, client_id, NOW)]
        assert standing
        for one in standing:
            assert one.privacy_level is PrivacyLevel.SHARED or one.owner_client_id == client_id
            assert one.expires_at is None or one.expires_at > NOW
            assert (one.scope, one.privacy_level) == (new.scope, new.privacy_level)
