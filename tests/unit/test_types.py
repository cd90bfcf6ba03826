"""What a type checker sees of the package from outside, as a user has it: typed to the last field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

USER = """\
import grpc
import scrubjay
from scrubjay import v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import MemoryNotFound

with scrubjay.connect("localhost:7437", "key", client_id="phone", deadline_seconds=5) as channel:
    stub = v1.MemoryServiceStub(channel)
    response = stub.Search(v1.SearchRequest(user_id="u", query="q"), timeout=3)
    content: str = response.hits[0].memory.content
    score: float = response.hits[0].score
    admin = v1.TenantAdminServiceStub(channel)
    state: v1.TenantState.ValueType = admin.GetTenant(v1.GetTenantRequest(tenant_id="t")).tenant.state
    try:
        stub.Get(v1.GetRequest(id="x"))
    except grpc.RpcError as error:
        found = from_rpc_error(error)
        if isinstance(found, MemoryNotFound):
            reason: v1.ErrorReason.ValueType = found.reason
"""

WRONG = """\
import scrubjay
from scrubjay import v1

channel = scrubjay.connect("localhost:7437", "key")
stub = v1.MemoryServiceStub(channel)
v1.SearchRequest(user="u")
v1.SearchRequest(user_id=1)
stub.Serch(v1.SearchRequest())
stub.Search(v1.GetRequest())
stub.Search(v1.SearchRequest()).hits[0].memory.text
scrubjay.connect("localhost:7437")
v1.NoSuchRequest()
scrubjay.conect("localhost:7437", "key")
"""


def mypy(folder: Path, file: Path) -> set[int]:
    """The lines of ``file`` that mypy --strict finds wrong."""
    arguments = [
        "--strict",
        "--no-error-summary",
        "--output=json",
        f"--cache-dir={folder / 'cache'}",
        str(file),
    ]
    ran = run(folder, "mypy", *arguments)
    return {json.loads(line)["line"] for line in ran.stdout.splitlines()}


def pyright(folder: Path, file: Path) -> set[int]:
    """The lines of ``file`` that pyright in strict mode finds wrong, unused expressions apart."""
    settings = {"typeCheckingMode": "strict", "reportUnusedExpression": False, "include": [file.name]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    ran = run(folder, "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(folder))
    return {
        each["range"]["start"]["line"] + 1
        for each in json.loads(ran.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    }


def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a checker as it is installed; it may find errors, and may not fail itself."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")
    }
    command = [sys.executable, "-m", module, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=100)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran


@pytest.mark.parametrize("check", [mypy, pyright])
def test_right_code_passes_and_every_wrong_line_is_found(
    tmp_path: Path, check: Callable[[Path, Path], set[int]]
) -> None:
    for name, code, wrong_lines in (("user.py", USER, set()), ("wrong.py", WRONG, set(range(6, 14)))):
        file = tmp_path / name
        file.write_text(code)
        assert check(tmp_path, file) == wrong_lines
