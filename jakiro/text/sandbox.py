"""A sandbox for chat templates, which are programs from model files: Jinja with limits on time and memory.

Jinja's own sandbox forbids access to Python's internals, but `'a' * 20000000000` or two nested loops over
`range(99999)` still fill the memory or run for hours. Here every operation that can produce a large value is charged
to a budget before it runs. The limits use the thread's own processor time, so templates may run in any thread and a
busy machine changes nothing.
"""

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar

from jinja2 import Template, nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SECONDS = 5.0
# Characters that all operations of a run may produce together: a megabyte-long conversation needs a few million
MAX_CHARACTERS = 100_000_000
# A long conversation may be copied so many times
_MAX_COPIES = 500
_MAX_INTEGER_BITS = 4096
_MAX_SOURCE_CHARACTERS = 1_000_000
# A list of one-character texts takes about so many times the memory of the text
_LIST_FACTOR = 16
_LIST_OPERATIONS = {"split", "rsplit", "splitlines", "list", "batch", "slice"}
# Operations that convert containers to text: their size is that of all their elements
_TEXT_OPERATIONS = {"join", "tojson", "string", "format", "pprint", "replace", "map"}


class TemplateLimitError(ValueError):
    """A chat template exceeded the limit on time or memory."""


class _Budget:
    """Time and characters that one run of a template may use."""

    def __init__(self, input_size: int) -> None:
        self._end = time.thread_time() + MAX_SECONDS
        self.characters = MAX_CHARACTERS + _MAX_COPIES * input_size

    def spend(self, characters: int) -> None:
        self.characters -= characters
        if self.characters < 0:
            raise TemplateLimitError("it produces too much text")
        if time.thread_time() > self._end:
            raise TemplateLimitError(f"it runs for more than {MAX_SECONDS:g} seconds")


_budget: ContextVar[_Budget | None] = ContextVar("template_budget", default=None)


def render_template(template: str, variables: Mapping[str, object]) -> str:
    """Return the text that a chat template produces.

    Args:
        template: Jinja source, run as transformers' `apply_chat_template` runs it.
        variables: the template's variables, made of JSON types.

    Raises:
        TemplateLimitError: the template exceeds the limits of this module.
        jinja2.TemplateError: the template is invalid or rejects its variables.
        Exception: any other fault of the template.
    """
    if len(template) > _MAX_SOURCE_CHARACTERS:
        raise TemplateLimitError(f"its source has {len(template):,} characters")
    token = _budget.set(_Budget(_text_size(dict(variables), MAX_CHARACTERS) + len(template)))
    try:
        return _compile_template(template).render(variables)
    finally:
        _budget.reset(token)


@functools.lru_cache(maxsize=32)
def _compile_template(template: str) -> Template:
    return _environment().from_string(template)


@functools.cache
def _environment() -> "_LimitedEnvironment":
    from transformers.utils.chat_template_utils import _compile_jinja_template

    # transformers defines its filters, globals and extensions inside this function
    stock = _compile_jinja_template("").environment
    extensions = [type(extension) for extension in stock.extensions.values()] or [loopcontrols]
    environment = _LimitedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.globals |= {name: stock.globals[name] for name in stock.globals if name not in ("range", "lipsum")}
    environment.globals.pop("lipsum", None)
    environment.filters = {name: _limit_filter(name, function) for name, function in stock.filters.items()}
    environment.filters |= {"_count": _CountedItems, "_concatenate": _concatenate, "_copy": _charge_copy}
    environment.finalize = _charge_output
    return environment


def _spend(characters: int) -> None:
    budget = _budget.get()
    if budget is not None:
        budget.spend(characters)


class _LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with every operation charged to the budget of the current run."""

    # Jinja does not evaluate intercepted operators at compile time either
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def _parse(self, source, name, filename):
        return _Instrument().visit(super()._parse(source, name, filename))

    def call_binop(self, context, operator, left, right):
        _spend(_operator_size(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context, __obj, *args, **kwargs):
        # The sandbox wraps `str.format`
        text = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        values = (text, *args) if isinstance(text, str) else args
        _spend(_operation_size(getattr(__obj, "__name__", ""), (*values, *kwargs.values())))
        return super().call(__context, __obj, *args, **kwargs)

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the output of a template, a block or a macro."""
        joined = []
        for piece in pieces:
            _spend(len(piece))
            joined.append(piece)
        return "".join(joined)


class _Instrument(NodeTransformer):
    """Adds calls that charge loops, concatenations and slices, which Jinja compiles to plain Python."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _apply_filter("_count", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _apply_filter("_concatenate", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Getitem:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _apply_filter("_copy", node.node)
        return node


def _apply_filter(name: str, node: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _CountedItems:
    """The items of a loop; each step is charged."""

    def __init__(self, items: Iterable) -> None:
        self._items = items

    def __len__(self) -> int:
        # Raises TypeError for a generator, as Jinja expects
        return len(self._items)

    def __iter__(self) -> Iterator:
        for item in self._items:
            _spend(1)
            yield item


def _concatenate(values: list) -> str:
    for value in values:
        _spend(_text_size(value))
    return "".join(map(str, values))


def _charge_copy(value):
    if isinstance(value, (str, list, tuple)):
        _spend(len(value))
    return value


def _charge_output(value):
    """Charge the conversion of a container to text; `concat` charges the text itself."""
    if isinstance(value, (list, tuple, dict)):
        _spend(_text_size(value))
    return value


def _limit_filter(name: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def charged(*args, **kwargs):
        _spend(_operation_size(name, (*args, *kwargs.values())))
        return function(*args, **kwargs)

    return charged


def _operator_size(operator: str, left, right) -> int:
    """Return about how many characters the result of an operator has."""
    if operator == "+":
        return _length(left) + _length(right)
    if operator == "%" and isinstance(left, str):
        return _format_size(left) + len(left) + _text_size(right)
    if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        factors = abs(right) if operator == "**" else 1
        if left.bit_length() * factors + (right.bit_length() if operator == "*" else 0) > _MAX_INTEGER_BITS:
            raise TemplateLimitError("it computes a number with too many digits")
    if operator == "*":
        if isinstance(right, int):
            return _length(left) * max(right, 0)
        if isinstance(left, int):
            return _length(right) * max(left, 0)
    return 1


def _operation_size(name: str, values: tuple) -> int:
    """Return about how many characters a filter or a method produces.

    Args:
        name: of the filter or the method.
        values: the value it is applied to, and its arguments. A number may be a width, so it counts as such.
    """
    measure = _text_size if name in _TEXT_OPERATIONS else _length
    size = 1 + sum(measure(value) for value in values)
    widths = sum(abs(value) for value in values if isinstance(value, int))
    texts = [value for value in values if isinstance(value, str)]
    if name in ("indent", "wordwrap", "expandtabs", "xmlattr"):
        lines = 1 + sum(text.count("\n") + text.count("\t") for text in texts)
        return size + lines * (widths + sum(map(len, texts[1:])))
    if name == "replace" and len(texts) >= 3:
        return size + texts[0].count(texts[1]) * len(texts[2])
    if name == "join" and texts:
        return size + max(map(_length, values)) * max(map(len, texts))
    if name in ("tojson", "pprint"):
        return size * (1 + widths)
    if name in ("format", "format_map") and texts:
        return size + _format_size(texts[0])
    return size * (_LIST_FACTOR if name in _LIST_OPERATIONS else 1) + widths


def _format_size(text: str) -> int:
    """Return the sum of all widths in a format string; widths from arguments are rejected."""
    if re.search(r"%[^%a-zA-Z]*\*|\{[^{}]*\{", text):
        raise TemplateLimitError("it formats text with a width that is computed")
    return sum(int(digits) for digits in re.findall(r"\d+", text))


def _length(value) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 0


def _text_size(value, limit: int | None = None) -> int:
    """Return about how many characters a value has as text; stop counting above `limit` (default: the budget).

    A container counts as 100 characters, so that lists that hold the same list many times are measured in a second.
    """
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if not isinstance(value, (list, tuple)):
        return _length(value) + 1
    if limit is None:
        budget = _budget.get()
        limit = budget.characters if budget else MAX_CHARACTERS
    size = 100
    for item in value:
        size += _text_size(item, limit - size)
        if size > limit:
            break
    return size
