"""Mutants: switches that each break one rule of sync in the real code. The suite must catch every one.

``python -m tests.sync.mutants`` prints what catches which, as a table.
"""

from tests.sync.mutants import device, server
from tests.sync.mutants.catches import CATCHES
from tests.sync.mutants.mutant import MUTANTS, check_of

__all__ = ["CATCHES", "KINDS", "MUTANTS", "check_of"]

KINDS = (server, device)
"""Where the mutants are."""
