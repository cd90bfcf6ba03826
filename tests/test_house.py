"""The house checks itself: names, places and words that no other tool looks at."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor

from scrubjay import v1
from server.config import Settings

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT / "proto" / "scrubjay", ROOT / "server", ROOT / "tenants", ROOT / "client_sync")
VAGUE = {"util", "utils", "common", "core", "base", "helper", "helpers", "models"}


def files(root: Path = ROOT) -> Iterator[Path]:
    """Every file of the project under ``root``: what .gitignore does not name."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()] + [".git"]
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not any(fnmatch.fnmatch(name, i) for i in ignored)]
        yield from (Path(folder) / n for n in names if not any(fnmatch.fnmatch(n, i) for i in ignored))


def texts(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Path and text of every file that is text, or of those with one of ``suffixes``."""
    for path in files():
        if suffixes and path.suffix not in suffixes:
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield str(path.relative_to(ROOT)), data.decode()


def lines_with(pattern: str, *suffixes: str) -> list[str]:
    """``path:line: text`` of every line in which ``pattern`` is found."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts(*suffixes)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def trees(*roots: Path) -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of every Python file under ``roots``."""
    for root in roots:
        for path in files(root):
            if path.suffix == ".py":
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def descriptors() -> list[FileDescriptor]:
    """The contract's files, as protobuf knows them."""
    names = sorted(path.stem for path in (ROOT / "proto" / "scrubjay" / "v1").glob("*.proto"))
    return [importlib.import_module(f"{v1.__name__}.{name}_pb2").DESCRIPTOR for name in names]


def test_no_file_or_folder_has_a_vague_name() -> None:
    paths = [path.relative_to(ROOT) for path in files()]
    assert [p for p in paths if VAGUE & {Path(part).stem for part in p.parts}] == []
    assert [p for p in paths if re.search(r"(^|_)(utils?|helpers?)$", p.stem)] == []


def test_nothing_is_left_to_do_in_a_comment() -> None:
    assert lines_with(r"\b(TO" r"DO|FIX" r"ME)\b") == []


def test_files_end_with_one_newline() -> None:
    ends = {path: text[-2:] for path, text in texts() if text}
    assert [path for path, end in ends.items() if not end.endswith("\n") or end == "\n\n"] == []


def test_an_exception_to_a_check_says_why() -> None:
    # The reason stands behind the exception.
    bare = (
        r"#\s*(no" r"qa|type: ig" r"nore|pyright: ig" r"nore)(\[[\w, -]*\]|: ?[A-Z]+\d+(, ?[A-Z]+\d+)*)?\s*$"
    )
    assert [line for line in lines_with(bare, ".py") if "_pb2" not in line] == []


def test_the_environment_is_read_in_one_file() -> None:
    readers = {
        path
        for path, tree in trees(*PACKAGES)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "getenvb"})
        or (isinstance(node, ast.ImportFrom) and node.module == "pydantic_settings")
        or (isinstance(node, ast.ImportFrom) and {"environ", "getenv"} & {n.name for n in node.names})
    }
    assert readers == {"server/config.py"}


def test_nothing_names_a_package_registry_or_this_machine() -> None:
    hosts = (
        r"py[p]i\.org|python[h]osted|npm[j]s\.|(deb|security)\.deb[i]an|docker\.[i]o|gh[c]r\.io|qua[y]\.io"
    )
    folders = r"(?<![\w.$}])/(wor[k]|roo[t]|opt/(py[p]i|wheel[s])|hom[e]|tm[p])/"
    assert lines_with(hosts) == []
    assert lines_with(folders) == []
    assert lines_with(r"(in[d]ex-url|find-li[n]ks)") == []


def test_tests_neither_skip_nor_sleep() -> None:
    skips = {"skip", "skipif", "skipIf", "importorskip", "xfail"}
    found = []
    for path, tree in trees(ROOT / "tests"):
        lines = (ROOT / path).read_text().splitlines()
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.Attribute)):
            # A pause that is the test's own subject says so on its line; waiting for something is none.
            if node.attr in skips or (node.attr == "sleep" and "  # " not in lines[node.lineno - 1]):
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_docs_name_every_rpc_and_every_error_reason() -> None:
    api = (ROOT / "docs" / "api.md").read_text()
    services = [service for file in descriptors() for service in file.services_by_name.values()]
    assert services
    names = [name for service in services for name in (service.name, *service.methods_by_name)]
    enum = v1.ErrorReason.DESCRIPTOR
    reasons = [name for name in enum.values_by_name if not name.endswith("_UNSPECIFIED")]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`|^#.*$", api, re.M))))
    assert [name for name in names + reasons if name not in words] == []


def test_docs_name_every_setting() -> None:
    configuration = (ROOT / "docs" / "configuration.md").read_text()
    settings = {f"SCRUBJAY_{name.upper()}" for name in Settings.model_fields}
    assert sorted(name for name in settings if f"`{name}`" not in configuration) == []


def test_docs_and_deploy_name_no_setting_that_is_not_there() -> None:
    settings = {f"SCRUBJAY_{name.upper()}" for name in Settings.model_fields}
    commands = {
        keyword.value.value
        for _, tree in trees(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "envvar" and isinstance(keyword.value, ast.Constant)
    }
    named = {
        name
        for path, text in texts()
        if path.startswith(("docs/", "deploy/", "README"))
        for name in re.findall(r"SCRUBJAY_[A-Z0-9_]*[A-Z0-9]", text)
    }
    assert sorted(named - settings - commands) == []
