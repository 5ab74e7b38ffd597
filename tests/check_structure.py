"""Check of the library's structure, part of `make lint`: `python -m tests.check_structure`.

The packages of the algorithm contain no device-specific code, and functions stay short. Exceptions are listed by name;
an exception that is no longer needed is an error, so that the lists only shrink.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Packages without device-specific code: a backend or an operation selects the implementation
PORTABLE = ("core", "decode", "drafters", "heads")
COMPILED = ("ctypes", "jakiro.backends.native")
MAX_LINES, MAX_PARAMETERS = 60, 8
# The public API, and commands, whose parameters are their options
PUBLIC = {
    "jakiro/config.py",
    "jakiro/generator.py",
    "jakiro/cli/main.py",
    "jakiro/cli/bench.py",
    "jakiro/cli/training.py",
}
# "file: description" of code that does not comply yet
EXCEPTIONS: set[str] = set()


def device_code(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and description of every use of a device type, of torch.cuda or of compiled code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if node.attr == "type" and name.endswith("device"):
                yield node.lineno, "device.type"
            if node.attr == "cuda" and name == "torch":
                yield node.lineno, "torch.cuda"
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        compiled = [module for module in modules if f"{module}.".startswith(tuple(f"{name}." for name in COMPILED))]
        if compiled:
            yield node.lineno, f"import of {compiled[0]}"


def long_functions(tree: ast.Module, is_public: bool) -> Iterator[tuple[int, str]]:
    """Yield line and description of every function with too many lines or parameters."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        num_lines = node.end_lineno - node.lineno + 1
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        num_parameters = len([argument for argument in arguments if argument.arg not in ("self", "cls")])
        if num_lines > MAX_LINES:
            yield node.lineno, f"{node.name} has more than {MAX_LINES} lines"
        if num_parameters > MAX_PARAMETERS and not is_public:
            yield node.lineno, f"{node.name} has more than {MAX_PARAMETERS} parameters"


def violations(root: Path) -> dict[str, int]:
    """Return the line of each violation, by "file: description"."""
    lines: dict[str, int] = {}
    for path in sorted((root / "jakiro").rglob("*.py")):
        name, tree = path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        results = list(long_functions(tree, name in PUBLIC))
        if name.split("/")[1] in PORTABLE:
            results += device_code(tree)
        for line, description in results:
            lines.setdefault(f"{name}: {description}", line)
    return lines


def main() -> int:
    lines = violations(ROOT)
    for violation in sorted(lines.keys() - EXCEPTIONS):
        print(f"{violation} (line {lines[violation]})")  # noqa: T201
    for exception in sorted(EXCEPTIONS - lines.keys()):
        print(f"{exception}: no longer needed; remove it from EXCEPTIONS in tests/check_structure.py")  # noqa: T201
    return int(lines.keys() != EXCEPTIONS)


if __name__ == "__main__":
    sys.exit(main())
