"""The list of faults fits the code as it is; whether each is noticed, `make mutants` says."""

import ast

import pytest

from tests.faults import FAULTS, ROOT
from tests.gpu_faults import GPU_FAULTS

ALL = (*FAULTS, *GPU_FAULTS)


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_the_place_of_each_fault_is_found_once_and_its_tests_are_there(fault):
    assert fault.places == 1 and fault.right != fault.wrong
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") or not name


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_make_test_runs_what_notices_it(fault):
    """Where a mark is for some cases of a test only, the others run."""
    for test in fault.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        whole = [each.value for each in tree.body if isinstance(each, ast.Assign) and "pytestmark" in ast.dump(each)]
        marks = [
            each
            for node in ast.walk(tree)
            if name and getattr(node, "name", "") == name
            for each in node.decorator_list
        ]
        assert not any(ast.unparse(each) == "pytest.mark.rare" for mark in (*whole, *marks) for each in ast.walk(mark))


def test_names_are_distinct():
    assert len({fault.name for fault in ALL}) == len(ALL)
