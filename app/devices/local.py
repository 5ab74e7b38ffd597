"""A model in this process: the simplest device, and the loop that turns a generator's answer into plain events."""

import threading
from collections.abc import Callable, Iterator

from app.asking import Asking, chat_counts
from app.devices.base import LOADING, Event
from app.words import page as words
from jakiro.bench.environment import environment
from jakiro.decode.prefix_cache import OwnPrefixes
from jakiro.drafters.registry import DEFAULT
from jakiro.progress import MEASURE, reporting_to, step
from jakiro.system import is_out_of_memory, release_memory, within_memory


class LocalDevice:
    """Runs one answer at a time on the generator that `load_generator` makes."""

    places, metered = 1, False

    def __init__(self, load_generator: Callable[[], object]) -> None:
        self._load_generator = load_generator
        self.generator = None
        self._notices: list[str] = []

    @property
    def status(self) -> dict:
        status = self.generator.status
        return status | {"notices": [*status["notices"], *self._notices]}

    @property
    def costs(self) -> dict | None:
        profile = getattr(self.generator, "profile", None)
        return profile.to_dict() if profile is not None else None

    @property
    def environment(self) -> dict:
        return environment(self.status)

    def load(self, report: Callable[[str, float | None], None]) -> None:
        report(LOADING, None)
        with reporting_to(report):
            self.generator = within_memory(self._loaded, words.LOADED_OUT_OF_MEMORY)

    def _loaded(self):
        generator = self._load_generator()
        if generator.status["head"]:
            # Measure the costs of passes before the first answer needs them
            with step(MEASURE):
                _ = generator.profile
        return generator

    def swap(self, load_generator: Callable[[], object], report: Callable[[str, float | None], None]) -> None:
        """Replace the pair; if the new one cannot be loaded, keep the old one and raise the error.

        If memory does not suffice for both, the old one is released first, and loaded again if the other fails.
        """
        before, self._load_generator = self._load_generator, load_generator
        try:
            if not self._loads_beside(report):
                self.generator, self._notices = None, [words.SWAP_ONE_AT_A_TIME]
                release_memory()
                self.load(report)
        except Exception:
            self._load_generator = before
            if self.generator is None:
                release_memory()
                self.load(report)
            raise
        finally:
            release_memory()

    def _loads_beside(self, report: Callable[[str, float | None], None]) -> bool:
        """Load while the previous pair is still loaded; return False if memory suffices for only one."""
        try:
            self.load(report)
        except ValueError as error:
            if not getattr(error, "fits_alone", False):
                raise
            return False
        self._notices = []
        return True

    def answer(self, asking: Asking, halt: threading.Event, prefixes: OwnPrefixes | None = None) -> Iterator[Event]:
        num_tokens: dict[str, int] = {}
        try:
            for event in answer_events(self.generator, asking, halt.is_set, prefixes):
                kind, method, payload = event
                if kind == "header":
                    num_tokens[method] = payload.num_prompt_tokens + 1
                elif kind == "step":
                    num_tokens[method] += len(payload.committed_ids)
                yield event
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # After the handler, where no traceback holds the answer's tensors any more
        release_memory()
        tokens = max(num_tokens.values(), default=0)
        raise ValueError(words.OUT_OF_MEMORY_AT.format(tokens=tokens) if tokens else words.OUT_OF_MEMORY)

    def close(self) -> None:
        self.generator = None
        release_memory()


def answer_events(
    generator, asking: Asking, halted: Callable[[], bool], prefixes: OwnPrefixes | None = None
) -> Iterator[Event]:
    """Yield the events of one answer on a `JakiroGenerator`; its caches exist as long as the iterator.

    Raises:
        ValueError: the prompt is longer than the limit of the request or of the model; the message has both numbers.
    """
    if asking.numerics is not None:
        generator = generator.with_numerics(asking.numerics)
    messages, methods = list(asking.messages), asking.methods
    if asking.raw:
        messages = messages[0]["content"]
    if asking.max_prompt_tokens is not None:
        _check_length(asking, generator.num_prompt_tokens(messages, asking.raw, asking.template_arguments))
    if not generator.status["head"]:
        methods = generator.known_methods.runnable_without_head(methods)
    elif generator.usual is not DEFAULT:
        # The form's default means the usual method of the loaded head
        default = (DEFAULT.name, *DEFAULT.aliases)
        methods = tuple(dict.fromkeys(generator.usual.name if name in default else name for name in methods))
    if asking.echo:
        yield "prompt", methods[0], generator.score_prompt(messages, asking.params.logprobs)
    if not asking.generates:
        yield "end", methods[0], "length"
        return
    more = {"prediction": asking.prediction} if asking.prediction else {}
    race = generator.race(
        messages, asking.params, methods=methods, tree=asking.tree, raw=asking.raw, prefixes=prefixes,
        template_arguments=asking.template_arguments, answer_prefix_ids=asking.answer_prefix_ids, forced=asking.forced,
        **more,
    )  # fmt: skip
    steps = iter(race)
    try:
        for method, trace in race.traces.items():
            yield "header", method, trace.header
        while not halted() and (pair := next(steps, None)) is not None:
            yield "step", *pair
    finally:
        race.close()
    for method, trace in race.traces.items():
        yield "end", method, trace.end_reason or "stopped"


def _check_length(asking: Asking, num_tokens: int) -> None:
    limit = asking.max_prompt_tokens
    if num_tokens > limit:
        sentence = words.PROMPT_TOO_MANY_TOKENS.format(value=num_tokens, limit=limit, excess=num_tokens - limit)
        raise ValueError(sentence + chat_counts(asking.messages))
