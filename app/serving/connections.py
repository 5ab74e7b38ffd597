"""Limits for connections without a complete request head: time, size, and number."""

import asyncio

# From the connection, or from a request's first byte, to the end of the head
HEAD_SECONDS = 10.0
MOST_HEAD_BYTES = 2**16
# Above this number, the oldest connection without a complete head is closed; browsers open some in advance
MOST_SILENT = 512


def hang_up_on_silence(server) -> None:
    """Close new connections whose request head is not complete within `HEAD_SECONDS`.

    Args:
        server: a running `uvicorn.Server`, which has no such limit.
    """
    protocol = server.config.http_protocol_class

    class Bounded(_Bounded, protocol):
        silent: dict = {}  # noqa: RUF012 - shared by all connections, in order of arrival

    server.config.http_protocol_class = Bounded


class _Bounded(asyncio.Protocol):
    """Wrap one of uvicorn's HTTP protocols; both store the current response as `cycle`."""

    silent: dict
    _head_bytes = None
    _timer = None

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc) -> None:
        self._heard()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        earlier_bytes = self._head_bytes
        super().data_received(data)
        if self.transport.is_closing():
            return
        if earlier_bytes is not None and self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._hang_up()
                return
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._heard()

    def on_message_begin(self) -> None:
        """Count the bytes of a new request head. `httptools` calls this; `h11` limits heads by itself."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        super().on_headers_complete()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._hang_up)
            self.silent[self] = None
            if len(self.silent) > MOST_SILENT:
                next(iter(self.silent))._hang_up()

    def _heard(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.silent.pop(self, None)

    def _hang_up(self) -> None:
        self._heard()
        self.transport.abort()
