"""Write the exercise sheet for students as an archive without solutions.

    python -m app.tools.students --out runs/jakiro-exercises.zip

The sheet runs where the archive is unpacked. It needs Python alone, figures need plotly, and the last section needs an
installed Jakiro.
"""

import argparse
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "jakiro-exercises"
FILE = Path("runs/jakiro-exercises.zip")
# The recordings that the sheet reads, and the modules of the library that read them
FILES = (
    "docs/lesson.ipynb",
    "docs/glossary.md",
    "assets/traces/1-opening.json",
    "assets/traces/4-slowest.json",
    "assets/traces/5-large-tree.json",
    "assets/plots/template.json",
    "jakiro/__init__.py",
    "jakiro/config.py",
    "jakiro/display.py",
    "jakiro/figures.py",
    "jakiro/system.py",
    "jakiro/trace.py",
    "LICENSE",
)
README = """\
Speculative decoding, an exercise sheet
=======================================

The sheet is docs/lesson.ipynb. With Python 3.11 or newer, in this folder:

    python3 -m venv .venv
    .venv/bin/pip install notebook plotly
    .venv/bin/python -m notebook docs/lesson.ipynb

Sections 1 to 7 need nothing else. Section 8 needs an installed Jakiro, and is skipped without one.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the exercise sheet for students, without solutions.")
    parser.add_argument("--out", type=Path, default=FILE, help=f"archive to write ({FILE})")
    path = parser.parse_args().out
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{FOLDER}/README.txt", README)
        for name in FILES:
            archive.write(ROOT / name, f"{FOLDER}/{name}")
    sys.stdout.write(f"{path}: {path.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
