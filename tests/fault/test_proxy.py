"""The bad network does what its plan says, to the byte, and keeps what passed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.proxy import Fault, Kind, Proxy, Way, seeded


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_echo, args=(peer,)).start()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def _echo(peer: socket.socket) -> None:
    with peer:
        try:
            while data := peer.recv(65536):
                peer.sendall(data)
        except OSError:
            return


@pytest.fixture
def proxy(echo: str, tmp_path: Path) -> Iterator[Proxy]:
    """Lines to it."""
    with Proxy(echo, tmp_path / "wire") as proxy:
        yield proxy


def _connected(address: str, seconds: float = 10) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=seconds)


def _received(peer: socket.socket, size: int) -> bytes:
    """What comes until ``size`` bytes are here or the connection ends."""
    found = b""
    try:
        while len(found) < size and (data := peer.recv(size - len(found))):
            found += data
    except ConnectionError:
        pass
    return found


@pytest.mark.parametrize("way", Way)
def test_a_cut_lets_exactly_so_many_bytes_pass_and_resets(proxy: Proxy, way: Way) -> None:
    line = proxy.line("a", lambda _: Fault(Kind.CUT, way, after_bytes=70_001))
    with _connected(line.address) as peer:
        sender = threading.Thread(target=_send_all, args=(peer, b"x" * 200_000))
        sender.start()
        assert len(_received(peer, 200_000)) <= 70_001
        sender.join()
    assert line.bytes_passed(way) == 70_001


def _send_all(peer: socket.socket, data: bytes) -> None:
    try:
        peer.sendall(data)
    except OSError:
        return


def test_a_half_open_line_goes_on_the_other_way_and_says_nothing(proxy: Proxy) -> None:
    line = proxy.line("a", lambda _: Fault(Kind.HALF_OPEN, Way.DOWN, after_bytes=4))
    with _connected(line.address, seconds=0.2) as peer:
        peer.sendall(b"hello")
        assert _received(peer, 4) == b"hell"
        peer.sendall(b" you")
        with pytest.raises(TimeoutError):
            peer.recv(1)
        assert line.bytes_passed(Way.UP) == 9
        line.heal()
        peer.settimeout(10)
        assert _received(peer, 1) == b""
    with _connected(line.address) as peer:
        peer.sendall(b"hello")
        assert _received(peer, 5) == b"hello"


def test_a_stalled_line_loses_nothing(proxy: Proxy) -> None:
    line = proxy.line("a", lambda _: Fault(Kind.STALL, Way.UP, after_bytes=4, seconds=0.3))
    with _connected(line.address) as peer:
        began = time.monotonic()
        peer.sendall(b"hello")
        peer.sendall(b" you")
        assert _received(peer, 9) == b"hello you"
        assert time.monotonic() - began >= 0.3


def test_a_slow_line_takes_its_time(proxy: Proxy) -> None:
    line = proxy.line("a", lambda _: Fault(delay_seconds=0.1, bits_per_second=800_000))
    with _connected(line.address) as peer:
        began = time.monotonic()
        peer.sendall(b"x" * 20_000)
        assert len(_received(peer, 20_000)) == 20_000
        # Up and down at 100 000 bytes a second, which overlap but for a piece, and a delay each way.
        assert 0.4 <= time.monotonic() - began < 0.9


def test_refused_and_serverless_connections_end_at_once(proxy: Proxy) -> None:
    line = proxy.line("a", lambda number: Fault(Kind.REFUSE) if number == 0 else Fault())
    with _connected(line.address) as peer:
        assert _received(peer, 1) == b""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        proxy.target = f"127.0.0.1:{taken.getsockname()[1]}"
    with _connected(line.address) as peer:
        assert _received(peer, 1) == b""


def test_a_plan_is_a_function_of_its_seed() -> None:
    plans = [[seeded(seed, name)(n) for n in range(50)] for seed, name in ((1, "a"), (1, "a"), (1, "b"))]
    assert plans[0] == plans[1] != plans[2]
    assert {fault.kind for fault in plans[0]} == set(Kind)
