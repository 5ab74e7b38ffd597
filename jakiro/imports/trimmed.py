"""Transformers' models without the parts of torch that none of our programs runs: its compiler, distributed tensors.

Importing those, and sympy for them, takes three quarters of what importing the models takes. For programs that own
their process: in somebody else's they may be wanted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import and_, or_

from jakiro.imports.later import call_of, imported_later

_COMPILER = "torch._dynamo"
_INDEXING = "torch._dynamo._trace_wrapped_higher_order_op"
_SIZES = "torch.fx.experimental.symbolic_shapes"


@contextmanager
def without_compiler_and_distribution() -> Iterator[None]:
    """Around the first import of transformers' models and the loading of one.

    What asks for more than the stand-ins know gets the real modules, only later. For this process transformers believes
    from then on that torch has no distributed part, as some builds have none.
    """
    from transformers import utils
    from transformers.utils import import_utils

    utils.is_torch_distributed_available = import_utils.is_torch_distributed_available = lambda: False
    given = {
        _COMPILER: dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), _unmarked),
        _INDEXING: {"TransformGetItemToIndex": call_of(_INDEXING, "TransformGetItemToIndex")},
        _SIZES: {name: _of_known_sizes(name, answer) for name, answer in _OF_KNOWN_SIZES.items()},
        # Asked only whether a number is a formula
        "sympy": {"Basic": type("Basic", (), {})},
    }
    with imported_later(given):
        yield


def _unmarked(function: Callable | None = None, *_, **__) -> Callable:
    """Decorates like torch's marks for its compiler, which change nothing where nothing is compiled."""
    return _unmarked if function is None else function


def _same(answer, *_):
    return answer


def _equal(sizes, others) -> bool:
    return sizes == others if isinstance(sizes, int) else tuple(sizes) == tuple(others)


# What torch asks while it makes tensors without storage, as the module answers where sizes are numbers, not unknowns
_OF_KNOWN_SIZES = {
    "expect_true": _same,
    "guard_or_false": _same,
    "guard_or_true": _same,
    "guard_size_oblivious": _same,
    "guarding_hint_or_throw": _same,
    "statically_known_true": _same,
    "has_guarding_hint": lambda _: True,
    "is_nested_int": lambda _: False,
    "sym_and": lambda *answers: reduce(and_, answers),
    "sym_or": lambda *answers: reduce(or_, answers),
    "sym_eq": _equal,
}


def _of_known_sizes(name: str, answer: Callable) -> Callable:
    ask = call_of(_SIZES, name)
    return lambda *sizes, **named: (answer if _are_known(sizes) and not named else ask)(*sizes, **named)


def _are_known(sizes) -> bool:
    return all(map(_are_known, sizes)) if isinstance(sizes, (tuple, list)) else isinstance(sizes, int)
