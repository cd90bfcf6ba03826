"""Killing what runs at any moment of it: a BaseException stands for the end of the process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

import pytest

Method = tuple[Any, str]
"""A class or module, and the name in it."""


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(moment: int, steps: Iterable[Method], blocks: Iterable[Method] = ()) -> Iterator[None]:
    """Kill what runs at a moment: even ones lie before one of the ``steps``, odd ones behind it. Of
    ``blocks``, which are context managers, they lie before and behind the whole."""
    passed = itertools.count()

    def pass_moment() -> None:
        if next(passed) == moment:
            raise Killed

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(step)
        def run(*args: Any, **kwargs: Any) -> Any:
            pass_moment()
            result = step(*args, **kwargs)
            pass_moment()
            return result

        return run

    def watched_block(block: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
        @contextmanager
        def run(*args: Any, **kwargs: Any) -> Iterator[Any]:
            pass_moment()
            with block(*args, **kwargs) as given:
                yield given
            pass_moment()

        return run

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in steps:
            patch.setattr(owner, name, watched(getattr(owner, name)))
        for owner, name in blocks:
            patch.setattr(owner, name, watched_block(getattr(owner, name)))
        yield
