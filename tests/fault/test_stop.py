"""SIGTERM: calls that run get their answer, and the files are left as after any clean end."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import grpc

from fault import evidence
from fault.conftest import Start
from fault.load import Client, UntilLost, Writer, check_stored, working
from scrubjay import connect, v1

WRITERS = 16


def test_sigterm_under_load_answers_what_it_did_and_folds_the_logs(
    start: Start, data_dir: Path, tmp_path: Path
) -> None:
    server = start()
    writers = [Writer(f"writer {n}", 0, n) for n in range(WRITERS)]
    # CANCELLED: gRPC had not begun the call when the server stopped taking any.
    until_lost = UntilLost(100, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    with (
        Client.opened(server.address, server.service_key) as client,
        working([client], writers, until_lost),
    ):
        assert until_lost.passed.wait(30)
        assert server.stop() == 0
    assert [file.name for file in data_dir.iterdir() if file.name.endswith(("-wal", "-shm"))] == []
    for writer in writers:
        writer.unanswered = None  # what was not answered was not done
    check_stored(evidence.of_files(data_dir, tmp_path / "copies"), writers)
    assert start().stop() == 0


def test_callers_that_retry_hear_of_a_stopped_server_only_that_it_is_unavailable(start: Start) -> None:
    key = ""
    for seed in range(3):
        server = start()
        key = key or server.service_key
        writers = [Writer(f"writer {n} of {seed}", 0, WRITERS * seed + n) for n in range(WRITERS)]
        until_lost = UntilLost(100, grpc.StatusCode.UNAVAILABLE)
        with (
            connect(server.address, key) as channel,
            working([Client(channel)], writers, until_lost),
        ):
            assert until_lost.passed.wait(30)
            assert server.stop() == 0


def test_a_write_that_waits_for_the_database_when_sigterm_comes_is_answered(
    start: Start, data_dir: Path
) -> None:
    server = start()
    files = sorted(data_dir.glob("shard-*.db"))
    with Client.opened(server.address, server.service_key) as client, ThreadPoolExecutor(2) as pool:
        client.send(v1.AddRequest(memories=[v1.Memory(user_id="alice", content="before")]))
        holders = [sqlite3.connect(file, isolation_level=None) for file in files]
        for holder in holders:
            holder.execute("BEGIN IMMEDIATE")
        request = v1.AddRequest(memories=[v1.Memory(user_id="alice", content="under way")])
        answer = pool.submit(client.send, request)
        client.send(v1.ListRequest(user_id="alice"))  # behind the write on one connection
        ended = pool.submit(server.stop)
        for holder in holders:
            with closing(holder):
                holder.execute("ROLLBACK")
        assert answer.result().results[0].memory.content == "under way"
        assert ended.result() == 0
