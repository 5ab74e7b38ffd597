"""The documents: links lead somewhere, and labels and commands that they quote exist."""

import functools
import importlib
import re
from pathlib import Path

import pytest
import typer

from app.words import benchmark, lesson, page
from jakiro.cli import main
from jakiro.cli.main import app as commands

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "lab/*.md", "assets/*/README.md", "assets/heads/*/README.md")
    for path in ROOT.glob(pattern)
)
# What docs/teaching.md quotes beside labels: keys, and a question to ask
KEYS, QUESTION = {"Tab", "Space", "Enter"}, "How does a bird fly?"
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(path):
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_there_are(document):
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
    """The options of a command; of some they stand in modules that it imports when it runs."""
    found = typer.main.get_command(commands).commands[name]
    if found.context_settings.get("ignore_unknown_options"):
        late = typer.Typer()
        late.command(name)(getattr(importlib.import_module(f"jakiro.cli.{main.LATER[name]}"), name))
        found = typer.main.get_command(late)
    return {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}


# The changelog also names what is gone
@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_commands_and_options_that_documents_name_exist(document):
    known = typer.main.get_command(commands).commands
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"(?:python -m jakiro |`)([a-z]+)\b([^`\n#]*)", text):
        if name in known:
            assert not set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - options_of(name), f"{name}{rest}"
    assert not set(re.findall(r"python -m jakiro ([a-z]+)", text)) - set(known)


def test_a_teacher_finds_the_labels_that_the_plan_names():
    words = [*page.BROWSER.values(), *lesson.BROWSER.values(), *benchmark.BROWSER.values()]
    text = FENCED.sub("", (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8"))
    quoted = set(re.findall(r"`([A-Z][a-z]+(?: [^`…]+)?…?)`", text)) - KEYS - {QUESTION}
    assert len(quoted) > 8 and not quoted - set(words)
    titles = re.findall(r"\| (\d+) ([A-Z][^|;]+?)(?:;[^|]*)? \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in titles] == list(range(1, 10))
    assert [title for _, title in titles] == [stop["title"] for stop in lesson.STOPS[:9]]
