"""Settings of Apache Kafka that are known and mean nothing here, and those that cannot be left out silently.

A name that ends with a dot stands for every name that begins with it. An ignored setting gives one warning; a refused
one stops the start, because a cluster that leaves it out would be less safe than its owner believes.
"""

from __future__ import annotations

from types import MappingProxyType

_THREADS = "a broker runs one event loop and sizes its pools itself"
_KRAFT = "the cluster's state lives in ZooKeeper or the embedded keeper"
_TIERED = "there is no remote storage"
_PURGATORY = "waiting requests are removed when they are answered"
_JAVA_TLS = "TLS is that of Python, which has no Java providers"
_LOGIN = "no Java login modules run in a broker"
_KERBEROS = "Kerberos is not offered"
_METRICS = "metrics are served for Prometheus"
_OLD = "it belongs to older releases of Kafka"
_LOADING = "logs of offsets and transactions are read at the disk's own speed"
_OAUTH_CLIENT = "brokers do not log in to each other with OAUTHBEARER"
_POLICY = "policies written in Java cannot run here, and leaving one out would allow more"

IGNORED_SETTINGS = MappingProxyType(
    {
        "background.threads": _THREADS,
        "num.io.threads": _THREADS,
        "num.network.threads": _THREADS,
        "num.recovery.threads.per.data.dir": _THREADS,
        "num.replica.alter.log.dirs.threads": _THREADS,
        "num.replica.fetchers": "one connection to each leader fetches for all of its partitions",
        "queued.max.requests": "requests are limited by their size, with queued.max.request.bytes",
        "group.coordinator.threads": _THREADS,
        "group.coordinator.background.threads": _THREADS,
        "group.coordinator.append.linger.ms": "records of groups are written with the batch that is ready",
        "group.coordinator.cached.buffer.max.bytes": _LOADING,
        "group.coordinator.new.enable": _OLD,
        "group.consumer.regex.refresh.interval.ms": "subscriptions by regular expression follow the topics at once",
        "offsets.load.buffer.size": _LOADING,
        "offsets.commit.required.acks": _OLD,
        "transaction.state.log.load.buffer.size": _LOADING,
        "transaction.two.phase.commit.enable": "many producers are committed at once by Penstock's own request",
        "delete.records.purgatory.purge.interval.requests": _PURGATORY,
        "fetch.purgatory.purge.interval.requests": _PURGATORY,
        "producer.purgatory.purge.interval.requests": _PURGATORY,
        "share.fetch.purgatory.purge.interval.requests": _PURGATORY,
        "process.roles": "every broker can be the controller",
        "controller.listener.names": _KRAFT,
        "controller.quorum.": _KRAFT,
        "controller.performance.": _KRAFT,
        "metadata.log.": _KRAFT,
        "metadata.max.": _KRAFT,
        "internal.metadata.": _KRAFT,
        "broker.heartbeat.interval.ms": _KRAFT,
        "broker.session.timeout.ms": "zookeeper.session.timeout.ms decides when a broker is taken for dead",
        "initial.broker.registration.timeout.ms": _KRAFT,
        "early.start.listeners": "listeners accept clients when the broker can serve them",
        "server.max.startup.time.ms": "a start waits only for ZooKeeper: see zookeeper.connection.timeout.ms",
        "sasl.mechanism.controller.protocol": _KRAFT,
        "unstable.": "only finished versions of APIs are offered",
        "remote.": _TIERED,
        "log.local.retention.": _TIERED,
        "follower.fetch.last.tiered.offset.enable": _TIERED,
        "rlmm.config.": _TIERED,
        "rsm.config.": _TIERED,
        "group.share.": "share groups are not served",
        "share.coordinator.": "share groups are not served",
        "group.streams.": "streams groups are not served; Kafka Streams uses the classic protocol",
        "errors.deadletterqueue.": "share groups are not served",
        "telemetry.max.bytes": "client telemetry is not served",
        "kafka.metrics.": _METRICS,
        "metric.reporters": _METRICS,
        "metrics.num.samples": _METRICS,
        "metrics.recording.level": _METRICS,
        "metrics.sample.window.ms": _METRICS,
        "auto.include.jmx.reporter": _METRICS,
        "client.quota.callback.class": "quotas are those set with penstock quota or AlterClientQuotas",
        "config.providers": "values are taken as they are written",
        "config.providers.": "values are taken as they are written",
        "ssl.keystore.password": "PEM files have no password of their own: see ssl.key.password",
        "ssl.truststore.password": "PEM files have no password of their own",
        "ssl.protocol": "ssl.enabled.protocols decides",
        "ssl.provider": _JAVA_TLS,
        "ssl.keymanager.algorithm": _JAVA_TLS,
        "ssl.trustmanager.algorithm": _JAVA_TLS,
        "ssl.secure.random.implementation": _JAVA_TLS,
        "ssl.allow.dn.changes": "a new certificate is taken as it is",
        "ssl.allow.san.changes": "a new certificate is taken as it is",
        "security.providers": _JAVA_TLS,
        "sasl.kerberos.": _KERBEROS,
        "sasl.login.": _LOGIN,
        "sasl.client.callback.handler.class": _LOGIN,
        "sasl.oauthbearer.assertion.": _OAUTH_CLIENT,
        "sasl.oauthbearer.client.credentials.": _OAUTH_CLIENT,
        "sasl.oauthbearer.header.urlencode": _OAUTH_CLIENT,
        "sasl.oauthbearer.jwt.retriever.class": _OAUTH_CLIENT,
        "sasl.oauthbearer.scope": _OAUTH_CLIENT,
        "sasl.oauthbearer.token.endpoint.url": _OAUTH_CLIENT,
        "broker.id.generation.enable": _OLD,
        "reserved.broker.max.id": _OLD,
        "inter.broker.protocol.version": _OLD,
        "log.message.format.version": _OLD,
        "log.message.downconversion.enable": _OLD,
        "log.message.timestamp.difference.max.ms": _OLD,
        "control.plane.listener.name": _OLD,
        "controlled.shutdown.max.retries": _OLD,
        "controlled.shutdown.retry.backoff.ms": _OLD,
        "leader.imbalance.per.broker.percentage": _OLD,
        "password.encoder.": _OLD,
        "zookeeper.max.in.flight.requests": "one connection sends everything in order",
        "zookeeper.metadata.migration.enable": _OLD,
    }
)

REFUSED_SETTINGS = MappingProxyType(
    {
        "create.topic.policy.class.name": _POLICY,
        "alter.config.policy.class.name": _POLICY,
        "principal.builder.class": "builders written in Java cannot run here; use ssl.principal.mapping.rules",
        "sasl.server.callback.handler.class": "login handlers written in Java cannot run here",
        "sasl.oauthbearer.jwt.validator.class": "token validators written in Java cannot run here",
        "ssl.engine.factory.class": "TLS engines written in Java cannot run here",
        "host.name": "write listeners=PLAINTEXT://host:port",
        "port": "write listeners=PLAINTEXT://host:port",
        "advertised.host.name": "write advertised.listeners=PLAINTEXT://host:port",
        "advertised.port": "write advertised.listeners=PLAINTEXT://host:port",
    }
)
