"""Devices that sync over a bad network with a server, all killed and paused at any moment: nothing that an
app was told is lost, nothing deleted comes back, nobody sees what is not theirs, and all end alike.

``python -m tests.fault.sync_storm`` does it for as long as you like.
"""

from __future__ import annotations

from pathlib import Path

from tests.fault import served, sync_storm


def test_devices_and_a_server_that_are_killed_on_a_bad_network_end_alike(tmp_path: Path) -> None:
    seen = sync_storm.run(tmp_path, seconds=12, clients=6, seed=1)
    print(seen)  # shown where the test fails
    assert seen.faults["server killed"]
    assert seen.faults["device killed"]
    assert seen.memories > 20


def test_devices_and_a_server_on_postgresql_that_are_killed_end_alike(
    tmp_path: Path, postgres_url: str
) -> None:
    def read() -> served.Served:
        return served.of_postgres(postgres_url)

    seen = sync_storm.run(tmp_path, seconds=5, clients=5, seed=2, read=read, shards=postgres_url)
    print(seen)
    assert seen.memories > 10
