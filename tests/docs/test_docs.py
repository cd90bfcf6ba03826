"""What README and docs tell people to do is done here, against a real server, and shows what they show."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.local_server import LocalServer, local_server
from docs.blocks import Block, blocks, missing
from docs.mind import editors
from scrubjay import connect, v1
from tests.chat_server import ChatServer

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MEASUREMENTS = {"evaluation.md", "performance.md"}
"""Their commands take minutes: what they name must be there."""
PLACEHOLDER = re.compile(r"export (SCRUBJAY_API_KEY|SCRUBJAY_ADMIN_KEY)=sj_live_…")
SHOWN_CODE = "sj_enrol_…"
"""Stands in a command for the enrolment code that was shown last."""
NOT_RUN = re.compile(
    r"(?P<settings>(?:[A-Z_]+=\S+ )*)"
    r"(?:make (?P<target>\w+)|\.venv/bin/pip install --require-hashes -r (?P<list>\S+)"
    r"|\.venv/bin/python (?P<drill>deploy/drills/\w+\.py))"
)
STOPPED_SERVER = {".venv/bin/python -m server create-admin-key", "python -m server migrate"}
"""What needs a data directory of its own: it gets one in the page's folder."""
BOUND_SECONDS = 30


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with ChatServer(editors) as chat:
        settings = {
            "SCRUBJAY_CHAT_BASE_URL": chat.base_url,
            "SCRUBJAY_CHAT_MODEL": "editors-1",
            "SCRUBJAY_EMBEDDERS": "hash",
        }
        with local_server(settings=settings) as running:
            yield running


@pytest.fixture
def environment(
    server: LocalServer, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """What a reader of the page has: the venv, the server, and keys of a tenant of the page's own. A server
    that the page starts itself, as SERVER, ends with it."""
    tenant_id = "page-" + re.sub(r"[^a-z]", "", request.node.callspec.id.lower())
    with connect(server.address, server.admin_key) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        admin.CreateTenant(v1.CreateTenantRequest(tenant_id=tenant_id))
        made = admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id=tenant_id, role=v1.ROLE_SERVICE))
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRUBJAY_ADMIN_KEY", server.admin_key)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCRUBJAY_")}
    monkeypatch.setenv("SCRUBJAY_API_KEY", made.secret)
    reader = kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}",
        "SCRUBJAY_SERVER": server.address,
        "SCRUBJAY_API_KEY": made.secret,
        "SCRUBJAY_ADMIN_KEY": server.admin_key,
        "HOME": str(tmp_path),
        "COLUMNS": "140",
        "TZ": "UTC",
    }
    yield reader
    if "SERVER" in reader and is_server(reader["SERVER"]):
        os.kill(int(reader["SERVER"]), signal.SIGKILL)


def is_server(process: str) -> bool:
    """Whether this is a server's process, and not another one's that came later."""
    told = Path("/proc") / process / "cmdline"
    return told.exists() and b"server" in told.read_bytes()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in MEASUREMENTS], ids=lambda page: page.name
)
def test_a_page_does_what_it_says(
    page: Path, environment: dict[str, str], tmp_path: Path, server: LocalServer
) -> None:
    names: dict[str, object] = {}
    output = ""
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python":
            output = run_python(block, names, where, server.address)
        elif block.language == "text":
            assert missing(block.text.splitlines(), output) is None, f"{where}: the program wrote\n{output}"
        else:
            assert block.language in ("bash", "console"), f"{where}: name a language that is tested"
            for command, shown in block.commands():
                run_command(command, shown, environment, tmp_path, where)


def run_python(block: Block, names: dict[str, object], where: str, address: str) -> str:
    """Run the block with what the page's blocks before it have named; what it wrote."""
    code = compile(block.text.replace("localhost:7437", address), where, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as written:
        exec(code, names)
    return written.getvalue()


def run_command(
    command: str, shown: list[str], environment: dict[str, str], folder: Path, where: str
) -> None:
    """Run one command, after which ``environment`` holds what it exported."""
    if PLACEHOLDER.fullmatch(command):
        return
    if not_run := NOT_RUN.fullmatch(command):
        check_is_there(not_run, where)
        return
    code = folder / "code"
    if SHOWN_CODE in command:
        command = command.replace(SHOWN_CODE, code.read_text())
    script = f"set -a; {command}\nstatus=$?\nenv -0 >{folder / 'environment'}\nexit $status"
    server = {} if command not in STOPPED_SERVER else {"SCRUBJAY_DATA_DIR": str(folder / "data")}
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment | server,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    if codes := re.findall(r"sj_enrol_\w+", ran.stdout):
        code.write_text(codes[-1])
    expected = 1 if any(line.startswith("error:") for line in shown) else 0
    assert ran.returncode == expected, f"{where}: {command}\n{ran.stdout}"
    line = missing(shown, ran.stdout)
    assert line is None, f"{where}: {command}\ndoes not show {line!r} but\n{ran.stdout}"
    exported = (folder / "environment").read_text(encoding="utf-8").rstrip("\0").split("\0")
    environment.clear()
    environment.update((name, value) for name, _, value in (pair.partition("=") for pair in exported))


def check_is_there(command: re.Match[str], where: str) -> None:
    """A command that is tested elsewhere or takes long names a target or a list that there is."""
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command["target"] is None or command["target"] in targets, where
    for file in (command["list"], command["drill"]):
        assert file is None or (ROOT / file).is_file(), where


def test_pages_of_measurements_name_scripts_that_are_there() -> None:
    texts = [
        block.text for page in PAGES if page.name in MEASUREMENTS for block in blocks(page) if block.language
    ]
    found = {path for text in texts for path in re.findall(r"\bbench/[\w/.]+\.py\b", text)}
    modules = {module for text in texts for module in re.findall(r"-m (bench[\w.]*)", text)}
    places = [*found, *(f"{module.replace('.', '/')}.py" for module in modules)]
    assert [path for path in sorted(places) if not (ROOT / path).is_file()] == []


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    pages = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]
    broken = []
    for page in pages:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            path, _, heading = link.partition("#")
            target = page.parent / path if path else page
            if "://" not in link and not (target.exists() and (not heading or heading in headings(target))):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_invariant_names_tests_that_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named
    assert sorted(named - there) == []


def headings(page: Path) -> set[str]:
    """The names by which a page's headings are linked to."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_page_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in readme] == []


@pytest.mark.parametrize(
    ("shown", "output", "line"),
    [
        (["a", "b"], "a\nx\nb\n", None),
        (["a  b …"], "a b   c d\n", None),
        (["…", "b"], "x\nb", None),
        (["b", "a"], "a\nb\n", "a"),
        (["a"], "ab\n", "a"),
        (["a.c"], "abc\n", "a.c"),
        (["a"], "", "a"),
    ],
)
def test_output_is_compared_loosely_but_compared(shown: list[str], output: str, line: str | None) -> None:
    assert missing(shown, output) == line
