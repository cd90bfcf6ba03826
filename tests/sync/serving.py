"""What the server answers, judged: against the oracle, and for what nobody else may see."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.errors import ScrubjayError
from scrubjay.feed import open_page, unpack
from scrubjay.stamp import unpack_field_stamps
from scrubjay.wire import from_stored
from server.store.memory_store import StreamKey
from tenants.tenant import Caller
from tests.sync import occasions

if TYPE_CHECKING:
    from tests.sync.device import Device
    from tests.sync.world import World

Response = TypeVar("Response", bound=Message)

MOST_KEPT = 40
"""Requests that may be delivered again."""


def judge_request(world: World, device: Device, rpc: str, request: Any) -> None:
    """Nothing that is local alone leaves a device."""
    occasions.local_only_never_leaves(world, device, _opened(request))


def sync(world: World, device: Device, caller: Caller, request: v1.SyncRequest) -> v1.SyncResponse:
    """Serve Sync and let the oracle take what the server took."""
    world.delivered.append((device, caller, request))
    del world.delivered[:-MOST_KEPT]
    key = StreamKey(device.who.incarnation, device.who.stream)
    number = world.server.number(key, request.replica_id)
    response = _called(world, device, request, lambda: world.server.sync.sync(request, caller))
    occasions.directive_has_a_reason(world, device, response)
    if response.directive in (v1.DIRECTIVE_EPOCH_CHANGED, v1.DIRECTIVE_RESYNC):
        device.told_to_load = True
    _count(world, response)
    if response.directive == v1.DIRECTIVE_OK:
        operations = world.operations(device, request)
        assert len(response.results) == len(operations)
        repeated = number - (request.first_number - 1) if operations else 0
        verdicts = world.oracle.take(device.who, operations, world.micros // 1000, repeated)
        for operation, verdict, result in zip(operations, verdicts, response.results, strict=True):
            occasions.answered_as_the_law_says(device, operation, verdict, result)
        occasions.poison_stops_nothing(operations, response.results)
    else:
        assert not response.results
        assert not response.page.changes
        assert not response.packed_page
    # Only now: what was taken may have shown the sender what others wrote before.
    occasions.private_never_leaks(world, device, _opened(response), "SyncResponse")
    if response.directive == v1.DIRECTIVE_EPOCH_CHANGED and device.replica is not None:
        world.obligations.append((device, world.held(device)))
    return response


def _count(world: World, response: v1.SyncResponse) -> None:
    """Note what the response told."""
    told = [v1.Directive.Name(response.directive)]
    told += [v1.OperationStatus.Name(result.status) for result in response.results]
    page = response.page
    if response.packed_page:
        page = unpack(v1.Page, "packed_page", response.packed_page)
    told += [v1.ChangeKind.Name(change.kind) for change in page.changes]
    world.events.update(told)
    world.events["more"] += response.more


def reoffer(world: World, device: Device, caller: Caller, request: v1.ReofferRequest) -> v1.ReofferResponse:
    """Serve Reoffer and let the oracle take what was offered."""
    response = plain(world, device, request, lambda: world.server.sync.reoffer(request, caller))
    page = unpack(v1.Page, "packed_page", request.packed_page)
    for memory_id, _, change in open_page(page):
        if change.kind == v1.CHANGE_KIND_DELETED:
            heard = world.oracle.reoffer_dead(device.who, memory_id)
        else:
            change.memory.id = memory_id
            setattr(change.memory, f"{device.place.subject.kind}_id", device.place.subject.name)
            memory = from_stored(change.memory)
            heard = world.oracle.reoffer(device.who, memory, unpack_field_stamps(change.field_stamps))
        if not heard:
            world.unheard.add((device.who, memory_id))
    return response


def plain(world: World, device: Device, request: Message, call: Callable[[], Response]) -> Response:
    """Serve a call of one answer."""
    answer = _called(world, device, request, call)
    occasions.private_never_leaks(world, device, _opened(answer), type(answer).__name__)
    return answer


def _called(world: World, device: Device, request: Message, call: Callable[[], Response]) -> Response:
    world.events[type(request).__name__] += 1
    try:
        return call()
    except ScrubjayError as error:
        told = f"{error.message} {error.metadata} {error.field_violations}".encode()
        occasions.private_never_leaks(world, device, told, "an error")
        raise


def stream(world: World, device: Device, call: Callable[[], Iterator[Response]]) -> Iterator[Response]:
    """Serve a call of many answers."""
    world.events[call.__qualname__.split(".")[1]] += 1
    file = b""
    for answer in call():
        file += getattr(answer, "chunk", b"")
        occasions.private_never_leaks(world, device, _opened(answer) + file, type(answer).__name__)
        yield answer


def _opened(message: Any) -> bytes:
    """The bytes of a message, with those of everything that travels packed in it."""
    data = [message.SerializeToString()]
    for name in ("packed_batch", "packed_page", "newest_page"):
        packed = getattr(message, name, b"")
        if packed:
            data.append(zlib.decompress(packed))
    return b"\n".join(data)
