"""The names of the files and folders of a log directory, as Apache Kafka gives them.

A segment's files are called after its base offset in twenty digits; what differs is the ending.
"""

from __future__ import annotations

from penstock.base.identifiers import TopicPartition, topic_name_problem

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

EPOCHS_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
MOVED_FROM_FILE = "moved-from"

INDEX_SUFFIXES = (INDEX, TIME_INDEX, TXN_INDEX)

DELETE_FOLDER_SUFFIX = "-delete"
FUTURE_FOLDER_SUFFIX = "-future"

_OFFSET_DIGITS = 20
_FOLDER_NAME_LENGTH_MAX = 255


def offset_name(offset: int) -> str:
    """An offset as file names carry it."""
    return f"{offset:020d}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file name with this ending, or None if the name is another kind."""
    digits = name.removesuffix(suffix)
    if len(digits) != _OFFSET_DIGITS or digits + suffix != name or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def partition_of_folder(name: str) -> TopicPartition | None:
    """The partition a folder is for, or None if it is no partition's folder."""
    topic, dash, number = name.rpartition("-")
    if not dash or not (number.isascii() and number.isdigit()) or len(number) > 10 or topic_name_problem(topic):
        return None
    partition = int(number)
    return TopicPartition(topic, partition) if str(partition) == number else None


def deleted_folder_name(partition: TopicPartition, unique_hex: str) -> str:
    """What the folder of a deleted partition is renamed to until it is gone; long topic names are cut to fit."""
    ending = f"-{partition.partition}.{unique_hex}{DELETE_FOLDER_SUFFIX}"
    return partition.topic[: _FOLDER_NAME_LENGTH_MAX - len(ending)] + ending


def is_deleted_folder(name: str) -> bool:
    head, dot, tail = name.rpartition(".")
    return bool(dot) and bool(head) and tail.endswith(DELETE_FOLDER_SUFFIX)


def future_folder_name(partition: TopicPartition, unique_hex: str) -> str | None:
    """What the folder of a replica is called while it is copied into another log directory; None if that is too long.

    Unlike a deleted one it has to say whose it is, so the topic's name cannot be cut.
    """
    name = f"{partition}.{unique_hex}{FUTURE_FOLDER_SUFFIX}"
    return name if len(name) <= _FOLDER_NAME_LENGTH_MAX else None


def partition_of_future_folder(name: str) -> TopicPartition | None:
    """The partition of which a folder is the copy under way, or None if it is none."""
    head, dot, tail = name.rpartition(".")
    return partition_of_folder(head) if dot and tail.endswith(FUTURE_FOLDER_SUFFIX) else None
