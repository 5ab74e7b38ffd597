"""Exact numerics with every instruction set of this CPU: rows, weights and texts do not change.

Environment variables and flags limit the instructions of torch, its libraries and the C compiler. The tests of linear
layers, compiled code, numerics and losslessness run in a subprocess for each instruction set.
"""

import platform
import re
from dataclasses import dataclass

import pytest

from jakiro.backends.native import building
from jakiro.backends.native.library import library, unavailable_reason
from jakiro.system import processor_features
from tests.support import DEVICE, run_pytest

pytestmark = [
    pytest.mark.rare,
    pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason=f"{platform.machine()} is not x86-64"),
    pytest.mark.skipif(DEVICE.type == "cuda", reason="tests of CPUs, and the suite runs on a GPU"),
]


@dataclass(frozen=True)
class InstructionSet:
    """Limits for torch (`aten`), oneDNN, FBGEMM and compiled code (`march`), and the required CPU features."""

    aten: str
    onednn: str
    fbgemm: str
    march: str
    needs: tuple[str, ...] = ()


# FBGEMM has no limit below AVX2; torch does not use it on older CPUs
SETS = {
    "sse2": InstructionSet("default", "SSE41", "AVX2", "x86-64"),
    "avx2": InstructionSet("avx2", "AVX2", "AVX2", "x86-64-v3", ("avx2", "fma", "f16c")),
    "avx512": InstructionSet(
        "avx512", "AVX512_CORE", "AVX512", "x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
    ),
}
FEATURES = set(processor_features().split())
# The whole suite already runs with the best set and compiled code
BEST = [name for name, instructions in SETS.items() if set(instructions.needs) <= FEATURES][-1:]
CASES = [(name, compiled) for name in SETS for compiled in (True, False) if not (compiled and [name] == BEST)]


TESTS = (
    "test_linear.py",
    "test_blocks.py",
    "test_compiled.py",
    "test_numerics.py",
    "test_lossless.py::test_jakiro_with_a_head_equals_plain_decoding[decoupled]",
    "test_lossless.py::test_jakiro_with_a_scripted_drafter_equals_plain_decoding_and_drafting_takes_part",
    "test_default_pair.py::test_float32_rows_do_not_depend_on_the_tree_size",
)
# These compile again, or are long versions of other tests
LEFT_OUT = "not (reason_is_given or second_compiler)"


@pytest.mark.parametrize(
    ("name", "compiled"), CASES, ids=lambda case: {True: "compiled", False: "torch"}.get(case, case)
)
def test_exact_numerics_hold_with_instruction_set(name, compiled, pytestconfig):
    instructions = SETS[name]
    missing = set(instructions.needs) - FEATURES
    if missing:
        pytest.skip(f"this processor has no {', '.join(sorted(missing))}")
    if compiled and library() is None:
        pytest.skip(f"no compiled functions: {unavailable_reason()}")
    variables = {
        "ATEN_CPU_CAPABILITY": instructions.aten,
        "ONEDNN_MAX_CPU_ISA": instructions.onednn,
        "FBGEMM_ENABLE_INSTRUCTIONS": instructions.fbgemm,
        "JAKIRO_NATIVE": "1" if compiled else "0",
    }
    if compiled:
        compiler = [*next(building.compilers()), f"-march={instructions.march}"]
        building.built(compiler)
        variables["CC"] = " ".join(compiler)
    paths = {path.name: path for path in (pytestconfig.rootpath / "tests").rglob("test_*.py")}
    tests = [f"{paths[file]}{rest}" for file, rest in (re.fullmatch(r"(\w+\.py)(.*)", test).groups() for test in TESTS)]
    run_pytest(pytestconfig.rootpath, "-k", LEFT_OUT, *tests, **variables)
