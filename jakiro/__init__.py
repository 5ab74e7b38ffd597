"""Jakiro: speculative decoding with a mixture-of-experts draft head, every step recorded (arXiv 2502.06282)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jakiro.config import Grammar, SamplingParams, TreeConfig
    from jakiro.decode.prefix_cache import PrefixStore
    from jakiro.generator import JakiroGenerator
    from jakiro.trace import Trace

__version__ = "0.10.0"

__all__ = ["Grammar", "JakiroGenerator", "PrefixStore", "SamplingParams", "Trace", "TreeConfig", "__version__"]

_MODULES = {
    "Grammar": "jakiro.config",
    "JakiroGenerator": "jakiro.generator",
    "PrefixStore": "jakiro.decode.prefix_cache",
    "SamplingParams": "jakiro.config",
    "Trace": "jakiro.trace",
    "TreeConfig": "jakiro.config",
}

# Type checkers use the imports above; with this function they would accept any name
if not TYPE_CHECKING:

    def __getattr__(name: str):
        """Import a public name on first use, so that reading traces needs no torch."""
        if name not in _MODULES:
            raise AttributeError(f"module 'jakiro' has no attribute {name!r}")
        from importlib import import_module

        from jakiro.system import bound_waiting

        bound_waiting()
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
