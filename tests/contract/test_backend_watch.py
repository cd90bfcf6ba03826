"""MemoryService's Watch on both databases: what a token is good for once the server has forgotten."""

from __future__ import annotations

import pytest

from scrubjay import v1
from scrubjay.errors import WatchTokenExpired
from scrubjay.stamp import CommitStamp
from server.ending import Ending
from tests.devices import Server


def add(server: Server, content: str) -> str:
    """A memory of alice; its id."""
    server.wait()
    request = v1.AddRequest(memories=[v1.Memory(user_id="alice", content=content)])
    return server.memories.add(request, server.service()).results[0].memory.id


def next_response(server: Server, token: str = "") -> v1.MemoryServiceWatchResponse:
    """The first response behind the token."""
    request = v1.MemoryServiceWatchRequest(user_id="alice", resume_token=token)
    ending = Ending()
    responses = server.memories.watch(request, server.service(), ending)
    try:
        return next(responses)
    finally:
        ending.end()


def forget(server: Server) -> None:
    """Collect what was deleted up to now."""
    server.wait()
    server.shard.collect(CommitStamp(server.now // 1000 << 16), lambda: False)


def test_a_token_whose_deletions_are_forgotten_is_refused(server: Server) -> None:
    memory_id = add(server, "tea")
    token = next_response(server).resume_token
    server.wait()
    server.memories.delete(v1.DeleteRequest(id=memory_id), server.service())
    newer = next_response(server).resume_token
    forget(server)
    with pytest.raises(WatchTokenExpired):
        next_response(server, token)
    assert not next_response(server, newer).changes


def test_a_token_of_another_epoch_is_refused(server: Server) -> None:
    add(server, "tea")
    token = next_response(server).resume_token
    server.store.begin_epochs(server.now // 1000)
    with pytest.raises(WatchTokenExpired):
        next_response(server, token)


def test_a_token_holds_while_nothing_was_forgotten(server: Server) -> None:
    add(server, "tea")
    token = next_response(server).resume_token
    forget(server)
    newer = add(server, "coffee")
    assert [change.memory_id for change in next_response(server, token).changes] == [newer]
