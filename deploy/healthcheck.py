"""Ask a server for its health, as gRPC defines it: exit 0 when it serves, 1 when it does not.

``python healthcheck.py [host:port]``, by default the server of this container.
"""

from __future__ import annotations

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 4


def main() -> int:
    """Check the server that the command line names."""
    target = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7437"
    with grpc.insecure_channel(target) as channel:
        request = health_pb2.HealthCheckRequest()
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            print(error.code().name, file=sys.stderr)
            return 1
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
