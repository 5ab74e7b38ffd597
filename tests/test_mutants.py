"""The list of faults matches the code; `make mutants` checks that each fault is detected."""

import ast

import pytest

from tests.faults import FAULTS, ROOT
from tests.mutants import body_of, found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_place_of_each_fault_is_found_by_its_name(fault):
    if isinstance(fault.wrong, str):
        text, start, end = body_of(fault)
        assert text[start:end].strip() != fault.wrong
    else:
        right = found(fault)[2]
        assert fault.wrong(right) != right


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_make_test_runs_what_notices_it(fault):
    """A mark on some cases of a test is allowed, because its other cases run."""
    file, _, name = fault.test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    named = [each for each in ast.walk(tree) if name and getattr(each, "name", "") == name]
    assert named or not name
    whole = [each.value for each in tree.body if isinstance(each, ast.Assign) and "pytestmark" in ast.dump(each)]
    marks = [*whole, *(mark for each in named for mark in each.decorator_list)]
    assert not any(ast.unparse(each) == "pytest.mark.rare" for mark in marks for each in ast.walk(mark))
