"""The exercise sheet runs without and with solutions and detects wrong ones; its quiz is that of the page."""

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
# Each solution breaks one rule, which the sheet must detect
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
    """Return the source of each solution by function name."""
    text = (DOCS / "lesson_solutions.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_source_segment(text, node) for node in functions}


def outputs_of(answers: dict[str, str], with_model: bool = False) -> list[dict]:
    """Run the sheet with these functions and return the outputs of its cells."""
    notebook = nbformat.read(DOCS / "lesson.ipynb", as_version=4)
    cells = notebook.cells if with_model else notebook.cells[:-3]
    for cell in cells:
        name = next((name for name in answers if f"def {name}(" in cell.source and cell.source.endswith("...")), None)
        if cell.cell_type == "code" and name:
            cell.source = cell.source.partition(f"def {name}(")[0] + answers[name]
    notebook.cells = cells
    done = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(DOCS)}}).execute()
    return [output for cell in done.cells for output in cell.get("outputs", ())]


def text_of(outputs: list[dict]) -> str:
    return "".join(output.get("text", "") for output in outputs)


def run_sheet(answers: dict[str, str], with_model: bool = False) -> str:
    """Run the sheet with these functions and return the text that it prints."""
    return text_of(outputs_of(answers, with_model))


def test_unchanged_sheet_lists_open_exercises_and_shows_figures():
    outputs = outputs_of({})
    assert text_of(outputs).count(": open") == EXERCISES
    figures = [data for output in outputs if (data := output.get("data", {}).get(PLOTLY))]
    assert len(figures) == FIGURES and all(figure["data"] for figure in figures)


def test_every_solution_is_right():
    text = run_sheet(solutions())
    assert text.count(": right") == EXERCISES, text


@pytest.mark.rare
@pytest.mark.parametrize("name", WRONG)
def test_wrong_solution_is_detected(name):
    text = run_sheet(solutions() | {name: WRONG[name]})
    assert text.count(": not yet") == 1 and text.count(": right") == EXERCISES - 1, text


@pytest.mark.rare
def test_the_last_section_runs_on_the_default_pair():
    assert "times as fast" in run_sheet({}, with_model=True).rpartition("Exercise 6")[2]


def test_quiz_equals_that_of_the_page():
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
