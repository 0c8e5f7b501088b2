"""Whole clusters with an authorizer and an audit log, under faults: every promise holds as without."""

from __future__ import annotations

import pytest

from penstock.testing.sim_cluster_run import ClusterRun, Profile

pytestmark = pytest.mark.sim

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "audit.log.enable": "true",
}


@pytest.mark.parametrize("seed", range(3))
def test_clusters_with_an_authorizer_keep_their_promises(seed: int) -> None:
    ClusterRun(seed, Profile(settings=GUARDED)).run()
