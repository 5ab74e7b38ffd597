"""A method is one file: no other file contains its name, and the documented example decodes."""

import ast
import re
import sys
from pathlib import Path

import pytest

from jakiro.config import SamplingParams
from jakiro.drafters.registry import METHODS, PLAIN, methods_from
from jakiro.heads.kinds import KINDS
from tests.support import tiny_generator

ROOT = Path(__file__).resolve().parents[2]
# Files that may contain names: a method's own file, its kind of head, the registries, and texts of the page
WORDS = ("app/words/",)
KIND_FOLDERS = tuple(f"jakiro/heads/{name}/" for name in KINDS)
# The package, its logger, its attention and its cache folder have the name of a method, and so do the extensions of
# /v1; a file format has the name of another method
PACKAGE = re.compile(
    r"package_versions|getLogger|prog_name|__version__|APPLICATION|speculators_model_type"
    r"|ATTENTION|owned_by|EXTENSION"
    r'|"jakiro\.training"|package == "jakiro"|expanduser\(\) / "jakiro"'
)
NAMES = {name for method in METHODS.values() for name in (method.name, *method.aliases)}


def sources():
    for top, ending in (("jakiro", "py"), ("app", "py"), ("assets/web", "js"), ("assets/web", "css")):
        for path in sorted((ROOT / top).rglob(f"*.{ending}")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(("jakiro/drafters/", *KIND_FOLDERS, *WORDS)):
                yield name, path.read_text(encoding="utf-8")


def quoted(name, text):
    """Yield the line numbers of string literals that equal a method's name or alias."""
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value in NAMES:
                yield node.lineno
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if any(re.search(rf"[\"'`]{re.escape(method)}[\"'`]", line) for method in NAMES):
            yield number


@pytest.mark.parametrize(("name", "text"), [pytest.param(*source, id=source[0]) for source in sources()])
def test_no_method_is_named_in(name, text):
    """Words with another meaning are allowed: the model's context, plain text, skipping to an answer."""
    lines = text.splitlines()
    uses = [f"{number}: {lines[number - 1].strip()}" for number in quoted(name, text)]
    uses = [
        line for line in uses if not PACKAGE.search(line) and not re.search(r"[\"'](context|plain|skip)[\"']", line)
    ]
    assert not uses


DOCS = Path(__file__).resolve().parents[2] / "docs"
CODE = (DOCS / "echo.py").read_text(encoding="utf-8")


@pytest.fixture
def echo(monkeypatch):
    """Return the methods of the example, as `--methods-from echo` registers them."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield methods_from(["echo"])
    sys.modules.pop("echo")


def test_documented_example_decodes_losslessly(echo):
    (method,) = echo
    generator = tiny_generator(methods=METHODS.with_further(echo))
    assert method in generator.methods
    for sampling in (SamplingParams(max_new_tokens=24), SamplingParams(1.0, seed=2, max_new_tokens=24)):
        trace = generator.run("abcabcabc", sampling, method.name)
        assert trace.token_ids == generator.run("abcabcabc", sampling, PLAIN.name).token_ids
        assert {node.proposer for step in trace.steps for node in step.nodes} == {"root", method.proposers[0].id}


def test_architecture_page_quotes_the_example():
    assert re.findall(r"```python\n(.*?)```", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.DOTALL) == [
        CODE
    ]
    assert len([line for line in CODE.splitlines() if line]) <= 33
