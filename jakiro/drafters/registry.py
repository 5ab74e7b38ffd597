"""The registry of drafting methods.

To add a method, implement the contract of `jakiro/drafters/base.py` in a new file (`plain.py` is the shortest example)
and register it in `METHODS`; all commands and the page then offer it. A method outside the package, such as
`docs/echo.py`, needs no change here: `--methods-from` adds it with `METHODS.with_further`.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from traceback import walk_tb

from jakiro.drafters import (
    dflash,
    eagle2,
    eagle3,
    jakiro,
    medusa,
    parallelspec,
    plain,
    prompt_lookup,
    small_model,
)
from jakiro.drafters.base import Drafter, Method, Resources
from jakiro.drafters.merged import merged
from jakiro.heads.base import DraftHead
from jakiro.heads.kind import HeadKind
from jakiro.heads.kinds import KINDS

PLAIN, DEFAULT = plain.METHOD, jakiro.METHOD
WITH_COPIES = merged(
    DEFAULT,
    prompt_lookup.METHOD,
    "Jakiro's trees, with tokens that followed the same words earlier in the text.",
)


class Methods(Mapping[str, Method]):
    """Drafting methods by name, and their kinds of draft heads.

    Raises:
        ValueError: an item is not a `Method`, or two methods share a name, an alias, or a kind of head.
    """

    # Immutable after construction, and hashable so that it can be the default of a frozen dataclass
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __init__(self, methods: Iterable[Method]) -> None:
        self._by_name: dict[str, Method] = {}
        self._by_alias: dict[str, Method] = {}
        self._by_kind: dict[str, Method] = {}
        self.kinds: dict[str, HeadKind] = dict(KINDS)
        for method in methods:
            self._add(method)

    def _add(self, method: Method) -> None:
        if not isinstance(method, Method):
            raise ValueError(f"A method must be a Method, not {type(method).__name__}; see docs/architecture.md.")
        for name in (method.name, *method.aliases):
            if name in self._by_alias:
                raise ValueError(f"Two drafting methods are called {name!r}; give one of them another name.")
            self._by_alias[name] = method
        self._by_name[method.name] = method
        if method.drafter is None:
            return
        kind = method.needs.head[0]
        if method.kind is not None and self.kinds.setdefault(method.kind.name, method.kind) is not method.kind:
            raise ValueError(f"{method.name} defines heads of the kind {method.kind.name!r}, but that name is taken.")
        if method.trains is None:
            # The method uses heads of another method, or published heads, which are not trained here
            self._by_kind.setdefault(kind, method)
            return
        if kind in self._by_kind:
            raise ValueError(
                f"{method.name} and {self._by_kind[kind].name} both register draft heads of kind {kind!r}."
            )
        self._by_kind[kind] = method

    def __getitem__(self, name: str) -> Method:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def with_further(self, methods: Iterable[Method]) -> "Methods":
        """Return a mapping with additional methods; raises as the constructor does."""
        return Methods((*self.values(), *methods))

    def named(self, name: str) -> Method:
        """Return the method of this name or alias.

        Raises:
            ValueError: the name is unknown; the message lists the known names.
        """
        method = self._by_alias.get(name)
        if method is None:
            raise ValueError(f"Unknown method {name!r}; choose one of {', '.join(self)}.")
        return method

    def usual(self, resources: Resources) -> Method:
        """Return the method used if a request names none: plain decoding without a head, else the head's method."""
        if resources.head is None:
            return PLAIN if resources.kind_for(DEFAULT.needs) is None else DEFAULT
        kind = resources.head.config.kind
        return DEFAULT if kind in DEFAULT.needs.head else self.drafting_with(kind)

    def runnable_without_head(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the methods that run on a target without any draft head, or plain decoding if none does.

        The page, `serve`, `generate` and `race` share this rule, so that one file works in all of them.
        """
        return tuple(name for name in names if not self.named(name).needs.head) or (PLAIN.name,)

    def drafting_with(self, kind: str) -> Method:
        """Return the method with heads of this kind, see `DraftConfig.kind`."""
        return self._by_kind[kind]

    def drafter_of(self, head: DraftHead) -> Drafter:
        """Return the drafter of a head's own method."""
        return self.drafting_with(head.config.kind).drafter(head)


METHODS = Methods(
    (
        PLAIN,
        DEFAULT,
        WITH_COPIES,
        prompt_lookup.METHOD,
        eagle2.METHOD,
        eagle3.METHOD,
        parallelspec.METHOD,
        medusa.METHOD,
        dflash.METHOD,
        small_model.METHOD,
    )
)


# Names of the modules that `methods_from` has loaded methods from
_external_modules: set[str] = set()


def find_external_line(error: BaseException) -> tuple[str, int] | None:
    """Return file and line of the innermost frame of an error in a module of `methods_from`; None if there is none."""
    packages = {name.partition(".")[0] for name in _external_modules}
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        if str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
            return frame.f_code.co_filename, line
    return None


def methods_from(modules: Iterable[str]) -> tuple[Method, ...]:
    """Import modules outside the package, also from the working folder, and return their `METHODS`.

    Raises:
        ValueError: a module does not exist, cannot be imported, or has no `METHODS`.
    """
    methods: list[Method] = []
    if os.getcwd() not in sys.path:
        # An installed command does not search the working folder
        sys.path.append(os.getcwd())
    for name in dict.fromkeys(modules):
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"--methods-from {name}: {error}; give the module's name without .py, and its folder in PYTHONPATH."
            ) from error
        except Exception as error:  # a module of the user may raise anything
            raise ValueError(
                f"--methods-from {name}: the module cannot be imported ({type(error).__name__}: {error}); correct it."
            ) from error
        try:
            methods += module.METHODS
        except (AttributeError, TypeError):
            raise ValueError(
                f"--methods-from {name}: the module has no METHODS; expected a list of Method, see "
                "docs/architecture.md."
            ) from None
        _external_modules.add(name)
    return tuple(methods)
