"""Ask a server for its health, as gRPC defines it: exit 0 when it serves, 1 when it does not.

``python healthcheck.py [host:port]``, by default the server of this container. Where that speaks TLS, the
files are given as ``--ca``, ``--cert`` and ``--key``, or as SCRUBJAY_CA, SCRUBJAY_CERT and SCRUBJAY_KEY;
``--name`` is a name that its certificate is for, where that is not the host's.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 4


def main() -> int:
    """Check the server that the command line names."""
    given = arguments()
    with channel(given) as opened:
        request = health_pb2.HealthCheckRequest()
        try:
            answer = health_pb2_grpc.HealthStub(opened).Check(request, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            print(error.code().name, error.details(), file=sys.stderr)
            return 1
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ask a server for its health.")
    parser.add_argument("target", nargs="?", default="127.0.0.1:7437", metavar="host:port")
    for name in ("ca", "cert", "key"):
        parser.add_argument(
            f"--{name}", type=Path, default=os.environ.get(f"SCRUBJAY_{name.upper()}") or None
        )
    parser.add_argument("--name")
    return parser.parse_args()


def channel(given: argparse.Namespace) -> grpc.Channel:
    """To the server, in plain text unless a file of TLS is given."""
    files = [path and path.read_bytes() for path in (given.ca, given.key, given.cert)]
    if not any(files):
        return grpc.insecure_channel(given.target)
    name = (("grpc.ssl_target_name_override", given.name),) if given.name else ()
    return grpc.secure_channel(given.target, grpc.ssl_channel_credentials(*files), options=name)


if __name__ == "__main__":
    sys.exit(main())
