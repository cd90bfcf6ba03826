"""A server that stands still for a moment: callers give up and repeat, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import grpc

from fault import evidence
from fault.conftest import Start
from fault.load import Client, UntilEnough, Writer, check_stored, code_of, working

WRITERS = 16


def test_repeats_to_a_server_that_stood_still_are_done_once(
    start: Start, data_dir: Path, tmp_path: Path
) -> None:
    server = start()
    writers = [Writer(f"writer {n}", 0, n) for n in range(WRITERS)]
    until_enough = UntilEnough()
    with (
        Client.opened(server.address, server.service_key) as client,
        working([client], writers, until_enough, seconds=0.5),
    ):
        for _ in range(3):
            until_enough.wait(acknowledged=50)
            server.pause()
            until_enough.wait(errors=2 * WRITERS)
            server.resume()
        until_enough.wait(acknowledged=50)
        until_enough.end()
    assert {code_of(error) for error in until_enough.errors} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert server.stop() == 0
    check_stored(evidence.of_files(data_dir, tmp_path / "copies"), writers)
