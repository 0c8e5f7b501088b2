"""TLS of one listener: its certificate, whom it trusts, and which user a client's certificate names.

Files are read again when settings change, and now and then, because they may have been replaced in their places; what
cannot be used leaves everything as it was. A new certificate is for new connections.
"""

from __future__ import annotations

import logging
import ssl

from penstock.base.settings import Settings, SettingsError
from penstock.base.tls_settings import TlsFiles, certificate_problem, read_tls, server_context
from penstock.base.tls_stream import TlsStream
from penstock.base.world import Stream
from penstock.security.certificate_names import Rule, parse_rules, user_of

logger = logging.getLogger(__name__)


class ListenerTls:
    """See the head of this file. SettingsError if the settings do not make sense."""

    def __init__(self, listener_name: str, settings: Settings) -> None:
        self._listener_name = listener_name
        self._files: TlsFiles | None = None
        self._name_rules: tuple[Rule, ...] = ()
        self._context: ssl.SSLContext
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Take what the settings say; SettingsError, and then nothing is changed."""
        of_listener = settings.for_listener(self._listener_name)
        try:
            name_rules = parse_rules(of_listener.text("ssl.principal.mapping.rules"))
        except ValueError as error:
            raise SettingsError([f"ssl.principal.mapping.rules: {error}"]) from None
        files = read_tls(of_listener)
        if files != self._files:
            self._take(files)
        self._name_rules = name_rules

    def _take(self, files: TlsFiles) -> None:
        """A certificate that is over takes no other's place; at the start there is no other."""
        context = server_context(files)
        problem = certificate_problem(context, files)
        if problem is not None and self._files is not None and files.certificate != self._files.certificate:
            raise SettingsError([f"ssl.keystore: nobody will believe the new certificate: {problem}"])
        if problem is not None:
            logger.error("listener %s: nobody will believe its certificate: %s", self._listener_name, problem)
        if self._files is not None:
            logger.info("listener %s uses its new certificates", self._listener_name)
        self._context, self._files = context, files

    def secured(self, stream: Stream) -> TlsStream:
        return TlsStream(stream, self._context)

    def user_of(self, stream: TlsStream) -> str | None:
        """Whom the client's certificate names, after the handshake; None without one, NoRuleError if it is nobody."""
        subject = stream.subject
        return user_of(subject, self._name_rules) if subject else None
