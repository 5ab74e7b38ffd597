"""The command `serve`: OpenAI's interface without the page."""

import os
from typing import Annotated

import typer

from jakiro.cli import loading, options
from jakiro.cli.fields import filled, options_from
from jakiro.loading.options import LoadOptions

_ENDING_SECONDS = 3


@options_from(LoadOptions)
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(help="A key that requests must bring, or a file with one a line (JAKIRO_API_KEY)."),
    ] = None,
    queue_length: Annotated[int, typer.Option(help="Answers that may wait.", min=0)] = 64,
    methods_from: options.MethodsFrom = None,
    **given,
) -> None:
    """Serve one pair with OpenAI's interface, at /v1; docs/api.md has examples."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from jakiro.drafters.registry import methods_from as found
    from jakiro.server.application import application, read_keys
    from jakiro.server.generator_lock import OneGenerator

    keys = read_keys(api_key or os.environ.get("JAKIRO_API_KEY"))
    generator = loading.load(filled(LoadOptions, given, methods=found(methods_from or ())))
    loading.say_notices(generator)
    backend = OneGenerator(generator, queue_length)
    served = Starlette(routes=[Mount("/v1", application(backend, keys))])
    loading.say(f"{backend.model} at http://{host}:{port}/v1")
    uvicorn.run(served, host=host, port=port, log_level="warning", timeout_graceful_shutdown=_ENDING_SECONDS)
