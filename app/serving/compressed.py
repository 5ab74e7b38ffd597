"""Compresses the stream of updates, each as soon as it is there: steps have most of their text in common."""

import zlib

UPDATES = "/queue/data"
# The fastest level, because the model may compute on the same cores
_LEVEL = 1
_GZIP = 31


class CompressedUpdates:
    """ASGI middleware that compresses the stream of updates for clients that accept gzip."""

    def __init__(self, app) -> None:
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        accepted = any(name == b"accept-encoding" and b"gzip" in value for name, value in scope.get("headers", ()))
        if scope["type"] != "http" or not scope["path"].endswith(UPDATES) or not accepted:
            await self._app(scope, receive, send)
            return
        packer = zlib.compressobj(_LEVEL, wbits=_GZIP)

        async def send_on(message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if header[0].lower() != b"content-length"]
                more = [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]
                message = message | {"headers": [*headers, *more]}
            elif message["type"] == "http.response.body":
                body, last = message.get("body", b""), not message.get("more_body")
                packed = packer.compress(body) + packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
                message = message | {"body": packed}
            await send(message)

        await self._app(scope, receive, send_on)
