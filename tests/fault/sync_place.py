"""A server and devices in processes of their own, each device on a line of its own, for drills."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from tests.fault import served, verdict
from tests.fault.device_process import DeviceProcess
from tests.fault.process import ServerProcess
from tests.fault.proxy import Line, Proxy
from tests.fault.sync_storm import ROUNDS, enrolment
from tests.fault.verdict import Judged


class Place:
    """A running server on ``data_dir`` and the devices that were let in, closed by ``stack``."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self._stack = stack
        self.server = self._started()
        self.service_key, self._admin_key = self.server.service_key, self.server.admin_key
        self.proxy = stack.enter_context(Proxy(self.server.address, folder / "wire"))
        self.devices: dict[str, DeviceProcess] = {}
        self.lines: dict[str, Line] = {}

    def _started(self) -> ServerProcess:
        server = ServerProcess(self.data_dir)
        self._stack.callback(server.close)
        return server

    def start_server(self) -> None:
        """Start it again, where the devices find it."""
        self.server = self._started()
        self.proxy.target = self.server.address

    def device(self, name: str, **settings: object) -> DeviceProcess:
        """A new device, ready."""
        number = len(self.devices)
        line = self.lines[name] = self.proxy.line(name)
        code = enrolment(self.server, self._admin_key)
        return self.put(name, address=line.address, code=code, number=number, seed=number, **settings)

    def put(self, name: str, **settings: object) -> DeviceProcess:
        """A device on the folder of this name, whatever is in it, ready."""
        device = self.devices[name] = DeviceProcess(self.folder / name, **settings)
        self._stack.callback(device.close)
        device.start()
        device.wait("ready")
        return device

    def settle(self) -> list[dict[str, object]]:
        """Everybody synchronizes until nothing moves; what came of it each time."""
        told = []
        for _ in range(ROUNDS):
            for device in self.devices.values():
                device.tell("settle")
            told += [device.wait("settle") for device in self.devices.values()]
        return told

    def quit(self) -> None:
        """Everybody ends properly."""
        for device in self.devices.values():
            device.quit()
        assert self.server.stop() == 0

    def judged(self, names: Iterable[str] = ()) -> list[Judged]:
        """The devices, to be judged once they ended."""
        return [
            Judged(device.folder, device.log, int(str(device.settings["number"])))
            for name, device in self.devices.items()
            if name in (tuple(names) or tuple(self.devices))
        ]

    def judge(self, *, history: bool = True) -> served.Served:
        """AssertionError where a promise was broken; what the server holds. After ``quit``."""
        found, devices = served.of_files(self.data_dir), self.judged()
        verdict.convergence(found, devices)
        verdict.nothing_told_is_lost(found, devices, history=history)
        verdict.no_resurrection(found, devices)
        verdict.retraction_complete(found, devices)
        return found
