"""Laws of every search: scores lie in 0 to 1, are the sum of their parts, and depend on memories alone."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrubjay.memory import ClientId, Memory, MemoryId, Micros, PrivacyLevel, Source
from server.index import switch
from server.recall.recipes import RECIPES
from server.recall.search import Hit
from tests.residents import DAY, feeding
from tests.stored import NOW

WORDS = ("tea", "milk", "report", "train", "茶", "报告", "TCK-48213")
IDS = [MemoryId(f"019ad1c0-0000-7000-8000-{n:012d}") for n in range(8)]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
times = st.integers(-3, 30).map(lambda days: Micros(NOW - days * DAY))
memories = st.lists(
    st.builds(
        Memory,
        id=st.sampled_from(IDS),
        content=texts,
        created_at=times,
        user_id=st.just("alice"),
        owner_client_id=st.sampled_from([ClientId("web"), ClientId("phone")]),
        category=st.sampled_from(["FACT", "TASK"]),
        tags=st.frozensets(st.sampled_from(WORDS), max_size=2),
        source=st.builds(
            Source,
            conversation_id=st.sampled_from(["", "c"]),
            role=st.sampled_from(["", "user", "assistant"]),
        ),
        privacy_level=st.sampled_from([PrivacyLevel.PRIVATE, PrivacyLevel.SHARED]),
        expires_at=st.none() | times,
        superseded_by=st.none() | st.sampled_from(IDS),
    ),
    max_size=len(IDS),
    unique_by=lambda one: one.id,
)


def told(hits: list[Hit]) -> list[tuple[MemoryId, float]]:
    return [(hit.row.memory.id, hit.score) for hit in hits]


@settings(max_examples=60, deadline=None)
@given(
    memories, texts, st.sampled_from(sorted(RECIPES)), st.integers(1, 9), st.randoms(use_true_random=False)
)
def test_a_score_is_the_sum_of_its_parts_and_the_order_that_of_scores(
    stored: list[Memory], text: str, recipe: str, top_k: int, shuffle: random.Random
) -> None:
    with feeding(stored) as feed:
        hits = feed.hits(text, recipe, top_k=top_k)
        rest = feed.hits(text, recipe, top_k=len(IDS) + 1)
    for hit in hits:
        assert 0 <= hit.score <= 1
        assert sum(part.value for part in hit.contributions.values()) == pytest.approx(hit.score, abs=1e-9)
    assert told(hits) == told(rest)[:top_k]
    assert all(over.score >= under.score for over, under in pairwise(rest))
    found = {hit.row.memory.id: hit.score for hit in rest}
    shuffle.shuffle(stored)
    with feeding() as feed:
        for one in stored:
            feed.put(replace(one, content="something else"))
            feed.put(one)
        assert told(feed.hits(text, recipe, top_k=top_k)) == told(hits)
    with pytest.MonkeyPatch.context() as patch, feeding() as feed:
        patch.setattr(switch, "EXACT_ROWS", 0)
        for one in stored:
            feed.put(one)
        graph = feed.hits(text, recipe, top_k=len(IDS) + 1)
        assert {hit.row.memory.id: hit.score for hit in graph} == pytest.approx(found, abs=1e-6)
