"""The server's port: the services behind it, health, reflection, and TLS."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from scrubjay.v1 import memory_service_pb2, sync_service_pb2, tenant_service_pb2
from server.certificates import CertificateWatch, ServerCertificates, ServerFiles
from server.config import Settings
from server.interceptors import TRANSPORT_BYTES, Door
from server.slots import Slots

SEMANTICS = "scrubjay.semantics"
"""The health service's name for whether search knows meanings: NOT_SERVING under the embedder hash."""
PING_MILLIS = 30_000
"""How often a client may ask whether a quiet connection lives; connect() asks once a minute."""
PENDING_CALLS = 10_000
"""Calls that came at once and nobody has looked at yet, such as those of all devices behind a restart. gRPC
cuts off what is beyond, with CANCELLED and no word why; its own number is 1 000."""
GRACE_SECONDS = 10
"""How long running calls may finish when the server stops; most take milliseconds."""

_SERVICES = (
    memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"],
    sync_service_pb2.DESCRIPTOR.services_by_name["SyncService"],
    tenant_service_pb2.DESCRIPTOR.services_by_name["TenantAdminService"],
)


class AddressInUse(Exception):
    """The address to serve on can't be had."""


def credentials_of(settings: Settings) -> grpc.ServerCredentials | None:
    """What TLS needs, asked for anew with each connection; None where no TLS is spoken."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    watch = CertificateWatch(ServerFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca))
    return grpc.dynamic_ssl_server_credentials(
        _configuration(watch.certificates),
        lambda: None if (changed := watch.changed()) is None else _configuration(changed),  # type: ignore[arg-type,return-value]  # None is no change, which the stubs leave out
        require_client_authentication=settings.tls_client_ca is not None,
    )


def serve(
    settings: Settings,
    credentials: grpc.ServerCredentials | None,
    door: Door,
    slots: Slots,
    services: Sequence[object],
    semantic: bool,
    stack: ExitStack,
) -> str:
    """Start serving; the address, with the port that was taken."""
    pool = stack.enter_context(
        ThreadPoolExecutor(max_workers=slots.threads, thread_name_prefix="scrubjay-call")
    )
    server = grpc.server(
        pool,
        maximum_concurrent_rpcs=slots.calls,
        options=[
            ("grpc.max_receive_message_length", TRANSPORT_BYTES),
            ("grpc.max_send_message_length", TRANSPORT_BYTES),
            # A peer that vanished without a word gives its slot back in 80 seconds, not in 15 minutes.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_MILLIS),
            ("grpc.server.max_pending_requests", PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS),
            # A second server on the port is an error, not half of the calls.
            ("grpc.so_reuseport", 0),
        ],
    )
    for descriptor, service in zip(_SERVICES, services, strict=True):
        server.add_generic_rpc_handlers((door.handlers(descriptor, service),))
    reporter = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(reporter, server)
    names = [service.full_name for service in _SERVICES]
    reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    port = _bind(server, settings.listen, credentials)
    server.start()
    stack.callback(lambda: server.stop(GRACE_SECONDS).wait())
    stack.callback(slots.stop)
    for name in ("", *names):
        reporter.set(name, health_pb2.HealthCheckResponse.SERVING)
    states = health_pb2.HealthCheckResponse
    reporter.set(SEMANTICS, states.SERVING if semantic else states.NOT_SERVING)
    stack.callback(reporter.enter_graceful_shutdown)
    host = settings.listen.rpartition(":")[0]
    return settings.listen if settings.listen.startswith("unix:") else f"{host}:{port}"


def _bind(server: grpc.Server, listen: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(listen)
        return server.add_secure_port(listen, credentials)
    except RuntimeError:
        raise AddressInUse(
            f"{listen} can't be served on: another program has it, or it is not this machine's; "
            "set SCRUBJAY_LISTEN to a free one"
        ) from None


def _configuration(found: ServerCertificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(found.key, found.chain)], found.client_ca)
