"""The list of faults matches the code; `make mutants` checks that each fault is detected."""

import ast

import pytest

from tests.faults import FAULTS, ROOT
from tests.mutants import body_of, find_place


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_place_of_each_fault_exists(fault):
    if isinstance(fault.wrong, str):
        text, start, end = body_of(fault)
        assert text[start:end].strip() != fault.wrong
    else:
        right = find_place(fault)[2]
        assert fault.wrong(right) != right


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_make_test_runs_the_test_of_each_fault(fault):
    """A mark on some cases of a test is allowed, because its other cases run."""
    file, _, name = fault.test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    named = [node for node in ast.walk(tree) if name and getattr(node, "name", "") == name]
    assert named or not name
    module_marks = [node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.dump(node)]
    marks = [*module_marks, *(mark for node in named for mark in node.decorator_list)]
    assert not any(ast.unparse(node) == "pytest.mark.rare" for mark in marks for node in ast.walk(mark))
