"""Every mutant is caught: a rule that is broken in the real code breaks a promise; the check says which."""

from __future__ import annotations

import pytest

from tests.sync.mutants import CATCHES, MUTANTS, check_of
from tests.sync.runs import Places, failure


def test_every_mutant_has_its_catch() -> None:
    assert CATCHES.keys() == MUTANTS.keys()


@pytest.mark.parametrize("name", CATCHES)
def test_a_broken_rule_breaks_a_promise(name: str, places: Places) -> None:
    steps = CATCHES[name].steps
    with MUTANTS[name].switch():
        error = failure(steps, places)
    assert error is not None, "nobody noticed"
    assert check_of(error) == CATCHES[name].check, repr(error)


@pytest.mark.parametrize("name", CATCHES)
def test_the_rule_itself_breaks_none(name: str, places: Places) -> None:
    assert failure(CATCHES[name].steps, places) is None
