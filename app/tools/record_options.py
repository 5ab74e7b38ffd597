"""Common options of the recording commands: pair, device and output path."""

import argparse
from pathlib import Path

from jakiro.drafters.registry import methods_from

WARM_UP = "How does a bird fly?"


def read_options(description: str, default_out: Path) -> tuple[dict, Path]:
    """Return the command line's arguments for `JakiroGenerator.from_pretrained`, and the output path."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("target", "head", "device", "dtype", "numerics"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--methods-from", action="append", default=[])
    parser.add_argument("--out", type=Path, default=default_out)
    arguments = vars(parser.parse_args())
    out, modules = arguments.pop("out"), arguments.pop("methods_from")
    return arguments | {"methods": methods_from(modules)}, out


def load_generator(pair: dict):
    from jakiro import JakiroGenerator

    generator = JakiroGenerator.from_pretrained(**pair)
    for _ in generator.race([{"role": "user", "content": WARM_UP}]):  # a process's first answer is its slowest
        pass
    return generator
