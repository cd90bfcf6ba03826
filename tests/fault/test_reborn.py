"""A tenant id that is deleted and made again, with writers of each life on every server: lives never meet."""

from __future__ import annotations

from pathlib import Path

from server.config import Settings
from tests.fault.reborn import run, serving
from tests.isolation.fields import Kind
from tests.postgres import PostgresServer

LIVES = 2
TOKENS = {Kind.PAGE_TOKEN, Kind.REVISION, Kind.CURSOR, Kind.WATCH_TOKEN, Kind.SNAPSHOT_TOKEN, Kind.PRINCIPAL}
THINGS = {Kind.MEMORY_BYTES, Kind.OPERATION, Kind.JOB, Kind.DEVICE, Kind.KEY, Kind.ETAG}


def test_lives_of_one_id_never_meet_on_one_server(tmp_path: Path) -> None:
    settings = Settings(listen="127.0.0.1:0", data_dir=tmp_path / "data", embedder="hash")
    with serving(settings, 1) as servers:
        counts = run(servers, lives=LIVES, tried=TOKENS | THINGS)
    assert counts["late writes refused"] == 2 * LIVES
    assert min(counts[name] for name in ("tried", "knocks", "writes", "writes refused")) > LIVES


def test_lives_of_one_id_never_meet_on_two_servers(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    settings = Settings(listen="127.0.0.1:0", data_dir=tmp_path, embedder="hash", pepper="of both")
    with serving(settings.model_copy(update={"shards": postgres_url}), 2) as servers:
        counts = run(servers, lives=LIVES, tried=TOKENS)
    assert counts["late writes refused"] == 4 * LIVES
    assert min(counts[name] for name in ("tried", "knocks", "writes", "writes refused")) > LIVES
