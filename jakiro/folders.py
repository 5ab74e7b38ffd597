"""Where the files lie that ship with Jakiro, and those that it makes for itself."""

import os
from pathlib import Path


def assets_folder() -> Path:
    """The folder of heads, traces, prompts and web files: inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "assets"
    return installed if installed.is_dir() else package.parent / "assets"


def cache_folder() -> Path:
    """Where converted models, wheels and measured profiles live: JAKIRO_CACHE, else the user's cache."""
    own = os.environ.get("JAKIRO_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "jakiro"
