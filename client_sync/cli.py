"""The door of the ``scrubjay`` command: it begins here, and calls the server here.

typer and rich come with an extra and grpc is slow to load, so each is imported where it is needed:
``scrubjay --help`` loads no grpc.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeVar

from scrubjay import v1
from scrubjay.tls import NO_FILES, TlsFiles

if TYPE_CHECKING:
    import grpc

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


def main() -> None:
    """Run the command; exit code 0, 1 where something failed, 2 where it was called wrongly."""
    try:
        from client_sync.commands import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("the scrubjay command needs typer and rich: pip install 'scrubjay[cli]'")
    app()


class RemoteMemories:
    """A server's memories, until closed. Connects on the first call.

    ValueError where the target, the key or a file of ``tls`` cannot be right.
    """

    def __init__(self, target: str, api_key: str, tls: TlsFiles = NO_FILES) -> None:
        from scrubjay.channel import connect

        self._channel: grpc.Channel = connect(target, api_key, **tls.read())
        self.memories = v1.MemoryServiceStub(self._channel)

    def call(self, method: Callable[[_Request], _Response], request: _Request) -> _Response:
        """The method's response; a ``ScrubjayError`` where the call fails."""
        from grpc import RpcError

        from scrubjay.channel import from_rpc_error

        try:
            return method(request)
        except RpcError as error:
            raise from_rpc_error(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
