"""Connections that outlive a task: who gets which, and which are closed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.columnar.settings import ClientSettings
from penstock.spark import kept_clusters
from penstock.spark.kept_clusters import CLUSTERS_MAX, kept_cluster


class FakeCluster:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kept_clusters, "Cluster", FakeCluster)
    monkeypatch.setattr(kept_clusters, "_waiting", {})
    yield


def settings(port: int = 9092) -> ClientSettings:
    return ClientSettings.parse({"bootstrap.servers": f"localhost:{port}"})


def test_the_next_one_gets_the_same() -> None:
    with kept_cluster(settings()) as first:
        pass
    with kept_cluster(settings()) as second:
        assert second is first
    with kept_cluster(settings(9093)) as other:
        assert other is not first


def test_two_at_a_time_have_one_each() -> None:
    with kept_cluster(settings()) as outer, kept_cluster(settings()) as inner:
        assert outer is not inner
    assert [outer.is_closed, inner.is_closed].count(True) == 1  # type: ignore[attr-defined]


def test_one_that_failed_is_not_used_again() -> None:
    with pytest.raises(RuntimeError), kept_cluster(settings()) as failed:
        raise RuntimeError
    assert failed.is_closed  # type: ignore[attr-defined]
    with kept_cluster(settings()) as fresh:
        assert fresh is not failed


def test_a_forked_process_does_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with kept_cluster(settings()) as parents:
        pass
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with kept_cluster(settings()) as childs:
        assert childs is not parents


def test_only_so_many_wait() -> None:
    made = []
    for port in range(1, CLUSTERS_MAX + 3):
        with kept_cluster(settings(port)) as cluster:
            made.append(cluster)
    assert [cluster.is_closed for cluster in made] == [True, True] + [False] * CLUSTERS_MAX  # type: ignore[attr-defined]
