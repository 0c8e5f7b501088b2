"""Checkpoint files: small text files of numbers, replaced whole.

    0                      version
    2                      how many lines follow
    orders 0 4711          topic, partition, offset        (the files of a log directory)
    3 4000                 leader epoch, start offset      (leader-epoch-checkpoint of a partition)

A file that is missing is None; one that is there must be whole, or `DamagedCheckpoint` says so. An empty file is never
read as "nothing": it is what a crash leaves of a file that was not synced.
"""

from __future__ import annotations

from itertools import pairwise

from penstock.base.identifiers import TopicPartition
from penstock.base.world import Disk, read_file

VERSION = 0


class DamagedCheckpoint(Exception):
    """A checkpoint file that cannot be trusted."""


def encode_lines(lines: list[str]) -> bytes:
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def decode_lines(path: str, content: bytes) -> list[list[str]]:
    """The fields of every line."""
    try:
        lines = content.decode().split("\n")
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError) as error:
        raise DamagedCheckpoint(f"{path} is not a checkpoint file") from error
    if version != VERSION:
        raise DamagedCheckpoint(f"{path} has version {version}, not {VERSION}")
    body = [line for line in lines[2:] if line]
    if len(body) != count or (count and not content.endswith(b"\n")):
        raise DamagedCheckpoint(f"{path} says {count} lines and has {len(body)}")
    return [line.split(" ") for line in body]


def read_lines(disk: Disk, path: str) -> list[list[str]] | None:
    try:
        content = read_file(disk, path)
    except FileNotFoundError:
        return None
    return decode_lines(path, content)


def encode_offsets(offsets: dict[TopicPartition, int]) -> bytes:
    return encode_lines([f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())])


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int] | None:
    """The offsets in a checkpoint file of a log directory."""
    lines = read_lines(disk, path)
    if lines is None:
        return None
    try:
        return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in lines}
    except ValueError as error:
        raise DamagedCheckpoint(f"{path} has a line that is not a topic, a partition and an offset") from error


def encode_epochs(entries: list[tuple[int, int]]) -> bytes:
    return encode_lines([f"{epoch} {offset}" for epoch, offset in entries])


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]] | None:
    """The (epoch, start offset) pairs of a partition's epoch file, both ascending."""
    lines = read_lines(disk, path)
    if lines is None:
        return None
    try:
        entries = [(int(epoch), int(offset)) for epoch, offset in lines]
    except ValueError as error:
        raise DamagedCheckpoint(f"{path} has a line that is not an epoch and an offset") from error
    for (epoch, offset), (next_epoch, next_offset) in pairwise(entries):
        if next_epoch <= epoch or next_offset < offset:
            raise DamagedCheckpoint(f"{path} is not in order at epoch {next_epoch}")
    return entries
