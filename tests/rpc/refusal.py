"""Reading a refused call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import pytest

from scrubjay.channel import from_rpc_error
from scrubjay.errors import ScrubjayError


@dataclass
class Refused:
    """What a call was refused with."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    error: ScrubjayError = field(default_factory=lambda: ScrubjayError(""))
    details: bytes = b""

    @property
    def fields(self) -> list[str]:
        """The paths of the wrong fields."""
        return [violation.field for violation in self.error.field_violations]


@contextmanager
def refused() -> Iterator[Refused]:
    """The block's call must be refused; what with, once the block has ended."""
    found = Refused()
    with pytest.raises(grpc.RpcError) as raised:
        yield found
    assert isinstance(raised.value, grpc.Call)
    found.code = raised.value.code()
    found.error = from_rpc_error(raised.value)
    trailers = dict(raised.value.trailing_metadata() or ())
    details = trailers.get("grpc-status-details-bin", b"")
    found.details = details if isinstance(details, bytes) else details.encode()
