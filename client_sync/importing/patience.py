"""Waiting for a server that says that it will answer later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from scrubjay.errors import ScrubjayError

PATIENCE_SECONDS = 60.0
"""How long one call may wait in all: a server that starts anew, or a limit of calls a minute."""

_Result = TypeVar("_Result")


def patiently(call: Callable[[], _Result]) -> _Result:
    """The result of ``call``, which is repeated as long as its error says when to, and there is patience."""
    waited, pause = 0.0, 0.0
    while True:
        try:
            return call()
        except ScrubjayError as error:
            if error.retry_after_seconds is None:
                raise
            pause = max(error.retry_after_seconds, 2 * pause)
            if waited + pause > PATIENCE_SECONDS:
                raise
        time.sleep(pause)
        waited += pause
