from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.identifiers import TopicPartition
from penstock.base.world import write_file_durably
from penstock.log.checkpoints import DamagedCheckpoint, encode_epochs, encode_offsets, read_epochs, read_offsets
from penstock.testing.sim_disk import SimDisk

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


def disk_with(content: bytes) -> SimDisk:
    disk = SimDisk()
    write_file_durably(disk, "/c", content)
    return disk


@given(st.dictionaries(st.tuples(topics, st.integers(0, 99)), st.integers(0, 2**62), max_size=8))
def test_offsets_come_back(offsets: dict[tuple[str, int], int]) -> None:
    named = {TopicPartition(*key): offset for key, offset in offsets.items()}
    assert read_offsets(disk_with(encode_offsets(named)), "/c") == named


def test_the_format_is_kafkas() -> None:
    content = encode_offsets({TopicPartition("b", 1): 7, TopicPartition("a", 10): 5})
    assert content == b"0\n2\na 10 5\nb 1 7\n"
    assert encode_epochs([(0, 0), (3, 40)]) == b"0\n2\n0 0\n3 40\n"


def test_a_missing_file_is_none() -> None:
    assert read_offsets(SimDisk(), "/c") is None
    assert read_epochs(SimDisk(), "/c") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n", b"0\n2\na 0 1\n", b"1\n1\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"\0\0\0\0", b"0\n1\na 0 1"],
)
def test_a_file_that_is_not_whole_is_damage(content: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        read_offsets(disk_with(content), "/c")


@pytest.mark.parametrize("content", [b"", b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n1\n"])
def test_epochs_that_do_not_ascend_are_damage(content: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        read_epochs(disk_with(content), "/c")
