"""Starts the page: reads arguments, loads the model in the background, launches; `--help` lists the options."""

import argparse
import os
import sys
from pathlib import Path

from jakiro.proxies import check_proxies
from jakiro.starting import importing
from jakiro.system import errors_as_one_sentence

with errors_as_one_sentence():
    check_proxies()  # with what stands there, Gradio's import would fail
with importing():
    from app.devices.choose import device_for
    from app.page import build as page
    from app.page.picker import PREFERRED_TARGET
    from app.serving.limits import Limits
    from app.serving.server import read_logins
    from jakiro.api.application import read_keys
    from jakiro.methods import METHODS, methods_from
    from jakiro.text import read_arguments as read_template_arguments


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Watch speculative decoding happen.")
    parser.add_argument(
        "--target",
        default=os.environ.get("JAKIRO_TARGET") or None,
        help="target model: a known name, a folder, a GGUF file or a Hub id (JAKIRO_TARGET)",
    )
    parser.add_argument("--head", help="draft head: a known name, a folder or a Hub id")
    parser.add_argument("--device", help="cpu, cuda, or auto (all devices together); default: a GPU if there is one")
    parser.add_argument("--dtype", help="float32, bfloat16, float16, 8bit, 4bit; default: what suits the device")
    parser.add_argument(
        "--numerics", choices=("exact", "fast"), help="exact: all methods round alike; fast: near ties may differ"
    )
    parser.add_argument(
        "--template-arguments",
        metavar="JSON",
        help='what the chat template is told, such as {"enable_thinking": false}',
    )
    parser.add_argument("--pairs", type=Path, help="folder with more targets and heads to choose from, one a subfolder")
    parser.add_argument(
        "--fixed-model",
        action="store_true",
        help="visitors cannot load another pair; always on with --share, --workers and on Spaces",
    )
    parser.add_argument(
        "--methods-from", action="append", default=[], metavar="MODULE",
        help="add the drafting methods in METHODS of this Python module; may be repeated",
    )  # fmt: skip
    parser.add_argument("--workers", help="let a Ray cluster answer: ray://host:port, or auto on one of its machines")
    parser.add_argument("--host", help="address to listen on (GRADIO_SERVER_NAME, else 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (GRADIO_SERVER_PORT, else a free one from 7860)")
    parser.add_argument("--share", action="store_true", help="also open a public Gradio link")
    parser.add_argument("--auth", metavar="NAME:PASSWORD", help="ask for a login, or name a file of them (JAKIRO_AUTH)")
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help="a key that programs must bring to /v1, or name a file of them (JAKIRO_API_KEY)",
    )
    Limits.add_options(parser)
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()

    def loader_of(target: str | None, head: str | None):
        def load():
            with importing():
                from jakiro import JakiroGenerator

            return JakiroGenerator.from_pretrained(
                target=target,
                head=head,
                device=arguments.device,
                dtype=arguments.dtype,
                numerics=arguments.numerics,
                side_by_side=2,
                methods=further,
                template_arguments=read_template_arguments(arguments.template_arguments),
            )

        return load

    given = (arguments.target, arguments.head)
    fixed = arguments.fixed_model or arguments.share or arguments.workers or "SPACE_ID" in os.environ
    if arguments.pairs is not None and not arguments.pairs.is_dir():
        sys.exit(f"The page could not start: there is no folder {arguments.pairs}; give --pairs a folder of models.")
    try:
        read_template_arguments(arguments.template_arguments)  # refused now, and not after a minute
        logins = read_logins(arguments.auth or os.environ.get("JAKIRO_AUTH"))
        keys = read_keys(arguments.api_key or os.environ.get("JAKIRO_API_KEY"))
        further = methods_from(arguments.methods_from)
        device = device_for(arguments, loader_of(*given), further)
        blocks = page.build(
            device,
            Limits.read(arguments),
            loader_of=None if fixed else loader_of,
            pairs_folder=arguments.pairs,
            given=given,
            numerics=arguments.numerics,
            methods=METHODS.with_further(further),
            preferred=None if fixed or any(given) else PREFERRED_TARGET,
        )
        page.launch(blocks, arguments.host, arguments.port, arguments.share, logins=logins, keys=keys)
    except (OSError, ValueError) as error:
        sys.exit(f"The page could not start: {error}")


if __name__ == "__main__":
    main()
