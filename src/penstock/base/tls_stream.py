"""TLS over any stream of the world: the same interface, with encrypted bytes below and plain ones above.

OpenSSL works on memory here and never sees a socket: what arrives is put into one buffer, what is to be sent is taken
out of another. The handshake happens inside of `recv_into`, as the peer's bytes come, so that a server's connection
needs no step of its own for it; a client waits for `shake_hands`.

What was decrypted and not asked for yet does not make the socket below readable: so who watches is called again as long
as there is some. Likewise what was encrypted and not sent yet waits here, at most one `send` of it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from penstock.base.world import Buffer, File, Stream

RECEIVE_BYTES = 64 * 1024
ENCRYPT_BYTES_MAX = 128 * 1024
#: A handshake with a long chain of certificates has some ten thousand; more is somebody who plays.
HANDSHAKE_BYTES_MAX = 256 * 1024


class TlsError(OSError):
    """The peer's part of TLS is not acceptable."""


class TlsStream:
    """See the head of this file. `on_ready` is called once, after the handshake."""

    def __init__(
        self,
        stream: Stream,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        is_server: bool = True,
        on_ready: Callable[[TlsStream], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self.peer = stream.peer
        self.local = stream.local
        self.is_ready = False
        self.on_ready = on_ready
        self.on_failure = on_failure
        self._stream = stream
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._arrived, self._leaving, server_side=is_server, server_hostname=server_hostname
        )
        self._received = memoryview(bytearray(RECEIVE_BYTES if not is_server else 4096))
        self._handshake_bytes = 0
        self._unsent = memoryview(b"")
        self._is_writing = False
        self._is_closed = False
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None
        self._again: asyncio.Handle | None = None

    @property
    def certificate(self) -> bytes | None:
        """What the peer has shown of itself, and we trust, in DER."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def subject(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The name in that certificate; empty if there is none."""
        shown = self._tls.getpeercert()
        subject: tuple[tuple[tuple[str, str], ...], ...] = shown.get("subject", ()) if shown else ()  # type: ignore[assignment]
        return subject

    # ── the handshake ────────────────────────────────────────────────────────────────────────────────────────────

    async def shake_hands(self) -> None:
        """The client's side; OSError if it fails. Whoever waits has a deadline."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def advance() -> None:
            try:
                while not self.is_ready:
                    self._advance_handshake()
                if not done.done():
                    done.set_result(None)
            except BlockingIOError:
                return
            except OSError as error:
                if not done.done():
                    done.set_exception(error)

        self._stream.watch_read(advance)
        try:
            advance()
            await done
        except BaseException:
            self.close()
            raise
        finally:
            if not self._is_closed:
                self._stream.watch_read(None)

    def _advance_handshake(self) -> None:
        """One step; BlockingIOError if the peer's bytes have to come first, TlsError if they are not acceptable."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_leaving()
            self._receive()
            return
        except ssl.SSLError as error:
            self._send_leaving()  # an alert, which tells the peer why
            reason = _reason(error)
            if self.on_failure is not None:
                self.on_failure(reason)
            raise TlsError(reason) from None
        self.is_ready = True
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        self._send_leaving()
        if self.on_ready is not None:
            self.on_ready(self)

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────

    def recv_into(self, buffer: Buffer) -> int:
        if self._is_closed:
            return 0
        while not self.is_ready:
            if self._arrived.eof:
                return 0
            self._advance_handshake()
        view, filled = memoryview(buffer), 0
        while filled < len(view):
            try:
                count: int = self._tls.read(len(view) - filled, view[filled:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                if filled:
                    break
                self._send_leaving()
                self._receive()
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
            except ssl.SSLError as error:
                raise TlsError(_reason(error)) from None
            if not count:  # the peer said goodbye
                break
            filled += count
        if self._leaving.pending:
            self._send_leaving()  # answers of TLS itself, as to an update of keys
        return filled

    def _receive(self) -> None:
        count = self._stream.recv_into(self._received)
        if not self.is_ready:
            self._handshake_bytes += count
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise TlsError("a handshake that does not end")
        if count:
            self._arrived.write(self._received[:count])
        else:
            self._arrived.write_eof()

    def watch_read(self, callback: Callable[[], None] | None) -> None:
        self._on_read = callback
        if self._is_closed:
            return
        self._stream.watch_read(None if callback is None else self._readable)
        if callback is not None:
            self._call_again_if_more()

    def _readable(self) -> None:
        if self._on_read is not None:
            self._on_read()
            self._call_again_if_more()

    def _call_again_if_more(self) -> None:
        has_more = not self._is_closed and self.is_ready and self._undelivered
        if has_more and self._on_read is not None and self._again is None:
            self._again = asyncio.get_running_loop().call_soon(self._call_again)

    def _call_again(self) -> None:
        self._again = None
        if self._on_read is None or self._is_closed:
            return
        before = self._undelivered
        self._on_read()
        if not self._is_closed and self._undelivered != before:  # else it is half a record, or nobody wants it
            self._call_again_if_more()

    @property
    def _undelivered(self) -> int:
        return self._tls.pending() + self._arrived.pending

    def after_reading(self, callback: Callable[[], None]) -> None:
        self._stream.after_reading(callback)

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, data: Buffer) -> int:
        """Takes at most ENCRYPT_BYTES_MAX; BlockingIOError while something from before is not sent yet."""
        if self._is_closed:
            raise BrokenPipeError
        if self._unsent:
            self._send_unsent()
            if self._unsent:
                raise BlockingIOError
        part = memoryview(data)[:ENCRYPT_BYTES_MAX]
        if not part:
            return 0
        try:
            count = self._tls.write(part)
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from None
        self._send_leaving()
        return count

    def send_more(self, data: Buffer) -> int:
        return self.send(data)

    def send_file(self, file: File, offset: int, count: int) -> int:
        """The kernel cannot encrypt for us: the bytes pass through the program."""
        if self._unsent:
            self._send_unsent()
            if self._unsent:
                raise BlockingIOError
        found = file.read(min(count, ENCRYPT_BYTES_MAX), offset)
        return self.send(found) if found else 0

    def _send_leaving(self) -> None:
        if self._leaving.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._leaving.read())
        if self._unsent:
            self._send_unsent()

    def _send_unsent(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._stream.send(self._unsent) :]
        except BlockingIOError:
            if not self._is_writing:
                self._is_writing = True
                self._stream.watch_write(self._writable)

    def watch_write(self, callback: Callable[[], None] | None) -> None:
        self._on_write = callback
        if self._is_closed:
            return
        if callback is not None:
            self._is_writing = True
            self._stream.watch_write(self._writable)
        elif not self._unsent:
            self._stop_writing()

    def _writable(self) -> None:
        try:
            self._send_unsent()
        except OSError:
            self._unsent = memoryview(b"")  # who watches finds out by the next call
        if self._unsent:
            return
        if self._on_write is not None:
            self._on_write()
        elif not self._is_closed:
            self._stop_writing()

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._stream.watch_write(None)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Say goodbye (close_notify) if there is room for it, and close."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        if self.is_ready:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # it waits for the peer's goodbye, and we do not
            goodbye = bytes(self._unsent) + self._leaving.read()
            try:
                self._stream.send(goodbye)
            except OSError:
                pass
        self._stream.close()
        self._let_go()

    def _let_go(self) -> None:
        """Of a hundred kilobytes, at once: who owns this stream is tied to it, and both may lie about for a while."""
        self.on_ready = self.on_failure = self._on_read = self._on_write = None
        self._received = self._unsent = memoryview(b"")
        del self._tls, self._arrived, self._leaving


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    return f"TLS failed: {(error.reason or 'the connection ended').replace('_', ' ').lower()}"
