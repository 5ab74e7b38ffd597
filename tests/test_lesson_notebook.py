"""The exercise sheet runs as it stands and with its solutions; a wrong solution is noticed; its quiz is the page's."""

import ast
import json

import nbformat
import pytest
from nbclient import NotebookClient

from app.words.lesson import STOPS
from jakiro.system import assets_folder

DOCS = assets_folder().parent / "docs"
EXERCISES, FIGURES = 6, 4
PLOTLY = "application/vnd.plotly.v1+json"
# Each breaks one rule, and the sheet must say so
WRONG = {
    "accepted": """def accepted(nodes):
    return [i for i, node in enumerate(nodes) if i and nodes[node.parent].target_choice == node.token_id]""",
    "expected_tokens": """def expected_tokens(rates):
    return sum(rates)""",
    "break_even": """def break_even(plain_ms, draft_ms, verify_ms, other_ms):
    return (draft_ms + verify_ms) / plain_ms""",
    "slowest_stretch": """def slowest_stretch(trace, steps, plain_ms):
    return 0""",
    "draw": """def draw(p, q, dice):
    return biased(p, q, dice)""",
    "choice": """def choice(p, noise):
    return max(range(len(p)), key=lambda token: p[token] + noise[token])""",
}


def solutions() -> dict[str, str]:
    """The functions of the solutions by their names."""
    text = (DOCS / "lesson_solutions.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_source_segment(text, node) for node in functions}


def outputs_of(answers: dict[str, str], with_model: bool = False) -> list[dict]:
    """Run the sheet with `answers` in place of its functions and return what its cells output."""
    notebook = nbformat.read(DOCS / "lesson.ipynb", as_version=4)
    cells = notebook.cells if with_model else notebook.cells[:-3]
    for cell in cells:
        name = next((name for name in answers if f"def {name}(" in cell.source and cell.source.endswith("...")), None)
        if cell.cell_type == "code" and name:
            cell.source = cell.source.partition(f"def {name}(")[0] + answers[name]
    notebook.cells = cells
    done = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(DOCS)}}).execute()
    return [output for cell in done.cells for output in cell.get("outputs", ())]


def said(answers: dict[str, str], with_model: bool = False) -> str:
    """Return the text that the sheet prints."""
    return "".join(output.get("text", "") for output in outputs_of(answers, with_model))


def test_the_sheet_runs_as_it_is_shows_its_figures_and_names_what_is_open():
    outputs = outputs_of({})
    assert "".join(output.get("text", "") for output in outputs).count(": open") == EXERCISES
    shown = [data for output in outputs if (data := output.get("data", {}).get(PLOTLY))]
    assert len(shown) == FIGURES and all(figure["data"] for figure in shown)


def test_every_solution_is_right():
    text = said(solutions())
    assert text.count(": right") == EXERCISES, text


@pytest.mark.rare
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_solution_is_noticed(name):
    text = said(solutions() | {name: WRONG[name]})
    assert text.count(": not yet") == 1 and text.count(": right") == EXERCISES - 1, text


@pytest.mark.rare
def test_the_last_section_runs_on_the_default_pair():
    assert "times as fast" in said({}, with_model=True).rpartition("Exercise 6")[2]


def test_the_quiz_beside_it_is_the_page_s():
    quiz = json.loads((DOCS / "lesson_quiz.json").read_text(encoding="utf-8"))
    assert quiz == [
        {
            "title": stop["title"],
            "question": stop["question"],
            "options": [{"text": text, "reason": reason} for text, reason in stop["options"]],
            "right": stop["right"],
        }
        for stop in STOPS
    ]
