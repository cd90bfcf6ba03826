"""Stamps: one order in three forms, clocks that never run back, bytes that are checked."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from scrubjay.stamp import (
    Clock,
    CommitStamp,
    Stamp,
    next_commit_stamp,
    pack_field_stamps,
    parse_time_text,
    time_text,
    unpack_field_stamps,
)
from tests.strategies import REPLICAS, any_stamps, replicas, stamps

LAST_MILLIS = 253_402_300_799_999
millis = st.integers(-1000, 10**6) | st.integers(0, LAST_MILLIS - 1)
field_stamps = st.dictionaries(
    st.sampled_from(["content", "source", "tags.a", "tags.标签", "metadata.a.b"]) | st.text(), stamps
).filter(lambda found: all(_is_utf8(field) for field in found))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fails_with_value_error(read: object, given: object) -> bool:
    try:
        read(given)  # type: ignore[operator]  # a function, by its callers
    except ValueError:
        return True
    return False


@given(any_stamps)
@example(Stamp(0, REPLICAS[0]))
@example(Stamp(LAST_MILLIS << 16 | 0xFFFF, REPLICAS[2]))
def test_a_stamp_reads_back_from_its_bytes_and_its_text(stamp: Stamp) -> None:
    assert Stamp.unpack(stamp.pack()) == stamp
    assert Stamp.parse(str(stamp)) == stamp
    assert parse_time_text(time_text(stamp.time)) == stamp.time
    assert stamp.millis == stamp.time >> 16


@given(any_stamps | stamps, any_stamps | stamps)
def test_stamps_their_bytes_and_their_texts_have_one_order(one: Stamp, other: Stamp) -> None:
    assert (one < other) == (one.pack() < other.pack()) == (str(one) < str(other))
    assert (one == other) == (one.pack() == other.pack()) == (str(one) == str(other))


@given(st.text() | st.from_regex(r"[0-9T:.Z+-]{0,30}(\.[0-9a-f]{4})?(\.[0-9a-f]{32})?"))
@example("2026-11-30T08:00:00.000.0000." + "00" * 16)
@example("2026-11-30T08:00:00.000Z.0000." + "00" * 15)
@example("2026-11-30T08:00:00.000Z.0000." + "AA" * 16)
@example("2026-11-30T08:00:00.000+01:00.0000." + "00" * 16)
@example("1969-12-31T23:59:59.999Z.0000." + "00" * 16)
@example("0001-01-01T00:00:00.000Z.0000." + "00" * 16)
@example("2026-02-30T00:00:00.000Z.0000." + "00" * 16)
@example("２026-11-30T08:00:00.000Z.0000." + "00" * 16)
@example("\ud800")
def test_a_text_that_is_no_stamp_is_a_value_error(text: str) -> None:
    assert _fails_with_value_error(Stamp.parse, text)


@given(st.text() | st.from_regex(r"[0-9T:.Z+-]{0,30}(\.[0-9a-fx_ ]{4})?"))
@example("2026-11-30T08:00:00.000.0000")
@example("2026-11-30.0000")
@example("2026-11-30T08:00:00.000Z.0x1f")
@example("2026-11-30T08:00:00.000Z. 1f0")
@example("2026-11-30T24:00:00.000Z.0000")
@example("9999-12-31T23:59:59.999-23:59.0000")
@example("1969-12-31T23:59:59.999Z.0000")
def test_a_time_text_that_reads_is_the_one_that_would_be_written(text: str) -> None:
    try:
        time = parse_time_text(text)
    except ValueError:
        return
    assert time >= 0
    assert time_text(time) == text


@given(replicas, st.lists(st.tuples(millis, st.none() | stamps)))
def test_a_clock_never_runs_back_whatever_time_does(
    replica: bytes, jumps: list[tuple[int, Stamp | None]]
) -> None:
    clock = Clock(REPLICAS[0])
    last: Stamp | None = None
    for now, received in jumps:
        if received is not None:
            clock.observe(received)
        stamp = clock.tick(now)
        assert received is None or stamp > received
        assert last is None or stamp > last
        assert stamp.millis >= now
        last = stamp


def test_a_counter_that_runs_over_goes_into_the_milliseconds() -> None:
    clock = Clock(REPLICAS[0], last=(7 << 16) | 0xFFFF)
    assert clock.tick(7).time == 8 << 16


@given(st.integers(0, LAST_MILLIS << 16), millis)
def test_a_commit_stamp_is_above_the_head_and_not_before_now(head: int, now: int) -> None:
    following = next_commit_stamp(CommitStamp(head), now)
    assert following > head
    assert following >> 16 >= now
    assert following in (head + 1, now << 16)


@given(field_stamps)
def test_field_stamps_read_back_and_have_one_form(found: dict[str, Stamp]) -> None:
    packed = pack_field_stamps(found)
    assert unpack_field_stamps(packed) == found
    assert pack_field_stamps(dict(reversed(found.items()))) == packed


@given(field_stamps, st.data())
def test_damaged_field_stamps_give_a_value_error_or_stamps(
    found: dict[str, Stamp], data: st.DataObject
) -> None:
    packed = bytearray(pack_field_stamps(found))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "grow"])):
            case "flip":
                packed[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del packed[max(at, 1) :]
            case "grow":
                packed += data.draw(st.binary(max_size=40))
    _only_value_errors(bytes(packed))


@given(st.binary(max_size=80))
def test_random_bytes_give_a_value_error_or_stamps(packed: bytes) -> None:
    _only_value_errors(packed)
    _only_value_errors(b"\1" + packed)


def _only_value_errors(packed: bytes) -> None:
    try:
        found = unpack_field_stamps(packed)
    except ValueError:
        return
    assert unpack_field_stamps(pack_field_stamps(found)) == found


@given(field_stamps.filter(bool))
def test_field_stamps_cut_anywhere_inside_a_group_are_damaged(found: dict[str, Stamp]) -> None:
    packed = pack_field_stamps(dict.fromkeys(found, Stamp(1, REPLICAS[0])))
    for end in (0, *range(2, len(packed))):
        assert _fails_with_value_error(unpack_field_stamps, packed[:end])


@given(st.integers(0, 255).filter(lambda version: version != 1))
def test_field_stamps_of_another_version_are_refused(version: int) -> None:
    packed = pack_field_stamps({"content": Stamp(1, REPLICAS[0])})
    assert _fails_with_value_error(unpack_field_stamps, bytes([version]) + packed[1:])


def test_a_field_stamped_twice_is_damage() -> None:
    one = pack_field_stamps({"content": Stamp(1, REPLICAS[0])})
    other = pack_field_stamps({"content": Stamp(2, REPLICAS[0])})
    assert _fails_with_value_error(unpack_field_stamps, one + other[1:])
