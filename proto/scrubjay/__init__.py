"""Scrubjay: a memory that travels with its user.

Backends use ``connect`` and the stubs of ``scrubjay.v1``; devices use ``client_sync``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrubjay.channel import connect as connect
else:  # a type checker that saw __getattr__ would believe in every name

    def __getattr__(name: str) -> Any:
        if name == "connect":
            from scrubjay.channel import connect

            return connect
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["connect"]
