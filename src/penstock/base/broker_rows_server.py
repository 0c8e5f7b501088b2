"""Rows of the broker's settings: who it is, where it listens, what it accepts, and its part in the cluster.

The rows are kept as a table of two or three lines each, so that many can be read at a glance.
"""

from __future__ import annotations

from penstock.base.broker_rows_security import PROTOCOLS
from penstock.base.setting_values import INT_MAX, Kind, at_least, distinct, matching, one_of
from penstock.base.settings import Dynamic, Section, Setting

CLUSTER_WIDE, PER_BROKER = Dynamic.CLUSTER_WIDE, Dynamic.PER_BROKER
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

# fmt: off
IDENTITY = Section("Identity and coordination", "Who this broker is, and where the cluster's state lives.", (
    Setting(name="node.id", kind=Kind.INT, default=0, check=at_least(0), falls_back_to=("broker.id",),
            doc="The number of this broker, different for every broker of a cluster."),
    Setting(name="broker.id", kind=Kind.INT, default=0, check=at_least(0), falls_back_to=("node.id",),
            doc="The older name of `node.id`. Where both are given they must be equal."),
    Setting(name="broker.rack", kind=Kind.STRING, default=None,
            doc="The rack or zone of this broker. Replicas of a partition are spread over racks while they can be."),
    Setting(name="broker.host", kind=Kind.STRING, default=None,
            doc="The machine of this broker; not given, its host name. Replicas of a partition are kept on different "
                "machines while there is a choice, so that several brokers can share one machine. Penstock's own."),
    Setting(name="zookeeper.connect", kind=Kind.STRING, default=None,
            doc="Every server of the ZooKeeper ensemble, as `host:port,host:port/chroot`; the chroot is made if it is "
                "missing. `penstock up` has a keeper of its own and takes none."),
    Setting(name="zookeeper.session.timeout.ms", kind=Kind.INT, default=18000, unit="ms", check=at_least(1),
            doc="After this long without contact the cluster takes this broker for dead. One whose process ends is "
                "missed at once, by its watcher: this is for brokers that hang or are cut off. `penstock up` with "
                "several brokers takes 6000."),
    Setting(name="zookeeper.connection.timeout.ms", kind=Kind.INT, default=None, unit="ms", check=at_least(1),
            falls_back_to=("zookeeper.session.timeout.ms",),
            doc="How long a start waits for ZooKeeper. Not given, as long as the session timeout."),
    Setting(name="zookeeper.auth.digest", kind=Kind.PASSWORD, default=None,
            doc="`user:password` that brokers show to ZooKeeper, the same on all of them. Znodes with credentials are "
                "then created for the brokers alone. Penstock's own."),
    Setting(name="zookeeper.set.acl", kind=Kind.BOOLEAN, default=False,
            doc="Whether all other znodes are created so that only the brokers of the cluster may change them; needs "
                "`zookeeper.auth.digest`."),
    Setting(name="zookeeper.unprotected.credentials.enable", kind=Kind.BOOLEAN, default=False,
            doc="Whether users' credentials, and passwords among dynamic settings, may be kept in ZooKeeper without "
                "`zookeeper.auth.digest`, where whoever reaches ZooKeeper can read them. Penstock's own."),
))

LISTENING = Section("Listeners and connections", "Where clients connect, and how many may.", (
    Setting(name="listeners", kind=Kind.LIST, default=("PLAINTEXT://:9092",), check=distinct(),
            doc="Where the broker listens, as a list of `NAME://host:port`. No host or `0.0.0.0` is every IPv4 "
                "address, `[::]` every address; port 0 is any free one."),
    Setting(name="advertised.listeners", kind=Kind.LIST, default=None, check=distinct(),
            doc="The addresses that clients are told to use, by listener name. Not given, those of `listeners`, with "
                "the host name in place of a wildcard."),
    Setting(name="listener.security.protocol.map", kind=Kind.STRING,
            default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            doc="Which security protocol each listener name speaks, as a list of `NAME:PROTOCOL`."),
    Setting(name="inter.broker.listener.name", kind=Kind.STRING, default=None,
            doc="The listener that brokers use among themselves. Not given, the one of "
                "`security.inter.broker.protocol`, or the first."),
    Setting(name="socket.listen.backlog.size", kind=Kind.INT, default=1024, check=at_least(1),
            doc="How many new connections may wait to be accepted."),
    Setting(name="socket.receive.buffer.bytes", kind=Kind.INT, default=-1, unit="bytes", check=at_least(-1),
            doc="The size of a connection's receive buffer in the operating system; -1 leaves it to the system."),
    Setting(name="socket.send.buffer.bytes", kind=Kind.INT, default=102400, unit="bytes", check=at_least(-1),
            doc="The size of a connection's send buffer in the operating system; -1 leaves it to the system."),
    Setting(name="max.connections", kind=Kind.INT, default=20000, check=at_least(0), dynamic=CLUSTER_WIDE,
            per_listener=True,
            doc="How many connections are open at once, in all or on one listener. A broker on a listener "
                "of its own is let in all the same, in the place of the client that was silent longest."),
    Setting(name="max.connections.per.ip", kind=Kind.INT, default=10000, check=at_least(0), dynamic=CLUSTER_WIDE,
            doc="How many connections one address may have open."),
    Setting(name="max.connections.per.ip.overrides", kind=Kind.STRING, default="", dynamic=CLUSTER_WIDE,
            check=matching(r"(\s*[^,\s]+:[0-9]+\s*(,\s*[^,\s]+:[0-9]+\s*)*)?", "a list of `host:count`"),
            doc="Other limits than `max.connections.per.ip` for some addresses, as a list of `address:count`; "
                "names of hosts are not looked up, and refused."),
    Setting(name="max.connection.creation.rate", kind=Kind.INT, default=INT_MAX, check=at_least(0),
            dynamic=CLUSTER_WIDE, per_listener=True,
            doc="How many new connections are accepted in a second, in all or on one listener; more wait."),
    Setting(name="connections.max.idle.ms", kind=Kind.LONG, default=600000, unit="ms", check=at_least(-1),
            doc="A connection on which nothing was asked for this long is closed; -1 never closes one."),
    Setting(name="connection.frame.timeout.ms", kind=Kind.INT, default=60000, unit="ms", check=at_least(1),
            doc="How long a client may take from the first to the last byte of a request, or to read an answer, "
                "without any progress in between. Penstock's own."),
    Setting(name="connection.login.timeout.ms", kind=Kind.INT, default=30000, unit="ms", check=at_least(1),
            doc="How long a client may take for TLS and the login together, on listeners that ask for them. "
                "Penstock's own."),
    Setting(name="connection.failed.authentication.delay.ms", kind=Kind.INT, default=100, unit="ms", check=at_least(0),
            doc="How long the answer to a failed login is held back, to slow down guessing."),
))

REQUESTS = Section("Requests", "How much a client may ask for at a time.", (
    Setting(name="socket.request.max.bytes", kind=Kind.INT, default=104857600, unit="bytes", check=at_least(1),
            doc="The largest request that is accepted. A larger one closes its connection."),
    Setting(name="socket.unauthenticated.request.max.bytes", kind=Kind.INT, default=524288, unit="bytes",
            check=at_least(1),
            doc="The largest request that is accepted before a client has logged in, on listeners with a login. "
                "Penstock's own."),
    Setting(name="queued.max.request.bytes", kind=Kind.LONG, default=268435456, unit="bytes", check=at_least(-1),
            doc="How much memory the requests of all connections may take together while they arrive and are handled. "
                "Beyond it no more is read until some are done; -1 is no limit."),
    Setting(name="message.max.bytes", kind=Kind.INT, default=1048588, unit="bytes", check=at_least(0),
            dynamic=CLUSTER_WIDE,
            doc="The largest record batch that is accepted, as it travels (compressed), for topics that set no other."),
    Setting(name="fetch.max.bytes", kind=Kind.INT, default=57671680, unit="bytes", check=at_least(1024),
            doc="The most that one fetch is answered with, whatever it asks for; a first batch larger than that "
                "is still sent."),
    Setting(name="max.incremental.fetch.session.cache.slots", kind=Kind.INT, default=1000, check=at_least(0),
            doc="How many incremental fetch sessions are kept."),
    Setting(name="max.request.partition.size.limit", kind=Kind.INT, default=2000, check=at_least(1),
            doc="How many partitions one answer to DescribeTopicPartitions has at most."),
    Setting(name="request.timeout.ms", kind=Kind.INT, default=30000, unit="ms", check=at_least(1),
            doc="How long a broker waits for the answer of another broker."),
    Setting(name="quota.window.num", kind=Kind.INT, default=11, check=at_least(1),
            doc="How many windows of time a client's rate is averaged over, for quotas."),
    Setting(name="quota.window.size.seconds", kind=Kind.INT, default=1, unit="seconds", check=at_least(1),
            doc="How long one of those windows is."),
    Setting(name="controller.quota.window.num", kind=Kind.INT, default=11, check=at_least(1),
            doc="As `quota.window.num`, for quotas on creating and deleting topics and partitions."),
    Setting(name="controller.quota.window.size.seconds", kind=Kind.INT, default=1, unit="seconds", check=at_least(1),
            doc="As `quota.window.size.seconds`, for quotas on creating and deleting topics and partitions."),
))

TOPICS = Section("Topics and partitions", "How topics come to be, and what they are when nobody says otherwise.", (
    Setting(name="num.partitions", kind=Kind.INT, default=1, check=at_least(1),
            doc="How many partitions a new topic has when its creator does not say."),
    Setting(name="default.replication.factor", kind=Kind.INT, default=1, check=at_least(1),
            doc="How many replicas the partitions of a new topic have when its creator does not say."),
    Setting(name="min.insync.replicas", kind=Kind.INT, default=1, check=at_least(1), dynamic=CLUSTER_WIDE,
            doc="How many replicas must be in sync for a write with acks=all to be accepted."),
    Setting(name="auto.create.topics.enable", kind=Kind.BOOLEAN, default=True,
            doc="Whether a topic is created when a client first asks for it."),
    Setting(name="delete.topic.enable", kind=Kind.BOOLEAN, default=True, doc="Whether topics can be deleted."),
    Setting(name="unclean.leader.election.enable", kind=Kind.BOOLEAN, default=False, dynamic=CLUSTER_WIDE,
            doc="Whether a replica that may have missed acknowledged records can become leader when no other is left. "
                "True prefers availability and can lose data."),
    Setting(name="unclean.leader.election.interval.ms", kind=Kind.LONG, default=300000, unit="ms", check=at_least(1),
            doc="How often partitions without a leader are looked at again for an unclean election."),
    Setting(name="auto.leader.rebalance.enable", kind=Kind.BOOLEAN, default=True,
            doc="Whether leadership is given back to the preferred replicas by itself."),
    Setting(name="leader.imbalance.check.interval.seconds", kind=Kind.LONG, default=300, unit="seconds",
            check=at_least(1), doc="How often that is looked at."),
    Setting(name="controlled.shutdown.enable", kind=Kind.BOOLEAN, default=True,
            doc="Whether a broker that stops hands its leaderships over first."),
))

REPLICATION = Section("Replication", "How followers copy from leaders.", (
    Setting(name="replica.lag.time.max.ms", kind=Kind.LONG, default=30000, unit="ms", check=at_least(1),
            doc="A follower that has not caught up for this long leaves the in-sync replicas."),
    Setting(name="replica.fetch.max.bytes", kind=Kind.INT, default=1048576, unit="bytes", check=at_least(0),
            doc="How much a follower asks for of one partition; a first batch larger than that is still sent."),
    Setting(name="replica.fetch.response.max.bytes", kind=Kind.INT, default=10485760, unit="bytes", check=at_least(0),
            doc="How much a follower asks for in one fetch."),
    Setting(name="replica.fetch.min.bytes", kind=Kind.INT, default=1, unit="bytes", check=at_least(1),
            doc="How much must be there for the leader to answer a follower at once."),
    Setting(name="replica.fetch.wait.max.ms", kind=Kind.INT, default=500, unit="ms", check=at_least(0),
            doc="How long the leader keeps a follower's fetch that finds too little; below `replica.lag.time.max.ms`."),
    Setting(name="replica.fetch.backoff.ms", kind=Kind.INT, default=1000, unit="ms", check=at_least(0),
            doc="How long a follower waits after a failed fetch."),
    Setting(name="replica.socket.timeout.ms", kind=Kind.INT, default=30000, unit="ms", check=at_least(1),
            doc="How long a follower waits for its leader's answer; at least `replica.fetch.wait.max.ms`. Five seconds "
                "more than that without a byte are enough to connect anew."),
    Setting(name="replica.socket.receive.buffer.bytes", kind=Kind.INT, default=65536, unit="bytes", check=at_least(-1),
            doc="The receive buffer of a follower's connection in the operating system; -1 leaves it to the system."),
    Setting(name="replica.high.watermark.checkpoint.interval.ms", kind=Kind.LONG, default=5000, unit="ms",
            check=at_least(1), doc="How often high watermarks are written to disk."),
    Setting(name="replica.selector.class", kind=Kind.STRING, default=None,
            check=one_of(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
            doc="Whether consumers are sent to a replica in their own rack: name the rack-aware selector. Not given, "
                "they read from the leader."),
    Setting(name="controller.socket.timeout.ms", kind=Kind.INT, default=30000, unit="ms", check=at_least(1),
            doc="How long a broker waits for the controller's answer."),
    Setting(name="socket.connection.setup.timeout.ms", kind=Kind.LONG, default=10000, unit="ms", check=at_least(1),
            doc="How long a broker waits for a connection to another broker; doubled with every failure."),
    Setting(name="socket.connection.setup.timeout.max.ms", kind=Kind.LONG, default=30000, unit="ms", check=at_least(1),
            doc="What that wait grows to."),
    Setting(name="replication.quota.window.num", kind=Kind.INT, default=11, check=at_least(1),
            doc="How many windows of time replication traffic is averaged over, for throttling."),
    Setting(name="replication.quota.window.size.seconds", kind=Kind.INT, default=1, unit="seconds", check=at_least(1),
            doc="How long one of those windows is."),
    Setting(name="leader.replication.throttled.rate", kind=Kind.LONG, default=9223372036854775807,
            unit="bytes", check=at_least(0), dynamic=PER_BROKER,
            doc="How many bytes a second this broker sends for throttled replicas, as their leader."),
    Setting(name="follower.replication.throttled.rate", kind=Kind.LONG, default=9223372036854775807,
            unit="bytes", check=at_least(0), dynamic=PER_BROKER,
            doc="How many bytes a second this broker fetches for throttled replicas, as their follower."),
    Setting(name="alter.log.dirs.replication.quota.window.num", kind=Kind.INT, default=11, check=at_least(1),
            doc="As `replication.quota.window.num`, for moves between log directories."),
    Setting(name="alter.log.dirs.replication.quota.window.size.seconds", kind=Kind.INT, default=1, unit="seconds",
            check=at_least(1), doc="As `replication.quota.window.size.seconds`, for moves between log directories."),
    Setting(name="replica.alter.log.dirs.io.max.bytes.per.second", kind=Kind.LONG, default=9223372036854775807,
            unit="bytes", check=at_least(0), dynamic=PER_BROKER,
            doc="How many bytes a second are copied for moves between log directories."),
))

METRICS = Section("Metrics", "Numbers for Prometheus, over HTTP; the page on metrics lists them. Penstock's own.", (
    Setting(name="metrics.listener", kind=Kind.STRING, default="127.0.0.1:9308+",
            check=matching(r"(([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}"
                           r"|655[0-2][0-9]|6553[0-5])\+?)?", "`host:port`, `host:port+`, or empty"),
            doc="Where metrics are served. With a `+` behind the port the next free one is taken if it is in use; "
                "port 0 is any free one; empty serves none. On an address that other machines reach, a login "
                "is needed, too: `metrics.login`, or `metrics.security.protocol`."),
    Setting(name="metrics.security.protocol", kind=Kind.STRING, default="PLAINTEXT", check=one_of(*PROTOCOLS),
            doc="As for other listeners: with TLS or without (`SSL`), and with the login of a user (`SASL_SSL`), "
                "who needs DESCRIBE on the cluster where an authorizer is on. The user's name and password are sent by "
                "HTTP basic authentication. TLS and users of PLAIN can be given as `listener.name.metrics.…`."),
    Setting(name="metrics.login", kind=Kind.PASSWORD, default=None,
            doc="`user:password` that whoever reads the metrics must give (HTTP basic authentication)."),
    Setting(name="metrics.series.max", kind=Kind.INT, default=10000, check=at_least(0), dynamic=CLUSTER_WIDE,
            doc="How many partitions get series of their own, how many groups, and how many offsets of groups. Those "
                "beyond are only counted in the totals."),
))
# fmt: on

SECTIONS = (IDENTITY, LISTENING, REQUESTS, TOPICS, REPLICATION, METRICS)
