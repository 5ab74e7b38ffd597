"""The exercise sheet: solutions are right, faults are noticed, and it runs without torch, a model or a checkout."""

import ast
import json
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from app.tools import students
from app.words.lesson import STOPS
from jakiro.system import assets_folder

DOCS = assets_folder().parent / "docs"
MODEL_CELLS = 3
# Runs the sheet's code with the functions of argv in place of the open ones; torch cannot be imported
RUN_CELLS = """
import json, os, sys
sys.modules["torch"] = None
sheet, answers = sys.argv[1], json.loads(sys.stdin.read())
os.chdir(os.path.dirname(sheet))
namespace = {}
for cell in json.load(open(sheet, encoding="utf-8"))["cells"][:-%d]:
    if cell["cell_type"] == "code":
        source = "".join(cell["source"])
        for name, function in answers.items():
            if f"def {name}(" in source and source.endswith("..."):
                source = source.partition(f"def {name}(")[0] + function
        exec(source, namespace)
"""
# Each breaks one rule, and the sheet must report it
WRONG = {
    "accepted": """def accepted(nodes):
    return [i for i, node in enumerate(nodes) if i and nodes[node.parent].target_choice == node.token_id]""",
    "expected_tokens": """def expected_tokens(rates):
    return sum(rates)""",
    "break_even": """def break_even(plain_ms, draft_ms, verify_ms, other_ms):
    return (draft_ms + verify_ms) / plain_ms""",
    "slowest_stretch": """def slowest_stretch(trace, steps, plain_ms):
    means = [sum(len(s.committed_ids) / s.total_ms for s in trace.steps[i : i + steps])
             for i in range(len(trace.steps) - steps + 1)]
    return means.index(min(means))""",
    "draw": """def draw(p, q, dice):
    guess = pick(q, dice)
    return guess if dice.random() < min(1, p[guess] / q[guess]) else pick(p, dice)""",
    "choice": """def choice(p, noise):
    return max(range(len(p)), key=lambda token: p[token] + noise[token])""",
}
# Faults of exercise 7: text in the solution, its replacement, and the reason in the report
FAULTS = {
    "no bonus token": ("new.append(dice.choices(range(len(bonus)), bonus)[0])", "pass", "a step adds k + 1 tokens"),
    "residual from p": ("[max(0, a - b) for a, b in zip(p, q, strict=True)]", "p", "not distributed as the target's"),
    "q over p": ("p[token] / q[token]", "q[token] / max(p[token], 1e-9)", "A draft that is never right"),
    "no end inside the block": ("if token == 0:", "if False:", "END"),
    "no rewind of the target": ("target.rewind(len(known))", "pass", "the target's cache is"),
    "no rewind of the draft": ("draft.rewind(len(known))", "pass", "the draft's cache is"),
    "the last proposal is not read": ("draft.read(known[len(draft.cache) :])", "pass", "the draft's cache is"),
    "two passes": ("target.read([text[-1], *proposals])", "target.read([text[-1]]) + target.read(proposals)", "passes"),
}


def solutions() -> dict[str, str]:
    """Return the source of the solutions by name."""
    text = (DOCS / "lesson_solutions.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_source_segment(text, node) for node in functions}


def output_of(answers: dict[str, str], sheet=DOCS / "lesson.ipynb") -> str:
    """Run the sheet with `answers` in place of its open functions, without torch and a model; return its output."""
    command = [sys.executable, "-c", RUN_CELLS % MODEL_CELLS, str(sheet)]
    run = subprocess.run(command, input=json.dumps(answers), capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def run_in_jupyter(sheet, num_cells=None) -> str:
    notebook = nbformat.read(sheet, as_version=4)
    notebook.cells = notebook.cells[:num_cells]
    options = {"timeout": 300, "resources": {"metadata": {"path": str(sheet.parent)}}}
    cells = NotebookClient(notebook, **options).execute().cells
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", ()))


@pytest.mark.rare
def test_unchanged_sheet_runs_and_names_open_exercises():
    assert run_in_jupyter(DOCS / "lesson.ipynb", -MODEL_CELLS).count(": open") == len(solutions())


@pytest.mark.rare
def test_every_solution_is_right_and_the_points_add_up():
    text = output_of(solutions())
    assert text.count(": right, ") == len(solutions()), text
    table = "".join(nbformat.read(DOCS / "lesson.ipynb", as_version=4).cells[0].source)
    points = sum(int(cell) for row in table.splitlines() for cell in row.split("|")[2:3] if cell.strip().isdecimal())
    assert f"right, {points} of {points} points" in text


def test_an_exception_in_a_solution_is_reported_as_not_yet_with_its_reason():
    broken = {name: text.partition(":\n")[0] + ":\n    return 1 / 0" for name, text in solutions().items()}
    text = output_of(broken)
    assert text.count(": not yet. ") == text.count("(ZeroDivisionError: division by zero)") == len(broken), text


@pytest.mark.rare
@pytest.mark.parametrize("name", WRONG)
def test_wrong_solution_is_detected(name):
    text = output_of(solutions() | {name: WRONG[name]})
    assert text.count(": not yet") == 1 and text.count(": right") == len(WRONG), text


@pytest.mark.rare
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_draft_and_verify_is_detected_with_a_reason(fault):
    old, new, reason = FAULTS[fault]
    right = solutions()["step"]
    assert right.count(old) == 1
    (line,) = (line for line in output_of({"step": right.replace(old, new)}).splitlines() if "Exercise 7" in line)
    assert ": not yet. " in line and reason in line


@pytest.mark.rare
def test_the_last_section_runs_on_the_default_pair():
    assert "times as fast" in run_in_jupyter(DOCS / "lesson.ipynb").rpartition("Exercise 7")[2]


def test_a_sheet_without_its_folder_ends_in_one_sentence(tmp_path):
    sheet = tmp_path / "lesson.ipynb"
    shutil.copy(DOCS / "lesson.ipynb", sheet)
    with pytest.raises(CellExecutionError) as error:
        run_in_jupyter(sheet)
    message = str(error.value).partition("------------------\n\n")[2].split("MissingFilesError")[0].strip()
    assert message.startswith("The recordings were not found in ") and len(message.splitlines()) == 1


def test_the_students_archive_has_no_solutions_and_its_sheet_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["students", "--out", str(tmp_path / "exercises.zip")])
    students.main()
    archive = zipfile.ZipFile(tmp_path / "exercises.zip")
    names = archive.namelist()
    assert not [name for name in names if "solution" in name or "teaching" in name]
    texts = [archive.read(name).decode("utf-8") for name in names]
    assert not [name for name, text in zip(names, texts, strict=True) if "lesson_solutions" in text]
    archive.extractall(tmp_path)
    (sheet,) = tmp_path.rglob("lesson.ipynb")
    assert output_of({}, sheet).count(": open") == len(solutions())
    # A trace at the end of a cell shows itself
    show = "import json; from jakiro import Trace; recording = json.load(open('assets/traces/5-large-tree.json')); "
    show += "print(Trace.from_dict(recording['traces']['jakiro'])._repr_html_())"
    assert "<table" in subprocess.check_output([sys.executable, "-c", show], cwd=sheet.parents[1], text=True)


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
