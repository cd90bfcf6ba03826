"""Prepare ``.venv`` from the pinned lists beside this file: ``python3 requirements/install.py server|dev``.

``server`` is what ``make demo`` and ``make run`` need. ``dev`` is what ``make test`` and ``make check``
need as well. Everything is pinned by hash, build tools too. hnswlib alone is compiled here: ``server``
goes on without it where there is no compiler, ``dev`` does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
HEADERS = "import sysconfig; print(sysconfig.get_path('include'))"


def fail(message: str) -> None:
    """End with ``message``: what is wrong and what to do."""
    raise SystemExit(f"setup: {message}")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``command`` in the checkout, with nothing printed."""
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def pip(*arguments: str) -> None:
    """Run the venv's pip; on failure show what it said and end."""
    done = run(PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q", *arguments)
    if done.returncode:
        print("\n".join(done.stderr.splitlines()[-15:]), file=sys.stderr)
        fail(f"pip failed, see above; is a package index within reach? It was: pip {' '.join(arguments)}")


def check_python() -> None:
    """Refuse a Python that is too old or that cannot make virtual environments."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        fail(
            f"Python 3.11 or newer is needed and {sys.executable} is {found}; try: make PYTHON=python3.12 ..."
        )
    if run(sys.executable, "-c", "import ensurepip, venv").returncode:
        fail("this Python cannot make virtual environments; try: apt-get install python3-venv")


def make_venv() -> None:
    """Make ``.venv``, anew when it is not there or its Python does not start."""
    if PYTHON.exists() and run(PYTHON, "-m", "pip", "--version").returncode == 0:
        return
    done = run(sys.executable, "-m", "venv", "--clear", VENV)
    if done.returncode:
        fail(f"no virtual environment could be made in {VENV}: {(done.stderr or done.stdout).strip()}")


def can_compile() -> bool:
    """Whether a C++ compiler and Python's headers are here."""
    include = Path(run(PYTHON, "-c", HEADERS).stdout.strip())
    compiler = os.environ.get("CXX", "g++")
    try:
        return (include / "Python.h").exists() and run(compiler, "--version").returncode == 0
    except FileNotFoundError:
        return False


def has_hnswlib() -> bool:
    """Whether the venv's Python can load hnswlib."""
    return run(PYTHON, "-c", "import hnswlib").returncode == 0


def compile_hnswlib() -> bool:
    """Compile and install hnswlib for every processor of this kind; a failure's output goes to a log."""
    done = run(
        *(PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"),
        *("--no-build-isolation", "--require-hashes", "-r", "requirements/hnsw.txt"),
        HNSWLIB_NO_NATIVE="1",
    )
    if done.returncode:
        (VENV / "hnswlib.log").write_text(done.stdout + done.stderr)
    return done.returncode == 0


def install(part: str) -> None:
    """Install everything of ``part``, "server" or "dev"."""
    print(f"setup: installing into .venv what {part} needs (a minute or two the first time)", flush=True)
    if part == "dev" and not has_hnswlib() and not can_compile():
        fail("the tests need hnswlib, which is compiled here; try: apt-get install g++ python3-dev")
    pip("install", "--require-hashes", "-r", f"requirements/{part}.txt")
    pip("install", "--no-build-isolation", "--no-deps", "-e", ".")
    if has_hnswlib():
        return
    if can_compile() and not compile_hnswlib() and part == "dev":
        fail("hnswlib did not compile: see .venv/hnswlib.log; it needs: apt-get install g++ python3-dev")
    if not has_hnswlib():
        print(
            "setup: hnswlib is not there, so big streams are scanned exactly (slower, never worse)"
            " until: apt-get install g++ python3-dev && make setup",
            flush=True,
        )


def main() -> None:
    """Install the part that the command line names."""
    if sys.argv[1:] not in (["server"], ["dev"]):
        fail("usage: python3 requirements/install.py server|dev")
    check_python()
    make_venv()
    install(sys.argv[1])


if __name__ == "__main__":
    main()
