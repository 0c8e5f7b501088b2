"""Rows of the broker's settings: encryption (TLS), logins (SASL), delegation tokens and authorization.

Those that differ from listener to listener can also be given as `listener.name.<listener>.<setting>`.
"""

from __future__ import annotations

from penstock.base.setting_values import Kind, at_least, distinct, each_one_of, one_of
from penstock.base.settings import Dynamic, Section, Setting

PER_BROKER = Dynamic.PER_BROKER
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)

# fmt: off
TLS = Section("Encryption (TLS)", "Keys and certificates are PEM, in a file or in the setting itself.", (
    Setting(name="ssl.keystore.location", kind=Kind.STRING, default=None, dynamic=PER_BROKER, per_listener=True,
            doc="A PEM file with the broker's private key and its certificate chain."),
    Setting(name="ssl.keystore.key", kind=Kind.PASSWORD, default=None, dynamic=PER_BROKER, per_listener=True,
            doc="The private key itself, as PEM text, in place of a file."),
    Setting(name="ssl.keystore.certificate.chain", kind=Kind.PASSWORD, default=None, dynamic=PER_BROKER,
            per_listener=True, doc="The certificate chain itself, as PEM text, in place of a file."),
    Setting(name="ssl.key.password", kind=Kind.PASSWORD, default=None, dynamic=PER_BROKER, per_listener=True,
            doc="The password of the private key, if it has one."),
    Setting(name="ssl.keystore.type", kind=Kind.STRING, default="PEM", check=one_of("PEM"), dynamic=PER_BROKER,
            per_listener=True, doc="The format of the key. Java's own formats have to be converted to PEM."),
    Setting(name="ssl.truststore.location", kind=Kind.STRING, default=None, dynamic=PER_BROKER, per_listener=True,
            doc="A PEM file with the certificates that clients and other brokers are checked against."),
    Setting(name="ssl.truststore.certificates", kind=Kind.PASSWORD, default=None, dynamic=PER_BROKER, per_listener=True,
            doc="Those certificates themselves, as PEM text, in place of a file."),
    Setting(name="ssl.truststore.type", kind=Kind.STRING, default="PEM", check=one_of("PEM"), dynamic=PER_BROKER,
            per_listener=True, doc="The format of the trusted certificates."),
    Setting(name="ssl.client.auth", kind=Kind.STRING, default="none", check=one_of("required", "requested", "none"),
            dynamic=PER_BROKER, per_listener=True, doc="Whether clients must, may or need not show a certificate."),
    Setting(name="ssl.enabled.protocols", kind=Kind.LIST, default=("TLSv1.2", "TLSv1.3"), dynamic=PER_BROKER,
            check=each_one_of("TLSv1.2", "TLSv1.3"), per_listener=True, doc="Which versions of TLS are spoken."),
    Setting(name="ssl.cipher.suites", kind=Kind.LIST, default=(), check=distinct(may_be_empty=True),
            dynamic=PER_BROKER, per_listener=True,
            doc="Which cipher suites may be used; an empty list is the default set."),
    Setting(name="ssl.endpoint.identification.algorithm", kind=Kind.STRING, default="https", check=one_of("https", ""),
            dynamic=PER_BROKER, per_listener=True,
            doc="Whether a broker checks that another broker's certificate is for its host name; empty does not."),
    Setting(name="ssl.principal.mapping.rules", kind=Kind.STRING, default="DEFAULT", per_listener=True,
            doc="How the name in a client's certificate becomes the name of a user."),
))

SASL = Section("Logins (SASL)", "Who clients are, where a listener asks for a login.", (
    Setting(name="security.inter.broker.protocol", kind=Kind.STRING, default="PLAINTEXT", check=one_of(*PROTOCOLS),
            doc="The security protocol among brokers, where `inter.broker.listener.name` is not given."),
    Setting(name="sasl.enabled.mechanisms", kind=Kind.LIST, default=("SCRAM-SHA-256", "SCRAM-SHA-512"),
            check=each_one_of(*MECHANISMS), dynamic=PER_BROKER, per_listener=True,
            doc="Which ways to log in are offered."),
    Setting(name="sasl.mechanism.inter.broker.protocol", kind=Kind.STRING, default="SCRAM-SHA-512",
            check=one_of(*MECHANISMS), dynamic=PER_BROKER, doc="How brokers log in to each other."),
    Setting(name="sasl.jaas.config", kind=Kind.PASSWORD, default=None, dynamic=PER_BROKER, per_listener=True,
            doc="The broker's own name and password and, for PLAIN, those of the users, in Kafka's form; one for each "
                "mechanism, as `listener.name.<listener>.<mechanism>.sasl.jaas.config`."),
    Setting(name="sasl.plain.without.tls.enable", kind=Kind.BOOLEAN, default=False, per_listener=True,
            doc="Whether PLAIN, which sends the password itself, is offered on listeners without TLS. Penstock's own."),
    Setting(name="sasl.server.max.receive.size", kind=Kind.INT, default=524288, unit="bytes", check=at_least(1),
            per_listener=True, doc="The largest message of a login that is accepted."),
    Setting(name="connections.max.reauth.ms", kind=Kind.LONG, default=0, unit="ms", check=at_least(0),
            per_listener=True, doc="After how long a client must log in again on an open connection; 0 never."),
    Setting(name="sasl.oauthbearer.jwks.endpoint.url", kind=Kind.STRING, default=None, per_listener=True,
            doc="Where the keys are found that tokens are signed with (a JWKS document; `https` or a file)."),
    Setting(name="sasl.oauthbearer.jwks.endpoint.refresh.ms", kind=Kind.LONG, default=3600000, unit="ms",
            check=at_least(1), per_listener=True, doc="How often those keys are fetched."),
    Setting(name="sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", kind=Kind.LONG, default=100, unit="ms",
            check=at_least(1), per_listener=True, doc="How long the first wait is after a failed fetch of the keys."),
    Setting(name="sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", kind=Kind.LONG, default=10000, unit="ms",
            check=at_least(1), per_listener=True, doc="What that wait grows to."),
    Setting(name="sasl.oauthbearer.expected.audience", kind=Kind.LIST, default=(), check=distinct(may_be_empty=True),
            per_listener=True, doc="For whom a token must be made: one of these."),
    Setting(name="sasl.oauthbearer.expected.issuer", kind=Kind.STRING, default=None, per_listener=True,
            doc="By whom a token must be made."),
    Setting(name="sasl.oauthbearer.clock.skew.seconds", kind=Kind.INT, default=30, unit="seconds", check=at_least(0),
            per_listener=True, doc="How far apart the clocks of the issuer and the broker may be."),
    Setting(name="sasl.oauthbearer.scope.claim.name", kind=Kind.STRING, default="scope", per_listener=True,
            doc="The claim of a token that has its scopes, which must be well formed; nothing follows from them."),
    Setting(name="sasl.oauthbearer.sub.claim.name", kind=Kind.STRING, default="sub", per_listener=True,
            doc="The claim of a token that has the name of the user."),
))

TOKENS = Section("Delegation tokens", "Short-lived logins that a client makes for others.", (
    Setting(name="delegation.token.secret.key", kind=Kind.PASSWORD, default=None,
            doc="The secret that tokens are made with, the same on all brokers. Not given, there are no tokens."),
    Setting(name="delegation.token.max.lifetime.ms", kind=Kind.LONG, default=604800000, unit="ms", check=at_least(1),
            doc="How long a token lives, however often it is renewed."),
    Setting(name="delegation.token.expiry.time.ms", kind=Kind.LONG, default=86400000, unit="ms", check=at_least(1),
            doc="How long a token lives without being renewed."),
    Setting(name="delegation.token.expiry.check.interval.ms", kind=Kind.LONG, default=3600000, unit="ms",
            check=at_least(1), doc="How often expired tokens are removed."),
))

AUTHORIZATION = Section("Authorization", "What users may do.", (
    Setting(name="authorizer.class.name", kind=Kind.STRING, default="", check=one_of("", *AUTHORIZERS),
            doc="Empty, everybody may do everything. Either of Kafka's names turns on Penstock's access control lists, "
                "which deny what is not allowed."),
    Setting(name="super.users", kind=Kind.STRING, default="",
            doc="Users who may do everything, as a list of `User:name` with semicolons between."),
    Setting(name="allow.everyone.if.no.acl.found", kind=Kind.BOOLEAN, default=False,
            doc="Whether a resource that no access control list names is open to everybody."),
))

AUDIT = Section("Audit log", "What was refused, who changed what, and why records went, as JSON lines.", (
    Setting(name="audit.log.enable", kind=Kind.BOOLEAN, default=True,
            doc="Whether the audit log is written. Penstock's own."),
    Setting(name="audit.log.dir", kind=Kind.STRING, default=None,
            doc="The folder of the audit log. Not given, `audit` in the first of the log directories. Penstock's own."),
    Setting(name="audit.log.file.bytes", kind=Kind.LONG, default=16777216, unit="bytes", check=at_least(1024),
            doc="How large a file of the audit log grows before a new one begins. Penstock's own."),
    Setting(name="audit.log.files", kind=Kind.INT, default=10, check=at_least(1),
            doc="How many files of the audit log are kept, the one being written included. Penstock's own."),
))
# fmt: on

SECTIONS = (TLS, SASL, TOKENS, AUTHORIZATION, AUDIT)
