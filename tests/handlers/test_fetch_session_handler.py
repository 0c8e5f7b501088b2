"""Fetch sessions in every version that has them: full, incremental, forgotten, closed, wrong."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.wire.batch import each_batch

VERSIONS = range(7, 19)
FINAL, INITIAL = -1, 0
#: With some errors Kafka has an empty list where others have null.
NO_TRANSACTIONS = {"*.aborted_transactions": "null or empty: none"}


class Fetcher:
    """Sends the fetches of one session on one topic."""

    def __init__(self, client, topic, version):
        self.client = client
        self.version = version
        self.topic = topic
        self.topic_id = client.topic_id(topic)
        self.differs = dict(NO_TRANSACTIONS)

    def __call__(self, session_id, epoch, parts=(), forgotten=(), **more):
        """(error, session id, {partition: base offsets})"""
        topics = []
        if parts:
            rows = [
                {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for index, offset in parts
            ]
            topics = [{"topic": self.topic, "topic_id": self.topic_id, "partitions": rows}]
        gone = [{"topic": self.topic, "topic_id": self.topic_id, "partitions": list(forgotten)}] if forgotten else []
        answer = self.client.ask(
            "Fetch",
            self.version,
            differs=self.differs,
            **{"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | more,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=gone,
        )
        found = {
            part.partition_index: [header.base_offset for header, _ in each_batch(memoryview(part.records or b""))]
            if not part.error_code
            else Error(part.error_code)
            for topic in answer.responses
            for part in topic.partitions
        }
        return answer.error_code, answer.session_id, found

    def close(self, session_id):
        self(session_id, FINAL)


@pytest.fixture
def fetcher(client, request):
    topic = client.topic(partitions=3)
    client.produce(topic, client.batch(b"a"), client.batch(b"b"))
    made = Fetcher(client, topic, request.param)
    opened = []
    made.opened = opened
    yield made
    for session_id in opened:
        made.close(session_id)


each_version = pytest.mark.parametrize("fetcher", VERSIONS, indirect=True)


def opened(fetcher, parts):
    error, session_id, found = fetcher(0, INITIAL, parts)
    assert error == Error.NONE and session_id > 0
    fetcher.opened.append(session_id)
    return session_id, found


@each_version
def test_a_session(client, fetcher):
    session, found = opened(fetcher, [(0, 0), (1, 0)])
    assert found == {0: [0, 1], 1: []}
    assert fetcher(session, 1, [(0, 2)]) == (Error.NONE, session, {})
    client.produce(fetcher.topic, client.batch(b"c"), partition=1)
    assert fetcher(session, 2) == (Error.NONE, session, {1: [0]})
    assert fetcher(session, 3, [(1, 1), (2, 0)])[2] == {2: []}
    assert fetcher(session, 4, forgotten=[1]) == (Error.NONE, session, {})
    client.produce(fetcher.topic, client.batch(b"d"), partition=1)
    assert fetcher(session, 5) == (Error.NONE, session, {})
    client.produce(fetcher.topic, client.batch(b"d"), partition=2)
    assert fetcher(session, 6) == (Error.NONE, session, {2: [0]})


@each_version
def test_wrong_epochs_and_ids(fetcher):
    session, _ = opened(fetcher, [(0, 0)])
    assert fetcher(session, 2)[0] == Error.INVALID_FETCH_SESSION_EPOCH
    assert fetcher(session, 7)[0] == Error.INVALID_FETCH_SESSION_EPOCH
    assert fetcher(session, 1)[0] == Error.NONE
    assert fetcher(session, 1)[0] == Error.INVALID_FETCH_SESSION_EPOCH
    assert fetcher(123_456_789, 1)[0] == Error.FETCH_SESSION_ID_NOT_FOUND


@each_version
def test_closing(fetcher):
    session, _ = opened(fetcher, [(0, 0)])
    assert fetcher(session, FINAL, [(0, 0)]) == (Error.NONE, 0, {0: [0, 1]})
    assert fetcher(session, 1)[0] == Error.FETCH_SESSION_ID_NOT_FOUND
    assert fetcher(0, FINAL, [(0, 1)]) == (Error.NONE, 0, {0: [1]})
    assert fetcher(999_999, FINAL, [(0, 1)]) == (Error.NONE, 0, {0: [1]})


@each_version
def test_beginning_anew(fetcher):
    session, _ = opened(fetcher, [(0, 0)])
    error, other, found = fetcher(session, INITIAL, [(0, 1)])
    fetcher.opened.append(other)
    assert (error, found) == (Error.NONE, {0: [1]})
    assert other != session
    assert fetcher(session, 1)[0] == Error.FETCH_SESSION_ID_NOT_FOUND


@each_version
def test_errors_are_told_again(fetcher):
    session, found = opened(fetcher, [(0, 50), (9, 0)])
    assert found == {0: Error.OFFSET_OUT_OF_RANGE, 9: Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert fetcher(session, 1)[2] == found
    assert fetcher(session, 2, [(0, 1)], forgotten=[9])[2] == {0: [1]}
    assert fetcher(session, 3, [(0, 2)])[2] == {}


@each_version
def test_an_empty_session(fetcher):
    fetcher.differs["session_id"] = "Kafka remembers a session without partitions"
    assert fetcher(0, INITIAL) == (Error.NONE, 0, {})


@each_version
def test_the_start_of_the_log_is_news(client, fetcher):
    session, _ = opened(fetcher, [(0, 2)])
    rows = [{"name": fetcher.topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
    client.ask("DeleteRecords", 2, topics=rows, timeout_ms=5000)
    assert fetcher(session, 1)[2] == {0: []}
    assert fetcher(session, 2)[2] == {}


@each_version
def test_others_get_their_turn(client, fetcher):
    fetcher.differs["responses*"] = "Kafka has another order of turns"
    for partition in (1, 2):
        client.produce(fetcher.topic, client.batch(b"x" * 500), partition=partition)
    _, session, found = fetcher(0, INITIAL, [(0, 0), (1, 0), (2, 0)], max_bytes=1)
    fetcher.opened.append(session)
    assert [index for index, batches in found.items() if batches] == [0]
    turns = []
    for epoch in range(1, 4):
        turns += [index for index, batches in fetcher(session, epoch, max_bytes=1)[2].items() if batches]
    assert turns == [1, 2, 0]


@pytest.mark.parametrize("fetcher", [12], indirect=True)
def test_names_and_ids_do_not_mix(fetcher):
    session, _ = opened(fetcher, [(0, 0)])
    fetcher.version = 13
    assert fetcher(session, 1)[0] == Error.FETCH_SESSION_TOPIC_ID_ERROR
