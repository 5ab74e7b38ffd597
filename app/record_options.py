"""The options that all commands making recordings share: which pair runs where, and where the result goes."""

import argparse
from pathlib import Path


def load_generator(description: str, default_out: Path):
    """Reads the command line and loads the pair it names.

    Returns:
        The generator, and the path given with --out.
    """
    parser = argparse.ArgumentParser(description=description)
    for name in ("target", "head", "device", "dtype", "numerics"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--out", type=Path, default=default_out)
    arguments = vars(parser.parse_args())
    out = arguments.pop("out")
    from jakiro import JakiroGenerator

    return JakiroGenerator.from_pretrained(**arguments), out
