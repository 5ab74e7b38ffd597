"""Where the lab's methods find a target's files: the user's own in the cache, else the lab's."""

from pathlib import Path

from jakiro.system import cache_folder

_ASSETS = Path(__file__).resolve().parent / "assets"


def own_path(folder: str, target_name: str, ending: str) -> Path:
    """Where the user's cache keeps a target's file of one kind."""
    safe = "".join(letter if letter.isalnum() or letter in ".-_" else "-" for letter in target_name)
    return cache_folder() / folder / f"{safe}{ending}"


def own_or_ours(own: Path) -> Path | None:
    """A file of `own_path` if the user has it, else the lab's of the same name; None where there is neither."""
    places = (own, _ASSETS / own.parent.name / own.name)
    return next((path for path in places if path.is_file()), None)
