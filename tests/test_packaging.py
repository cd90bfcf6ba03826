"""What is shipped and what it needs: the wheel, its oldest and newest dependencies, the pinned lists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEWEST = ("grpcio==1.85.3", "protobuf==7.36.2")
IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys
import client_sync, scrubjay
from scrubjay import v1

for package in (scrubjay, client_sync):
    assert "site-packages" in package.__file__, package.__file__
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in sys.argv[1:]:
                raise
assert v1.Memory.FromString(v1.Memory(content="hello").SerializeToString()).content == "hello"
assert not [name for name in ("server", "tenants", "sqlalchemy", "numpy") if importlib.util.find_spec(name)]
"""
KEEP_A_REPLICA = """
import sys
from client_sync import Replica
from client_sync.identity import Identity
from scrubjay.memory import ClientId, Subject

alice = Identity(b"8 bytes.", ClientId("phone"), Subject("user", "alice"))
with Replica.create(sys.argv[1], alice) as replica:
    tea = replica.add("喜欢绿茶", tags=["drink"])
    replica.update(tea.id, {"content": "喜欢乌龙茶"})
    assert [hit.memory.id for hit in replica.search("乌龙")] == [tea.id]
    assert replica.status().unsent == 1
assert "grpc" not in sys.modules
"""


def run(*command: str | Path) -> str:
    """Run ``command`` outside the checkout and return what it printed; a failure shows it."""
    done = subprocess.run(
        command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def install(folder: Path, *requirements: str | Path) -> Path:
    """Make a virtual environment in ``folder``, install into it, and return where its programs are."""
    venv.create(folder)
    scripts = folder / "bin"
    run(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "-q", *requirements)
    return scripts


def oldest(requirement: str) -> str:
    """The oldest release that ``requirement`` admits, pinned."""
    parsed = Requirement(requirement)
    (bound,) = (s.version for s in parsed.specifier if s.operator == ">=")
    return f"{parsed.name}=={bound}"


def pinned(name: str) -> dict[str, list[str]]:
    """The versions that a pinned list has of each package: several where Python versions differ."""
    pins: dict[str, list[str]] = {}
    for package, version in re.findall(
        r"^([a-z0-9-]+)==([^\s;]+)", (ROOT / "requirements" / f"{name}.txt").read_text(), re.M
    ):
        pins.setdefault(package, []).append(version)
    return pins


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout with the tools that are pinned."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_the_contract_and_the_replica_alone(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    info = f"scrubjay-{PROJECT['version']}.dist-info/"
    assert [name for name in names if not name.startswith(("scrubjay/", "client_sync/", info))] == []
    packages = {"scrubjay": ROOT / "proto" / "scrubjay", "client_sync": ROOT / "client_sync"}
    for package, folder in packages.items():
        source = {p for kind in ("*.py", "*.pyi", "*.proto", "py.typed") for p in folder.rglob(kind)}
        assert folder / "py.typed" in source
        assert {f"{package}/{path.relative_to(folder)}" for path in source} <= names


def test_the_wheel_runs_on_the_oldest_dependencies_it_declares(wheel: Path, tmp_path: Path) -> None:
    scripts = install(tmp_path / "venv", wheel, *map(oldest, PROJECT["dependencies"]))
    run(scripts / "python", "-W", "error", "-c", IMPORT_ALL, "rich", "typer")
    run(scripts / "python", "-W", "error", "-c", KEEP_A_REPLICA, tmp_path / "alice.db")


def test_the_wheel_and_its_command_run_on_newer_dependencies(wheel: Path, tmp_path: Path) -> None:
    scripts = install(tmp_path / "venv", f"scrubjay[cli] @ {wheel.as_uri()}", *NEWEST)
    run(scripts / "python", "-W", "error", "-c", IMPORT_ALL)
    assert "search" in run(scripts / "scrubjay", "--help")


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("server", ["cli", "model", "postgres", "server"]),
        ("hnsw", ["hnsw"]),
        ("e5", ["e5"]),
        ("dev", [*PROJECT["optional-dependencies"]]),
    ],
)
def test_pinned_lists_hold_what_the_project_asks_for(name: str, extras: list[str]) -> None:
    pins = pinned(name)
    asked = [*PROJECT["dependencies"], *(r for e in extras for r in PROJECT["optional-dependencies"][e])]
    parsed = [r for r in map(Requirement, asked) if r.name not in {"scrubjay", "hnswlib"} or name == "hnsw"]
    assert parsed
    for requirement in parsed:
        assert requirement.name in pins, f"{requirement} is not in requirements/{name}.txt; run: make lock"
        for version in pins[requirement.name]:
            assert version in requirement.specifier, f"{requirement} but {version} is pinned; run: make lock"


def test_pinned_lists_agree_with_each_other() -> None:
    everything = pinned("dev")
    for name in ("server", "hnsw", "e5"):
        assert {k: v for k, v in pinned(name).items() if k != "hnswlib" and v != everything[k]} == {}
