"""The JSON documents of a file, one after the other, so that a file of any size takes little room.

=====================  =====================================================================================
a file that begins     is read as
=====================  =====================================================================================
``PK``                 a zip archive: its ``conversations.json``, or ``conversations-000.json`` and on
``[``                  a list: its elements, each at most ``MAX_ELEMENT_CHARACTERS`` long
``{`` and a line's     one document, at most ``MAX_WHOLE_BYTES`` long; where that has ``results``, a list, its
end, or ``{"results"``  elements
anything else          lines of JSON, each at most ``MAX_LINE_BYTES`` long
=====================  =====================================================================================
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

from client_sync.importing.skipping import Place, Reason, Skipped, Unreadable

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Far above any memory; a longer line is skipped, and never held whole."""
MAX_ELEMENT_CHARACTERS = 64 * 1024 * 1024
"""One conversation of years; what does not end until then is taken for broken."""
MAX_WHOLE_BYTES = 256 * 1024 * 1024
"""A document that is read whole takes about five times its size."""

Document: TypeAlias = Any
"""What ``json`` makes of a text."""

_READ_AT_ONCE = 64 * 1024
_HEAD_BYTES = 4096
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json")
_WHOLE = re.compile(rb'\{\s*(?:$|\r?\n|"(?:results|memories|relations|count|next|previous)"\s*:)')
_LISTS = ("results", "memories")
_SPACE = " \t\r\n"


def documents(path: Path, told: Callable[[int, int], None]) -> Iterator[tuple[Place, Document | Skipped]]:
    """Each document with its place, or what is broken there; one broken line never stops the rest.

    ``told`` hears how many bytes are read, of how many. Unreadable.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(_HEAD_BYTES)
            file.seek(0)
            if head.startswith(b"PK\x03\x04"):
                yield from _archived(file, told)
            else:
                yield from _plain(file, head, lambda read: told(read, size))
    except OSError as error:
        raise Unreadable(f"{path} can't be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, zlib.error, RuntimeError) as error:  # the last: one with a password
        raise Unreadable(f"{path} is no whole archive ({error}); get it again") from error


def _archived(
    file: IO[bytes], told: Callable[[int, int], None]
) -> Iterator[tuple[Place, Document | Skipped]]:
    with zipfile.ZipFile(file) as archive:
        members = sorted(
            (info for info in archive.infolist() if _CONVERSATIONS.fullmatch(info.filename)),
            key=lambda info: info.filename,
        )
        if not members:
            raise Unreadable("the archive holds no conversations.json; give the file that is to be imported")
        size, before = sum(info.file_size for info in members), 0
        for info in members:
            with archive.open(info) as member:
                yield from _elements(
                    member, Place(file=info.filename), partial(_tell_more, told, before, size)
                )
            before += info.file_size


def _tell_more(told: Callable[[int, int], None], before: int, size: int, read: int) -> None:
    told(before + read, size)


def _plain(
    file: IO[bytes], head: bytes, told: Callable[[int], None]
) -> Iterator[tuple[Place, Document | Skipped]]:
    if head.startswith(_OTHER_ENCODINGS):
        raise Unreadable("the file is UTF-16; save it as UTF-8")
    text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if text.startswith(b"["):
        yield from _elements(file, Place(), told)
    elif _WHOLE.match(text):
        yield from _whole(file)
    else:
        yield from _lines(file, told)


def _lines(file: IO[bytes], told: Callable[[int], None]) -> Iterator[tuple[Place, Document | Skipped]]:
    number = 0
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        place = Place(line=number)
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            _pass_line(file)
            yield place, Skipped(place, Reason.TOO_LONG, f"has more than {MAX_LINE_BYTES} bytes")
        elif number == 1 and not raw.removeprefix(_BYTE_ORDER_MARK).strip():
            continue
        elif raw.strip():
            yield place, _parsed(raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw, place)
        told(file.tell())


def _pass_line(file: IO[bytes]) -> None:
    while (rest := file.readline(_READ_AT_ONCE)) and not rest.endswith(b"\n"):
        pass


def _parsed(raw: bytes, place: Place) -> Document | Skipped:
    try:
        return _DECODER.decode(raw.decode())
    except UnicodeDecodeError:
        return Skipped(place, Reason.NOT_JSON, "is not UTF-8")
    except json.JSONDecodeError as error:
        return Skipped(place, Reason.NOT_JSON, f"is no JSON ({error.msg}, character {error.colno})")
    except (ValueError, RecursionError) as error:
        return Skipped(place, Reason.NOT_JSON, f"is no JSON ({error})")


def _whole(file: IO[bytes]) -> Iterator[tuple[Place, Document | Skipped]]:
    raw = file.read(MAX_WHOLE_BYTES + 1)
    if len(raw) > MAX_WHOLE_BYTES:
        raise Unreadable(
            f"the file is one document of more than {MAX_WHOLE_BYTES} bytes; write a memory a line"
        )
    document = _parsed(raw.removeprefix(_BYTE_ORDER_MARK), Place(item=1))
    rows = next((rows for name in _LISTS if (rows := _list(document, name)) is not None), None)
    if rows is None or not isinstance(document, dict):
        yield Place(item=1), document
        return
    for number, row in enumerate(rows, 1):
        yield Place(item=number), row
    if document.get("next"):
        place = Place(item=len(rows) + 1)
        yield place, Skipped(place, Reason.MORE_PAGES, "is on a page behind this one: export that one too")
    for number, _ in enumerate(_list(document, "relations") or (), 1):
        place = Place(item=number)
        yield place, Skipped(place, Reason.RELATION, "is a relation of a graph, which is no memory")


def _list(document: Document | Skipped, name: str) -> list[Document] | None:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, list) else None


def _elements(
    file: IO[bytes], of: Place, told: Callable[[int], None]
) -> Iterator[tuple[Place, Document | Skipped]]:
    # What is not UTF-8 becomes lone surrogates, which only what holds them is refused for.
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape")
    number = 0
    try:
        for element in _ListReader(text).elements():
            number += 1
            yield Place(item=number, file=of.file), element
            told(file.tell())
    except (ValueError, RecursionError) as error:
        place = Place(item=number + 1, file=of.file)
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        yield place, Skipped(place, Reason.NOT_JSON, f"is no JSON ({reason}); nothing behind it can be read")
    finally:
        text.detach()


class _ListReader:
    """Reads a JSON list element by element, and holds no more of it than one."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._text = ""
        self._at = 0

    def elements(self) -> Iterator[Document]:
        """The elements. ValueError and RecursionError where it is no list, or not whole."""
        if self._mark() != "[":
            raise ValueError("it does not begin with [")
        self._at += 1
        if self._mark() == "]":
            return
        while True:
            yield self._element()
            mark = self._mark()
            self._at += 1
            if mark == "]":
                return
            if mark != ",":
                raise ValueError(f"{mark!r} stands behind an element" if mark else "the file is cut off")

    def _mark(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read(_READ_AT_ONCE):
                return ""

    def _read(self, characters: int) -> bool:
        more = self._file.read(characters)
        self._text = self._text[self._at :] + more
        self._at = 0
        return bool(more)

    def _element(self) -> Document:
        self._mark()
        characters = _READ_AT_ONCE
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
            except ValueError:
                # Twice as much each time, so that a long element is not read over and over.
                if len(self._text) - self._at > MAX_ELEMENT_CHARACTERS or not self._read(characters):
                    raise
                characters *= 2
            else:
                if end == len(self._text) and self._read(_READ_AT_ONCE):
                    continue  # a number may go on
                self._at = end
                return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
