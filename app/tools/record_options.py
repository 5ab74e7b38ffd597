"""The options that all commands making recordings share: which pair runs where, and where the result goes."""

import argparse
from pathlib import Path

from jakiro.drafters.registry import methods_from

WARM_UP = "How does a bird fly?"


def read_options(description: str, default_out: Path) -> tuple[dict, Path]:
    """The pair on the command line, as `JakiroGenerator.from_pretrained` takes it, and where the result goes."""
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
