"""Entry point of the page: reads the options, launches the page and loads the model in the background."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from app.proxies import check_proxies
from jakiro.progress import importing
from jakiro.system import errors_as_one_sentence


def _check_port_variable() -> None:
    """Raise ValueError if GRADIO_SERVER_PORT is no port; Gradio would fail with a traceback."""
    port = os.environ.get("GRADIO_SERVER_PORT")
    if port and not (port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError(f"GRADIO_SERVER_PORT must be a port from 1 to 65535; got {port!r}.")


with errors_as_one_sentence():
    # Gradio's import fails if these variables are invalid
    _check_port_variable()
    check_proxies()
with importing():
    from app.devices.choose import device_for
    from app.page import build as page
    from app.page.offered import Appearance
    from app.page.picker import PREFERRED_TARGET
    from app.serving.limits import Limits
    from app.serving.server import read_logins
    from jakiro.cli.fields import build_config, options_from
    from jakiro.cli.options import MethodsFrom, option
    from jakiro.drafters.registry import METHODS
    from jakiro.drafters.registry import methods_from as import_methods
    from jakiro.loading.options import LoadOptions
    from jakiro.server.application import read_keys
    from jakiro.text import read_arguments as read_template_arguments

# Published drafters of the lab, which only a checkout has; used if no other methods are named
LAB_METHODS = "lab.published"

command = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@command.command()
@options_from(LoadOptions, Limits, without=("graphs", "draft_precision", "draft_model"))
def main(
    pairs: Annotated[Path | None, option("Folder with more targets and heads to choose from, one a subfolder.")] = None,
    fixed_model: Annotated[
        bool,
        option("Visitors cannot load another pair; always on with --share, --workers and on Spaces.", "--fixed-model"),
    ] = False,
    methods_from: MethodsFrom = None,
    workers: Annotated[
        str | None, option("Let a Ray cluster answer: ray://host:port, or auto on one of its machines.")
    ] = None,
    host: Annotated[str | None, option("Address to listen on (GRADIO_SERVER_NAME, else 127.0.0.1).")] = None,
    port: Annotated[
        int | None,
        option("Port to listen on (GRADIO_SERVER_PORT, else a free one from 7860).", min=1, max=65535),
    ] = None,
    store_chats: Annotated[
        bool,
        option(
            "Browsers keep chats on disk; --no-store-chats for shared computers.",
            "--store-chats/--no-store-chats",
            envvar="JAKIRO_STORE_CHATS",
        ),
    ] = True,
    title: Annotated[str | None, option("Name of the page.")] = None,
    questions: Annotated[Path | None, option("File of example questions, one a line.")] = None,
    theme: Annotated[Path | None, option("Style sheet that is loaded after the page's own.")] = None,
    share: Annotated[bool, option("Also open a public Gradio link.", "--share")] = False,
    auth: Annotated[
        str | None, option("Ask for a login, NAME:PASSWORD, or name a file of them.", envvar="JAKIRO_AUTH")
    ] = None,
    api_key: Annotated[
        str | None,
        option("A key that programs must bring to /v1, or name a file of them.", envvar="JAKIRO_API_KEY"),
    ] = None,
    **values,
) -> None:
    """Show speculative decoding step by step. The variable JAKIRO_TARGET stands for --target."""
    try:
        if pairs is not None and not pairs.is_dir():
            raise ValueError(f"there is no folder {pairs}; give --pairs a folder of models.")
        # The machines of a cluster have methods of their own
        has_lab = (Path(__file__).parent / "lab").is_dir() and workers is None
        methods = import_methods(methods_from or [LAB_METHODS] * has_lab)
        options = build_config(LoadOptions, values, side_by_side=2, methods=methods)
        options = replace(options, target=options.target or os.environ.get("JAKIRO_TARGET") or None)
        # Checked here, because loading takes a minute
        read_template_arguments(options.template_arguments)
        fixed = fixed_model or share or workers or "SPACE_ID" in os.environ
        logins, keys = read_logins(auth), read_keys(api_key)
        pair = (options.target, options.head)
        blocks = page.build(
            device_for(workers, options, _loader(options, *pair)),
            build_config(Limits, values),
            loader_of=None if fixed else partial(_loader, options),
            pairs_folder=pairs,
            pair=pair,
            numerics=options.numerics,
            methods=METHODS.with_further(methods),
            preferred=None if fixed or any(pair) else PREFERRED_TARGET,
            store_chats=store_chats,
            appearance=Appearance.read(title, questions, theme),
        )
        page.launch(blocks, host, port, share, logins=logins, keys=keys)
    except (OSError, ValueError) as error:
        sys.exit(f"The page could not start: {error}")


def _loader(options: LoadOptions, target: str | None, head: str | None) -> Callable[[], object]:
    """Return a function that loads a pair with these options."""

    def load() -> object:
        with importing():
            from jakiro import JakiroGenerator

        return JakiroGenerator.load(replace(options, target=target, head=head))

    return load


if __name__ == "__main__":
    command()
