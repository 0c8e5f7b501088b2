"""Rows of the broker's settings: producers, transactions, consumer groups and their offsets."""

from __future__ import annotations

from penstock.base.setting_values import Kind, at_least, between, each_one_of, one_of
from penstock.base.settings import Dynamic, Section, Setting

CLUSTER_WIDE = Dynamic.CLUSTER_WIDE
ASSIGNORS = (
    "uniform",
    "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")

# fmt: off
PRODUCERS = Section("Producers and transactions", "What is remembered of producers, and how transactions end.", (
    Setting(name="producer.id.expiration.ms", kind=Kind.INT, default=86400000, unit="ms", check=at_least(1),
            dynamic=CLUSTER_WIDE,
            doc="How long a partition remembers the sequence numbers of a producer that is silent."),
    Setting(name="producer.id.expiration.check.interval.ms", kind=Kind.INT, default=600000, unit="ms",
            check=at_least(1), doc="How often that is looked at."),
    Setting(name="transaction.max.timeout.ms", kind=Kind.INT, default=900000, unit="ms", check=at_least(1),
            doc="The longest transaction timeout a producer may ask for."),
    Setting(name="transactional.id.expiration.ms", kind=Kind.INT, default=604800000, unit="ms", check=at_least(1),
            doc="How long a transactional id without transactions is remembered."),
    Setting(name="transaction.abort.timed.out.transaction.cleanup.interval.ms", kind=Kind.INT, default=10000,
            unit="ms", check=at_least(1), doc="How often transactions are looked at for those past their timeout."),
    Setting(name="transaction.remove.expired.transaction.cleanup.interval.ms", kind=Kind.INT, default=3600000,
            unit="ms", check=at_least(1), doc="How often expired transactional ids are forgotten."),
    Setting(name="transaction.prepared.timeout.ms", kind=Kind.LONG, default=3600000, unit="ms", check=at_least(1),
            doc="How long after the last prepare under a name its prepared transactions are aborted (see "
                "[committing many producers at once](commit-many.md))."),
    Setting(name="transaction.partition.verification.enable", kind=Kind.BOOLEAN, default=True, dynamic=CLUSTER_WIDE,
            doc="Whether a leader asks the transaction coordinator before it accepts the first batch of a transaction "
                "from an older client."),
    Setting(name="transaction.state.log.num.partitions", kind=Kind.INT, default=50, check=at_least(1),
            doc="How many partitions `__transaction_state` is created with. Never change it afterwards."),
    Setting(name="transaction.state.log.replication.factor", kind=Kind.SHORT, default=3, check=at_least(1),
            doc="How many replicas `__transaction_state` is created with."),
    Setting(name="transaction.state.log.min.isr", kind=Kind.INT, default=2, check=at_least(1),
            doc="The `min.insync.replicas` that `__transaction_state` is created with."),
    Setting(name="transaction.state.log.segment.bytes", kind=Kind.INT, default=104857600, unit="bytes",
            check=at_least(1), doc="The `segment.bytes` that `__transaction_state` is created with."),
    Setting(name="add.partitions.to.txn.retry.backoff.ms", kind=Kind.INT, default=20, unit="ms", check=at_least(1),
            doc="How long a broker waits before it asks again to add a partition to a transaction that still ends."),
    Setting(name="add.partitions.to.txn.retry.backoff.max.ms", kind=Kind.INT, default=100, unit="ms",
            check=at_least(0), doc="How long a broker goes on asking."),
))

OFFSETS = Section("Committed offsets", "The topic `__consumer_offsets`.", (
    Setting(name="offsets.topic.num.partitions", kind=Kind.INT, default=50, check=at_least(1),
            doc="How many partitions `__consumer_offsets` is created with. Never change it afterwards."),
    Setting(name="offsets.topic.replication.factor", kind=Kind.SHORT, default=3, check=at_least(1),
            doc="How many replicas `__consumer_offsets` is created with."),
    Setting(name="offsets.topic.segment.bytes", kind=Kind.INT, default=104857600, unit="bytes", check=at_least(1),
            doc="The `segment.bytes` that `__consumer_offsets` is created with."),
    Setting(name="offsets.topic.compression.codec", kind=Kind.INT, default=0, check=between(0, 4),
            doc="How records of `__consumer_offsets` are compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    Setting(name="offset.metadata.max.bytes", kind=Kind.INT, default=4096, unit="bytes", check=at_least(0),
            doc="How long the text may be that a client stores with an offset."),
    Setting(name="offsets.retention.minutes", kind=Kind.INT, default=10080, unit="minutes", check=at_least(1),
            doc="How long the offsets of a group without members, or of a topic it no longer reads, are kept."),
    Setting(name="offsets.retention.check.interval.ms", kind=Kind.LONG, default=600000, unit="ms", check=at_least(1),
            doc="How often that is looked at."),
    Setting(name="offsets.commit.timeout.ms", kind=Kind.INT, default=5000, unit="ms", check=at_least(1),
            doc="How long a commit waits for the replicas of `__consumer_offsets`."),
))

GROUPS = Section("Consumer groups", "The classic protocol, and with `group.consumer.` the one of KIP-848.", (
    Setting(name="group.coordinator.rebalance.protocols", kind=Kind.LIST, default=("classic", "consumer"),
            check=each_one_of("classic", "consumer"), doc="Which group protocols are served."),
    Setting(name="group.initial.rebalance.delay.ms", kind=Kind.INT, default=3000, unit="ms", check=at_least(0),
            doc="How long the first member of an empty group waits for others to join. `penstock up` sets 0."),
    Setting(name="group.min.session.timeout.ms", kind=Kind.INT, default=6000, unit="ms", check=at_least(0),
            doc="The shortest session timeout a member may ask for."),
    Setting(name="group.max.session.timeout.ms", kind=Kind.INT, default=1800000, unit="ms", check=at_least(0),
            doc="The longest session timeout a member may ask for."),
    Setting(name="group.max.size", kind=Kind.INT, default=5000, check=at_least(1),
            doc="How many members a group may have."),
    Setting(name="group.consumer.session.timeout.ms", kind=Kind.INT, default=45000, unit="ms", check=at_least(1),
            doc="After this long without a heartbeat a member is taken out of its group."),
    Setting(name="group.consumer.min.session.timeout.ms", kind=Kind.INT, default=45000, unit="ms", check=at_least(1),
            doc="The shortest session timeout a group may be given."),
    Setting(name="group.consumer.max.session.timeout.ms", kind=Kind.INT, default=60000, unit="ms", check=at_least(1),
            doc="The longest session timeout a group may be given."),
    Setting(name="group.consumer.heartbeat.interval.ms", kind=Kind.INT, default=5000, unit="ms", check=at_least(1),
            doc="How often members are told to send a heartbeat."),
    Setting(name="group.consumer.min.heartbeat.interval.ms", kind=Kind.INT, default=5000, unit="ms", check=at_least(1),
            doc="The shortest heartbeat interval a group may be given."),
    Setting(name="group.consumer.max.heartbeat.interval.ms", kind=Kind.INT, default=15000, unit="ms",
            check=at_least(1), doc="The longest heartbeat interval a group may be given."),
    Setting(name="group.consumer.max.size", kind=Kind.INT, default=5000, check=at_least(1),
            doc="How many members a group may have."),
    Setting(name="group.consumer.assignors", kind=Kind.LIST, default=("uniform", "range"),
            check=each_one_of(*ASSIGNORS),
            doc="Which assignors members may ask for; the first is used when they do not."),
    Setting(name="group.consumer.migration.policy", kind=Kind.STRING, default="bidirectional",
            check=one_of(*MIGRATION_POLICIES, ignore_case=True),
            doc="Whether a group may move between the two protocols while it has members, and in which direction."),
    Setting(name="group.consumer.assignment.interval.ms", kind=Kind.INT, default=1000, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="The least time between two new assignments of a group."),
    Setting(name="group.consumer.min.assignment.interval.ms", kind=Kind.INT, default=0, unit="ms", check=at_least(0),
            doc="The shortest such time a group may be given."),
    Setting(name="group.consumer.max.assignment.interval.ms", kind=Kind.INT, default=15000, unit="ms",
            check=at_least(0), doc="The longest such time a group may be given."),
))
# fmt: on

SECTIONS = (PRODUCERS, OFFSETS, GROUPS)
