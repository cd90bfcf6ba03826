"""What an embedder is: texts in, unit vectors of one named space out."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelUnavailable

if TYPE_CHECKING:
    from server.providers.openai import OpenAISettings

NAMES = ("lite", "e5", "openai", "hash")


class TextKind(Enum):
    """What a text is for: models that were trained with two prefixes treat the kinds apart."""

    DOCUMENT = "document"
    QUERY = "query"


@dataclass(frozen=True)
class Space:
    """Where vectors live. Only vectors of one space id compare.

    ``semantic`` is False where only shared spelling brings texts near. ``record`` says what made the
    vectors, for the people who look into a mismatch: model, package version, sha256 of the weights, prefix,
    version of the text rules.
    """

    id: str
    dimension: int
    semantic: bool
    record: Mapping[str, str]


class Embedder(Protocol):
    """A model behind one door, safe to call from many threads."""

    @property
    def space(self) -> Space:
        """The space of every vector this embedder makes; known without a call to the model."""
        ...

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """One row per text, shape (n, dimension), each row of length 1; no texts give (0, dimension).

        Any string is a text: blank, long, with NUL or lone surrogates. Raises ModelUnavailable where the
        model does not answer or the embedder is closed, ModelMismatch where it answers in another dimension.
        """
        ...

    def self_test(self) -> None:
        """Raise ModelMismatch unless the model still is the one that defines the space."""
        ...

    def close(self) -> None:
        """Give back processes and connections. A second call does nothing."""
        ...


def open_embedder(name: str, *, openai: OpenAISettings | None = None) -> Embedder:
    """The embedder of that name, to be closed by the caller.

    ``openai`` is needed for "openai" only. Raises ValueError for a name not in ``NAMES``, ModelUnavailable
    where the package of the model is not installed.
    """
    if name == "lite":
        from server.providers.lite import LiteEmbedder

        return LiteEmbedder()
    if name == "e5":
        from server.providers.e5 import E5Embedder

        return E5Embedder()
    if name == "hash":
        from server.providers.hashed import HashEmbedder

        return HashEmbedder()
    if name == "openai":
        from server.providers.openai import OpenAIEmbedder

        if openai is None:
            raise ValueError("the embedder 'openai' needs its settings: base URL, API key, model, dimension")
        return OpenAIEmbedder(openai)
    raise ValueError(f"no embedder {name!r}; choose one of {', '.join(NAMES)}")


def required_package(name: str, *, extra: str) -> ModuleType:
    """The imported package, or ModelUnavailable that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing_package(name, extra=extra) from error


def missing_package(name: str, *, extra: str) -> ModelUnavailable:
    """The error that says which extra to install."""
    return ModelUnavailable(
        f"the package {name} is not installed; "
        f"run: pip install 'scrubjay[{extra}]', or choose another embedder"
    )
