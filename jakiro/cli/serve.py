"""The command `serve`: the OpenAI-compatible API without the page."""

import os
import socket
from contextlib import closing
from typing import Annotated

import typer

from jakiro.cli import loading, options
from jakiro.cli.fields import build_config, options_from
from jakiro.loading.options import LoadOptions

_SHUTDOWN_SECONDS = 3


@options_from(LoadOptions)
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: options.Port = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(help="A key that requests must have, or a file with one key a line (JAKIRO_API_KEY)."),
    ] = None,
    queue_length: Annotated[int, typer.Option(help="Requests that may wait.", min=0)] = 64,
    methods_from: options.MethodsFrom = None,
    **values,
) -> None:
    """Serve one pair with the OpenAI-compatible API at /v1.

    docs/api.md has examples.
    """
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from jakiro.drafters.registry import methods_from as import_methods
    from jakiro.server.application import application, read_keys
    from jakiro.server.generator_lock import OneGenerator

    keys = read_keys(api_key or os.environ.get("JAKIRO_API_KEY"))
    # A port that is taken is reported now, not after the model has been loaded
    with closing(_listen(host, port)) as listening:
        generator = loading.load(build_config(LoadOptions, values, methods=import_methods(methods_from or ())))
        loading.say_notices(generator)
        backend = OneGenerator(generator, queue_length)
        for notice in backend.notices:
            loading.say(notice, "yellow")
        served = Starlette(routes=[Mount("/v1", application(backend, keys))])
        loading.say(f"{backend.model} at http://{host}:{port}/v1")
        config = uvicorn.Config(served, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_SECONDS)
        uvicorn.Server(config).run([listening])


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        OSError: the address is unknown, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise OSError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}; choose another one."
        ) from error
