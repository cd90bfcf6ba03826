"""Databases: one way to open and to migrate one, for the catalogue and for the shards.

SQLite is driven in its autocommit mode with every BEGIN sent from here, since the standard library's own
transaction control breaks BEGIN IMMEDIATE and savepoints. What a driver raises where a database does not
answer becomes StorageUnavailable here, for every engine, and its text stays in the exception's cause.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, exc, text
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from scrubjay.errors import ScrubjayError, StorageUnavailable

BUSY_TIMEOUT_MILLIS = 5_000
"""How long SQLite waits for a lock of another process, such as a backup."""
CONNECT_TIMEOUT_SECONDS = 5
POOL_TIMEOUT_SECONDS = 10
"""How long a caller waits for a free connection; a call's own deadline is longer."""
WAL_PAGES = 1_000
"""A SQLite writer folds its log back into the file every 4 MiB."""
WRITER_CACHE_KIB = 16 * 1024
"""Pages that a SQLite writer keeps: a full batch of operations changes some 4 MiB of them, and what does
not fit is written to the log before the commit, and maybe again."""
_MIGRATION_LOCK = 0x5C2B1A4
"""One advisory lock for all migrations of a PostgreSQL database: catalogue and shard may share it."""

_FAULTS_OF_THE_STATEMENT = {"IntegrityError", "ProgrammingError", "DataError", "NotSupportedError"}
"""As every driver of Python's database interface names them."""


class SchemaTooNew(ScrubjayError):
    """The database was migrated by a newer version of this program."""


class DatabaseUnusable(Exception):
    """The database does not answer, or does not let itself be migrated. Says in one line which, and why.

    For operators at a start or a migration: the line has the driver's own words.
    """

    def __init__(self, engine: Engine, cause: BaseException | None) -> None:
        words = next(iter(str(cause).strip().splitlines()), "no reason given")
        super().__init__(f"{engine.url.render_as_string()} can't be used: {words}")


def open_engine(url: str, *, read_only: bool = False, connections: int = 4) -> Engine:
    """An engine on ``sqlite:///<path>`` or ``postgresql://…``; nothing is connected yet.

    A SQLite file is written through one connection, whatever ``connections`` says, and each of its
    transactions begins as IMMEDIATE. A ``read_only`` engine sees one snapshot per transaction, on both.
    ValueError for any other URL.
    """
    parsed = make_url(url)
    options: dict[str, Any] = {"poolclass": _Pool, "max_overflow": 0, "pool_timeout": POOL_TIMEOUT_SECONDS}
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        size = connections if read_only else 1
        engine = create_engine(parsed, pool_size=size, connect_args=_SQLITE_CONNECT, **options)
        _drive_sqlite(engine, read_only)
    elif parsed.drivername in ("postgresql", "postgresql+psycopg"):
        parsed = parsed.set(drivername="postgresql+psycopg")
        options |= {"connect_args": _POSTGRES_CONNECT, "use_native_hstore": False}
        engine = create_engine(parsed, pool_size=connections, **options)
        if read_only:
            event.listen(engine, "connect", _read_snapshots)
    else:
        raise ValueError(f"{parsed.render_as_string()}: give sqlite:///<path> or postgresql://<host>/<name>")
    event.listen(engine, "handle_error", _as_storage_unavailable)
    return engine


def compact(engine: Engine) -> None:
    """Leave no byte of what was deleted in a SQLite file or its log: rewrite it. May be done again.

    It takes as long as copying the file and as much disk, and writers wait meanwhile. PostgreSQL takes such
    space back by itself. Raises StorageUnavailable where a reader or the disk is in the way.
    """
    if engine.dialect.name != "sqlite":
        return
    pooled = engine.raw_connection()
    try:
        driver: Any = pooled.driver_connection
        driver.execute("VACUUM").close()
        busy, *_ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except engine.dialect.loaded_dbapi.Error as error:
        raise_mapped(error)
    finally:
        pooled.close()
    if busy:
        raise StorageUnavailable


_SQLITE_CONNECT: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}

_POSTGRES_CONNECT: dict[str, Any] = {
    # Prepared statements outlive their transaction, and a transaction pooler's connection does not.
    "prepare_threshold": None,
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    # A peer that vanished without a word is noticed in 25 seconds, not in two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


class _Pool(QueuePool):
    def connect(self) -> PoolProxiedConnection:
        try:
            return super().connect()
        except exc.TimeoutError as error:
            raise StorageUnavailable from error


def _drive_sqlite(engine: Engine, read_only: bool) -> None:
    # A reader never checkpoints: some releases of SQLite corrupt a log that two connections fold at once.
    pragmas = [f"busy_timeout={BUSY_TIMEOUT_MILLIS}", "foreign_keys=ON"]
    if read_only:
        pragmas += ["wal_autocheckpoint=0", "query_only=ON"]
    else:
        pragmas += ["journal_mode=WAL", "synchronous=FULL", f"wal_autocheckpoint={WAL_PAGES}"]
        pragmas.append(f"cache_size=-{WRITER_CACHE_KIB}")
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"

    def prepare(connection: Any, _record: object) -> None:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", start)


def _read_snapshots(connection: Any, _record: object) -> None:
    from psycopg import IsolationLevel

    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True


def _as_storage_unavailable(context: ExceptionContext) -> StorageUnavailable | None:
    if is_fault_of_statement(context.original_exception):
        return None
    return StorageUnavailable()


def is_fault_of_statement(error: BaseException) -> bool:
    """Whether a driver's error is about the statement and its values, not about the database."""
    return any(kind.__name__ in _FAULTS_OF_THE_STATEMENT for kind in type(error).__mro__)


def raise_mapped(error: Exception) -> NoReturn:
    """Raise StorageUnavailable where a driver's error says so, else the error itself."""
    if is_fault_of_statement(error):
        raise error
    raise StorageUnavailable from error


# --- migrations ----------------------------------------------------------------------------------


def migrate(engine: Engine, scripts: Path, version_table: str) -> None:
    """Bring the database to the newest revision of an Alembic ``scripts`` folder, in one transaction.

    Safe to call from many processes at once; changes nothing where there is nothing to do. Raises
    SchemaTooNew for a database that a newer version has migrated, DatabaseUnusable.
    """
    config = _config(scripts)
    try:
        with engine.begin() as connection:
            _upgrade(connection, config, version_table)
    except StorageUnavailable as error:
        raise DatabaseUnusable(engine, error.__cause__) from error
    except exc.DBAPIError as error:
        raise DatabaseUnusable(engine, error.orig) from error


def _upgrade(connection: Connection, config: Config, version_table: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    if _revision(connection, config, version_table) != _newest(config):
        config.attributes.update(connection=connection, version_table=version_table)
        command.upgrade(config, "head")


def pending(engine: Engine, scripts: Path, version_table: str) -> bool:
    """Whether ``migrate`` has anything to do. Raises SchemaTooNew as it does."""
    config = _config(scripts)
    with engine.connect() as connection:
        return _revision(connection, config, version_table) != _newest(config)


def _config(scripts: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    return config


def _newest(config: Config) -> str | None:
    return ScriptDirectory.from_config(config).get_current_head()


def _revision(connection: Connection, config: Config, version_table: str) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": version_table})
    revision = context.get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        database = connection.engine.url.render_as_string()
        raise SchemaTooNew(
            f"{database} is at revision {revision!r} of {version_table}, which this version does not know; "
            "run the version that migrated it, or restore a backup from before"
        )
    return revision
