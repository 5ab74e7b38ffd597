"""Links in documents are valid, and the commands and options that they name exist."""

import functools
import re
from pathlib import Path

import pytest
import typer

from jakiro.cli import main
from jakiro.cli.main import app as commands

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "lab/*.md", "assets/*/README.md", "assets/heads/*/README.md")
    for path in ROOT.glob(pattern)
)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(path):
    """Return the anchors that GitHub creates for the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_point_to_existing_files_and_headings(document):
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@functools.cache
def options_of(name):
    """Return the options of a command."""
    lazy = name in main.LAZY_COMMANDS
    command = main.import_command(name) if lazy else typer.main.get_command(commands).commands[name]
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


# The changelog also names commands that were removed
@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_commands_and_options_that_documents_name_exist(document):
    existing = typer.main.get_command(commands).commands
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"(?:python -m jakiro |`)([a-z]+)\b([^`\n#]*)", text):
        if name in existing:
            assert not set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - options_of(name), f"{name}{rest}"
    assert not set(re.findall(r"python -m jakiro ([a-z]+)", text)) - set(existing)
