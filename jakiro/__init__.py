"""Jakiro: speculative decoding with a mixture-of-experts draft head, every step recorded (arXiv 2502.06282)."""

__version__ = "0.10.0"

_PUBLIC = {
    "Grammar": "jakiro.config",
    "JakiroGenerator": "jakiro.generator",
    "PrefixStore": "jakiro.decode.prefix_cache",
    "SamplingParams": "jakiro.config",
    "TreeConfig": "jakiro.config",
    "Trace": "jakiro.trace",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str):
    """Loads the public names on first use, so that reading traces needs no torch."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'jakiro' has no attribute {name!r}")
    from importlib import import_module

    from jakiro.system import bound_waiting

    bound_waiting()
    return getattr(import_module(_PUBLIC[name]), name)
