"""Sync through two servers on one PostgreSQL database at once: any of them may serve any device."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from scrubjay import v1
from scrubjay.feed import bucket_digests, digest
from scrubjay.memory import MemoryId, Subject, id_bytes
from scrubjay.operation import OperationId
from scrubjay.stamp import CommitStamp
from tests.devices import Device, Server

BATCHES, SIZE = 8, 10


@pytest.fixture
def servers(postgres_shard_url: str, tmp_path: Path) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server(postgres_shard_url, tmp_path / str(n))) for n in range(2)]


def test_devices_at_two_servers_lose_nothing_of_each_other(servers: list[Server]) -> None:
    first = servers[0].device("first")
    shared = first.create("shared")
    first.sync(shared)

    def write(n: int) -> None:
        device = servers[n % 2].device(f"device-{n}")
        for batch in range(BATCHES):
            made = [device.create(f"{n} {batch} {k}") for k in range(SIZE)]
            edit = device.set(shared.memory_id, {f"metadata.{n}-{batch}": batch})
            assert set(device.sync(*made, edit).statuses) == {"APPLIED"}

    def read(n: int) -> tuple[Device, dict[MemoryId, CommitStamp]]:
        device, held = servers[n % 2].device("reader"), {}
        for _ in range(4 * BATCHES):
            held |= {told.memory_id: told.commit_stamp for told in device.pull(max_bytes=2000)}
        return device, held

    with ThreadPoolExecutor(6) as pool:
        writers = [pool.submit(write, n) for n in range(4)]
        readers = [pool.submit(read, n) for n in range(2)]
        for writer in writers:
            writer.result()
        read_by = [reader.result() for reader in readers]
    for n, (device, held) in enumerate(read_by):
        moved = Device(servers[1 - n], device.client_id, cursor=device.cursor)
        held |= {told.memory_id: told.commit_stamp for told in moved.pull()}
        response = moved.sync(include_digest=True).response
        assert len(held) == 4 * BATCHES * SIZE + 1
        assert digest(bucket_digests((id_bytes(i), stamp) for i, stamp in held.items())) == response.digest
    whole = [told for told in servers[1].device("late").pull() if told.memory_id == shared.memory_id]
    assert len(whole[0].change.memory.metadata) == 4 * BATCHES


def test_one_id_made_in_two_streams_at_once_is_made_in_one(servers: list[Server]) -> None:
    for round_number in range(10):
        devices = [
            servers[n].device("phone", subject=Subject("user", name)) for n, name in enumerate(("al", "bo"))
        ]
        memory_id = devices[0].create().memory_id
        operation_id = OperationId(devices[0].create().memory_id)

        def make(
            device: Device,
            content: str = f"fact {round_number}",
            memory_id: str = memory_id,
            operation_id: str = operation_id,
        ) -> v1.OperationStatus.ValueType:
            create = device.create(content, memory_id=memory_id, operation_id=operation_id)
            return device.sync(create).response.results[0].status

        with ThreadPoolExecutor(2) as pool:
            ends = sorted(pool.map(make, devices))
        assert ends == [v1.OPERATION_STATUS_APPLIED, v1.OPERATION_STATUS_REJECTED]


def test_one_batch_sent_to_two_servers_is_taken_once(servers: list[Server]) -> None:
    phone = servers[0].device("phone")
    request = phone.request(*(phone.create(f"fact {n}") for n in range(20)))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: servers[n % 2].sync.sync(request, phone.caller), range(4)))
    first = [answer for answer in answers if answer.results[0].status == v1.OPERATION_STATUS_APPLIED]
    assert len(first) == 1
    for answer in answers:
        if answer is not first[0]:
            assert {one.status for one in answer.results} == {v1.OPERATION_STATUS_DUPLICATE}
            assert [one.commit_stamp for one in answer.results] == [
                one.commit_stamp for one in first[0].results
            ]
    assert len(servers[1].device("late").pull()) == 20
