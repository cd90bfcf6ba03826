"""Write the Python code of the contract: ``python proto/generate.py``.

Generated code is committed, made by the pinned grpcio-tools so that it runs on every protobuf the
project admits. ``--check`` writes nothing and exits 1 when a committed file is stale.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import grpc_tools

ROOT = Path(__file__).parent
PACKAGE = Path("scrubjay/v1")


def generate(out: Path) -> None:
    """Write the generated modules of every .proto file under ``out``."""
    # protoc looks for its plugins on PATH, where a virtual environment need not be.
    scripts = Path(sysconfig.get_path("scripts"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    sources = sorted(str(p.relative_to(ROOT)) for p in (ROOT / PACKAGE).glob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            *(f"--plugin=protoc-gen-{name}={scripts}/protoc-gen-{name}" for name in ("mypy", "mypy_grpc")),
            *(f"-I{ROOT}", f"-I{well_known}"),
            *(f"--python_out={out}", f"--grpc_python_out={out}"),
            *(f"--mypy_out={out}", f"--mypy_grpc_out={out}"),
            *sources,
        ],
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )


def generated(root: Path) -> dict[str, bytes]:
    """The generated modules under ``root``, by file name."""
    return {p.name: p.read_bytes() for p in (root / PACKAGE).iterdir() if "_pb2" in p.name and p.is_file()}


def main() -> int:
    """Generate in place, or compare with ``--check``."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = generated(Path(scratch))
        empty = [name for name, body in fresh.items() if name.endswith("_grpc.py") and b"Stub" not in body]
        for name in empty:
            del fresh[name]
            fresh.pop(f"{name}i", None)
        if "--check" in sys.argv[1:]:
            stale = sorted(
                name for name in fresh | generated(ROOT) if fresh.get(name) != generated(ROOT).get(name)
            )
            if stale:
                print(f"stale: {', '.join(stale)}; run: python proto/generate.py", file=sys.stderr)
            return 1 if stale else 0
        for name in generated(ROOT):
            (ROOT / PACKAGE / name).unlink()
        for name, body in fresh.items():
            (ROOT / PACKAGE / name).write_bytes(body)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
