"""kcat: a program, driven through its options, its standard input and its output."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any

from .client import (
    BEGINNING,
    DEADLINE_S,
    DEFAULT_FETCH,
    MESSAGE_BYTES_MAX,
    Client,
    FetchOptions,
    Message,
    Producer,
    Reader,
    Refused,
    Start,
)

PROGRAM = shutil.which("kcat")
END_OF_MESSAGE = b"\x1e\x1d\x1e"
END_OF_KEY = b"\x1f\x1d\x1f"
#: One line of numbers and headers, then the bytes of key and value.
FORMAT = r"%p %o %T %K %S %h\n%k%s\n"
#: kcat names errors in words; these are those the scenarios ask for.
ERROR_CODES = {"Message size too large": 10}


class KcatReader(Reader):
    def __init__(self, output: IO[bytes]) -> None:
        super().__init__()
        self._messages: Queue[Message] = Queue()
        self._thread = Thread(target=self._follow, args=(output,), daemon=True)
        self._thread.start()

    def poll(self, timeout_s: float) -> list[Message]:
        messages: list[Message] = []
        try:
            messages.append(self._messages.get(timeout=timeout_s))
            while True:
                messages.append(self._messages.get_nowait())
        except Empty:
            return messages

    def seek(self, partition: int, offset: int) -> None:
        raise NotImplementedError("kcat cannot seek once it runs")

    def join(self) -> None:
        self._thread.join(DEADLINE_S)

    def _follow(self, output: IO[bytes]) -> None:
        """Until kcat ends; when it is killed, its last message may be cut short."""
        while (line := output.readline()).endswith(b"\n"):
            partition, offset, timestamp_ms, key_bytes, value_bytes, headers = line[:-1].split(b" ", 5)
            message = Message(
                partition=int(partition),
                offset=int(offset),
                timestamp_ms=int(timestamp_ms),
                key=_read(output, int(key_bytes)),
                value=_read(output, int(value_bytes)),
                headers=_headers(headers),
            )
            if output.read(1):
                self._messages.put(message)


def _read(output: IO[bytes], count: int) -> bytes | None:
    return None if count < 0 else output.read(count)


def _headers(text: bytes) -> tuple[tuple[str, bytes | None], ...]:
    pairs = [pair.partition(b"=") for pair in text.split(b",")] if text else []
    return tuple((name.decode(), value) for name, _, value in pairs)


class KcatClient(Client):
    name = "kcat"
    sets_timestamps = False
    reads_null_headers = False
    has_admin = False
    knows_offsets = False

    @contextmanager
    def producer(
        self, *, acks: str = "all", compression: str = "none", idempotent: bool = False, **options: Any
    ) -> Iterator[Producer]:
        raise NotImplementedError("kcat produces what it is given and leaves")

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
        **options: Any,
    ) -> list[tuple[int, int]]:
        """One run of kcat for each stretch of messages that can share its options."""
        settings = [
            f"acks={acks}",
            f"enable.idempotence={str(idempotent).lower()}",
            f"message.max.bytes={MESSAGE_BYTES_MAX}",
            "topic.partitioner=murmur2_random",
        ]
        count = 0
        for (partition, headers, has_key, is_null), group in groupby(messages, _shape):
            stretch = list(group)
            count += len(stretch)
            arguments = ["-P", "-t", topic, "-z", compression, "-D", _escape(END_OF_MESSAGE)]
            arguments += [f"-p{partition}"] if partition is not None else []
            arguments += ["-K", _escape(END_OF_KEY)] if has_key else []
            arguments += ["-Z"] if is_null else []
            for name, value in headers:
                arguments += ["-H", f"{name}={(value or b'').decode()}"]
            for setting in settings:
                arguments += ["-X", setting]
            self._run(arguments, b"".join(_line(message) for message in stretch))
        return [(-1, -1)] * count

    @contextmanager
    def reader(
        self,
        topic: str,
        partitions: Sequence[int] = (0,),
        start: Start = BEGINNING,
        *,
        reset: str = "earliest",
        committed_only: bool = False,
        fetch: FetchOptions = DEFAULT_FETCH,
    ) -> Iterator[Reader]:
        arguments = ["-C", "-q", "-u", "-E", "-t", topic, "-f", FORMAT, "-o", str(start)]
        arguments += ["-p", str(partitions[0])] if len(partitions) == 1 else []
        arguments += ["-X", f"topic.auto.offset.reset={reset}"]
        arguments += ["-X", f"isolation.level={'read_committed' if committed_only else 'read_uncommitted'}"]
        if fetch.min_bytes is not None:
            arguments += ["-X", f"fetch.min.bytes={fetch.min_bytes}"]
        if fetch.max_wait_ms is not None:
            arguments += ["-X", f"fetch.wait.max.ms={fetch.max_wait_ms}"]
        if fetch.max_partition_bytes is not None:
            arguments += ["-X", f"max.partition.fetch.bytes={fetch.max_partition_bytes}"]
        process = subprocess.Popen(self._command(arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        reader = KcatReader(process.stdout)
        try:
            yield reader
        finally:
            process.kill()
            process.wait(DEADLINE_S)
            reader.join()
            process.stdout.close()

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._query(topic, partition, timestamp_ms)
        return None if offset < 0 else offset

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        answer = self._run(["-Q", "-t", f"{topic}:{partition}:{timestamp_ms}"])
        return int(answer.decode().rpartition("offset")[2])

    def list(self) -> str:
        """What `kcat -L` prints."""
        return self._run(["-L"]).decode()

    def _run(self, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            self._command(arguments), input=stdin, capture_output=True, timeout=DEADLINE_S, check=False
        )
        complaint = done.stderr.decode(errors="replace")
        for words, code in ERROR_CODES.items():
            if words in complaint:
                raise Refused(code, complaint)
        assert done.returncode == 0, complaint
        return done.stdout

    def _command(self, arguments: Sequence[str]) -> list[str]:
        assert PROGRAM is not None
        return [PROGRAM, "-b", self.bootstrap, *arguments]


def _shape(message: Message) -> tuple[Any, ...]:
    return message.partition, message.headers, message.key is not None, message.value is None


def _line(message: Message) -> bytes:
    key = b"" if message.key is None else message.key + END_OF_KEY
    return key + (message.value or b"") + END_OF_MESSAGE


def _escape(text: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text)
