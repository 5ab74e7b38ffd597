"""`doctor --verify`: compares the checksums of all files. A start does not, because it would read them twice."""

from collections.abc import Iterator

from jakiro.cli.finding import Finding
from jakiro.heads.checkpoint import head_sha256
from jakiro.loading import embedded, registry
from jakiro.loading.checksums import hashed_folders, is_corrupted
from jakiro.system import assets_folder

UNCHANGED = "as it was written"


def verify_files() -> Iterator[Finding]:
    """Check the embedded default and its wheel, the weights of every loaded folder, and the shipped heads."""
    for path, damage in embedded.damages():
        text = UNCHANGED if damage is None else f"{damage} The next start that needs it rebuilds it."
        yield Finding(str(path), text, ok=damage is None)
    for folder in hashed_folders():
        if folder != embedded.embedded_folder().resolve():
            damaged = is_corrupted(folder)
            text = "corrupted: size and time are unchanged, the content is not; fetch or copy it again"
            yield Finding(str(folder), text if damaged else "unchanged since it was first read", ok=not damaged)
    for name in registry.head_names():
        folder = assets_folder() / "heads" / name
        expected = registry.manifest_of(folder).get("sha256")
        if expected is not None:
            same = head_sha256(folder) == expected
            text = UNCHANGED if same else "checksum mismatch; install Jakiro again"
            yield Finding(f"head {name}", text, ok=same)
