"""A script that a browser runs before Gradio's own, written into the <head> of every page that is served.

What Gradio's `head` brings comes when its modules have been read.
"""

HEAD = b"<head>"


class EarlyScript:
    """ASGI middleware.

    Args:
        app: what serves the pages, uncompressed.
        script: the script's text.
    """

    def __init__(self, app, script: str) -> None:
        self._app = app
        self._element = f"{HEAD.decode()}<script>{script}</script>".encode()

    async def __call__(self, scope, receive, send) -> None:
        page = None

        async def send_on(message) -> None:
            nonlocal page
            if message["type"] == "http.response.start" and _is_page(message):
                page = (message, [])
            elif page is None:
                await send(message)
            else:
                start, parts = page
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    body = b"".join(parts).replace(HEAD, self._element, 1)
                    length = (b"content-length", str(len(body)).encode())
                    headers = [header for header in start["headers"] if header[0].lower() != length[0]]
                    await send(start | {"headers": [*headers, length]})
                    await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, send_on)


def _is_page(message) -> bool:
    kind = dict(message.get("headers", ())).get(b"content-type", b"")
    return kind.startswith(b"text/html")
