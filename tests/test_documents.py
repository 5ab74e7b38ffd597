"""Documents: their links, paths, modules and commands exist."""

import functools
import json
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


# The changelog also names removed commands and files
CURRENT_DOCUMENTS = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]


@pytest.mark.parametrize("document", CURRENT_DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_options_that_documents_name_exist(document):
    existing = typer.main.get_command(commands).commands
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"(?:python -m jakiro |`)([a-z]+)\b([^`\n#]*)", text):
        if name in existing:
            assert not set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - options_of(name), f"{name}{rest}"
    assert not set(re.findall(r"python -m jakiro ([a-z]+)", text)) - set(existing)


PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?:\.(?:py|js|css|c|md|json|ipynb|sh|png|gif)|/)")
MODULE = re.compile(r"(?:jakiro|app|lab|tests)(?:\.\w+)+")
# Folders that a path in a document may be relative to
BASES = ("", "jakiro", "jakiro/backends", "jakiro/backends/native", "app", "assets/web", "lab")
# Placeholders, folders of the cache, and files that a command writes
OTHER_PATHS = re.compile(r".*\bNAME\b|runs/|native/|wheels/")
# Fields of the API's responses
FIELDS = re.compile(r"jakiro\.(?:hints|provenance|alternatives)")


def code_spans(document):
    """Return the inline code of a document, and the words of its fenced commands."""
    text = document.read_text(encoding="utf-8")
    commands = re.findall(r"^ *```console\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return {*re.findall(r"`([^`\n]+)`", FENCED.sub("", text)), *" ".join(commands).split()}


def module_exists(name):
    """Return whether a dotted name is a module of this repository, or a name inside one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:count])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file() or path.is_dir():
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            return all(re.search(rf"\b{part}\b", text) for part in parts[count:])
    return False


@pytest.mark.parametrize("document", CURRENT_DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_and_modules_that_documents_name_exist(document):
    spans = code_spans(document)
    paths = [span for span in spans if PATH.fullmatch(span) and "/" in span and not OTHER_PATHS.match(span)]
    folders = [*(ROOT / base for base in BASES), document.parent]
    assert not [path for path in paths if not any((folder / path).exists() for folder in folders)]
    modules = [span for span in spans if MODULE.fullmatch(span) and not PATH.fullmatch(span) and not FIELDS.match(span)]
    assert not [name for name in modules if not module_exists(name)]


def test_the_plan_of_the_lecture_names_the_stops_of_the_page():
    titles = [
        stop["title"] for stop in json.loads((ROOT / "app/words/lesson.json").read_text(encoding="utf-8"))["stops"]
    ]
    text = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+–\d+ \|.*\| (\d+) ([^|;]+?)(?:;[^|]*)? \|$", text, re.MULTILINE)
    assert rows == [(str(number), title) for number, title in enumerate(titles[:9], 1)]
    assert f"Stop 10, *{titles[9]}*" in text
