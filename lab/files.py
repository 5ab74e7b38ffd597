"""Paths of a target's files for the lab's methods: in the user's cache, else shipped with the lab."""

from pathlib import Path

from jakiro.system import cache_folder

_ASSETS = Path(__file__).resolve().parent / "assets"


def own_path(folder: str, target_name: str, ending: str) -> Path:
    """Return the path in the user's cache for one kind of file of a target."""
    safe = "".join(letter if letter.isalnum() or letter in ".-_" else "-" for letter in target_name)
    return cache_folder() / folder / f"{safe}{ending}"


def own_or_ours(path_in_cache: Path) -> Path | None:
    """Return the file at `path_in_cache`, else the lab's file of the same name, else None."""
    places = (path_in_cache, _ASSETS / path_in_cache.parent.name / path_in_cache.name)
    return next((path for path in places if path.is_file()), None)
