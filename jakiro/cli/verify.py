"""All files with a known hash, read whole and compared: what a start does not do, because it reads no file twice."""

from collections.abc import Iterator

from jakiro.cli.finding import Finding
from jakiro.heads.checkpoint import head_sha256
from jakiro.loading import embedded, registry
from jakiro.loading.checksums import damaged_since, hashed_folders
from jakiro.system import assets_folder

GOOD = "as it was written"


def verified() -> Iterator[Finding]:
    """The cached default with what it is made from, the weights of every folder that was loaded, the shipped heads."""
    for path, damage in embedded.damages():
        found = GOOD if damage is None else f"{damage} The next start that needs it rebuilds it."
        yield Finding(str(path), found, ok=damage is None)
    for folder in hashed_folders():
        if folder != embedded.embedded_folder().resolve():
            damaged = damaged_since(folder)
            changed = "changed on disk although its size and time did not; fetch or copy it again"
            yield Finding(str(folder), changed if damaged else "unchanged since it was first read", ok=not damaged)
    for name in registry.head_names():
        folder = assets_folder() / "heads" / name
        known = registry.manifest_of(folder).get("sha256")
        if known is not None:
            same = head_sha256(folder) == known
            found = GOOD if same else "not the file that was shipped; install Jakiro again"
            yield Finding(f"head {name}", found, ok=same)
