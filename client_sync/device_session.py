"""What the commands on a device have in common: who it is, its replica, and its way to the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from client_sync.credentials import DeviceCredentials
from client_sync.errors import Wiped
from client_sync.failures import ENROL, fail, failing_in_one_line, is_silence, silence, told, usage
from client_sync.home import Home
from client_sync.progress import bar
from client_sync.progress import told as told_by
from client_sync.replica import Replica
from client_sync.session import Output, Settings
from client_sync.sync import SyncReport, synchronize
from scrubjay.errors import DeviceRevoked, ScrubjayError
from scrubjay.tls import NO_FILES, TlsFiles

if TYPE_CHECKING:
    from client_sync.remote import Remote

BUDGET_SECONDS = 3.0
"""How long a person waits for a server that does not answer."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Device:
    """An enrolled device and where its commands write. ``tls`` are files given for this command, in place of
    those that it was enrolled with."""

    home: Home
    credentials: DeviceCredentials
    output: Output
    tls: TlsFiles = NO_FILES

    def open_replica(self) -> Replica:
        """Its replica."""
        return self.home.open_replica(self.credentials.identity)

    def remote(self, budget_seconds: float | None = None) -> Remote:
        """Its server, which gets ``budget_seconds`` to answer; close it after use."""
        from client_sync.remote import Remote

        budget = BUDGET_SECONDS if budget_seconds is None else budget_seconds
        files = self.credentials.tls if self.tls == NO_FILES else self.tls
        with usage(""):
            return Remote(self.credentials.target, self.credentials, budget_seconds=budget, **files.read())

    def synchronize(self, replica: Replica, *, verify: bool = False) -> SyncReport:
        """Exchange everything with the server, with a bar; a failure ends the command and says what is
        kept."""
        with self.remote() as remote, bar() as show:
            return self.asking(
                replica, lambda: synchronize(replica, remote, progress=told_by(show), verify=verify)
            )

    def asking(self, replica: Replica, call: Callable[[], _Result]) -> _Result:
        """The result of ``call``, which asks the server."""
        try:
            return call()
        except Wiped:
            self.home.discard(self.credentials.principal)
            self.home.sign_out()
            raise
        except DeviceRevoked:
            raise
        except ScrubjayError as error:
            fail(self._kept(error, replica.status().unsent), error)

    def _kept(self, error: ScrubjayError, unsent: int) -> str:
        target = self.credentials.target
        what = silence(error, target) if is_silence(error) else told(error, target)
        return f"{what}; everything here is kept: {changes(unsent)} unsent will go with the next sync"


def changes(count: int) -> str:
    """``1 change``, ``3 changes``."""
    return f"{count} change" if count == 1 else f"{count} changes"


@contextmanager
def open_device(settings: Settings) -> Iterator[Device]:
    """The device of this home; a failure ends the command."""
    home = Home(settings.home)
    with failing_in_one_line(""):
        if not home.is_enrolled():
            fail(f"there is no device in {home.path}; make one with {ENROL}")
        credentials = DeviceCredentials.load(home.credentials_path)
        yield Device(home, credentials, Output(settings.as_json), settings.tls)
