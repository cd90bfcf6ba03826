"""``python -m tests.isolation.broken GUARD TEST…``: tests in a process from which a guard was taken away."""

from __future__ import annotations

import sys

import pytest

from tests.isolation import doors, inside
from tests.isolation.guards import GUARDS

ROOMS = (doors, inside)
"""Where guards are written down."""


def main(name: str, *tests: str) -> int:
    """Run the tests; what pytest says of them."""
    with GUARDS[name].switch():
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
