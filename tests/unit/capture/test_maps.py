"""What lay where in the memory of processes, as numalab-maps writes it."""

from hypothesis import given
from hypothesis import strategies as st

from numalab.capture.maps import Mapping, parse_maps

TEXT = """\
@ 1000
process 20 20 21
map 1000-3000 r--p 00000000 00:1f 7 /job/files/folder/my prog
map 7000-9000 rw-p 00000000 00:00 0 [heap]
@ 5000
process 20 20 21 22
map 7000-a000 rw-p 00000000 00:00 0 [heap]
process 30 30
map 1000-2000 rw-p 00000000 00:00 0
"""


def test_each_process_has_its_snapshots_and_threads() -> None:
    first, second = parse_maps(TEXT)
    assert (first.tgid, first.threads, second.tgid) == (20, {20, 21, 22}, 30)
    assert [shot.time_ns for shot in first.snapshots] == [1000, 5000]
    assert first.snapshots[0].mappings == (
        Mapping(0x1000, 0x3000, "r--p", 0, "/job/files/folder/my prog"),
        Mapping(0x7000, 0x9000, "rw-p", 0, "[heap]"),
    )
    assert second.snapshots[0].mappings[0].path == ""


def test_an_address_has_the_mapping_around_it() -> None:
    shot = parse_maps(TEXT)[0].snapshots[0]
    places = [shot.place_of(address) for address in (0xFFF, 0x1000, 0x2FFF, 0x3000, 0x8FFF)]
    assert places == [None, 0, 0, None, 1]


def test_snapshots_come_from_the_last_one_before_a_time() -> None:
    process = parse_maps(TEXT)[0]
    times = {at: [shot.time_ns for shot in process.nearest_first(at)] for at in (500, 1500, 6000)}
    assert times == {500: [1000, 5000], 1500: [1000, 5000], 6000: [5000, 1000]}


@given(st.lists(st.sampled_from(TEXT.split("\n")) | st.text(max_size=60)).map("\n".join))
def test_any_text_is_read(text: str) -> None:
    for process in parse_maps(text):
        for shot in process.snapshots:
            starts = [mapping.start for mapping in shot.mappings]
            assert starts == sorted(starts)
            assert all(mapping.start < mapping.end for mapping in shot.mappings)
