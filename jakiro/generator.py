"""The public face: load a pair, stream, run and race answers.

Text enters and leaves here; below there are only token ids. The step itself is `jakiro/engine/stream.py`.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from jakiro.config import AUTOMATIC_TREE, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafting.base import Drafter, Method, Resources, why_not
from jakiro.drafting.candidates import MAX_CHAIN
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.profile import Profiler, device_name
from jakiro.engine.runner import Runner, SlicedRunner
from jakiro.engine.stream import Messages, Request, Setup, Stream
from jakiro.graphs.pool import Lanes
from jakiro.methods import DEFAULT, METHODS, PLAIN, method_named
from jakiro.text import TokenText, encode_messages
from jakiro.trace import Step, Trace
from jakiro.zoo.loading import LoadOptions, Parts, Progress, ReadPair, load_parts


class JakiroGenerator:
    """A target model with its drafting methods: streams, runs and races answers.

    Methods share the target, the shapes of its caches and what its passes cost; each is loaded on first use.

    Args:
        resources: the target, and the draft head where there is one.
        drafters: methods that are loaded already, by name.
        notices: sentences for the user, such as that a head was trained for other weights.
        profiles: a folder that keeps what passes cost on this device, measured before a tree first chooses its own
            size; None measures nothing, and trees have the size of their bounds.
        lanes: run passes at fixed addresses, as CUDA graphs need; None runs passes that grow with the context.
        load_seconds: what loading took. exact_suits: whether exact numerics costs little here; both for `status`.
    """

    def __init__(
        self,
        resources: Resources,
        drafters: dict[str, Drafter] | None = None,
        notices: Sequence[str] = (),
        profiles: Path | None = None,
        lanes: Lanes | None = None,
        load_seconds: float | None = None,
        exact_suits: bool = True,
    ) -> None:
        self.exact_suits = exact_suits
        self._seconds = {"load": load_seconds, "first_prompt": None}
        self.target, self.head, self.lanes = resources.target, resources.head_info, lanes
        self.notices = list(notices)
        self._resources, self._drafters = resources, dict(drafters or {})
        self._folder, self._profiles, self._known_profile = profiles, {}, None
        self._under = {self.target.numerics: self}
        self.tokenizer = self.target.tokenizer
        self.token_text = TokenText(self.target.tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        target: str | None = None,
        head: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        numerics: str | None = None,
        graphs: bool = True,
        progress: Progress | None = None,
        draft_precision: str | None = None,
        side_by_side: int = 1,
    ) -> "JakiroGenerator":
        """Loads a pair by name, folder or Hub id; without arguments the embedded default.

        Args:
            target, head: names the zoo knows, folders, or Hub ids.
            device: "cpu", "cuda", …; None takes a GPU where there is one.
            dtype: "float32", "bfloat16" or "float16"; None takes what the device computes fast.
            numerics: "exact" or "fast"; None takes exact, but on a GPU with slow float64 fast.
            graphs: on a GPU, capture passes as CUDA graphs at load; False runs the same passes one kernel at a time.
            progress: called while passes are captured, with how many are done and how many there are.
            draft_precision: "int8" (default) rounds the head's large matrices on a CPU, which is faster and changes
                guesses, never the text; "full" keeps them.
            side_by_side: answers that will run at once, as in a race: on a GPU, as many are prepared for at load.

        Raises:
            ValueError, FileNotFoundError: one sentence that says what came, what was expected, what to do.
        """
        options = LoadOptions(target, head, device, dtype, numerics, draft_precision, graphs, side_by_side)
        return cls.load(options, progress=progress)

    @classmethod
    def load(
        cls,
        options: LoadOptions,
        prepare: Callable[[ReadPair], ReadPair] | None = None,
        progress: Progress | None = None,
    ) -> "JakiroGenerator":
        """`from_pretrained` with its options as one value; see `load_parts`."""
        return cls.from_parts(load_parts(options, prepare, progress))

    @classmethod
    def from_parts(cls, parts: Parts) -> "JakiroGenerator":
        return cls(
            parts.resources,
            parts.drafters,
            parts.notices,
            parts.profiles,
            parts.lanes,
            parts.seconds,
            parts.exact_suits,
        )

    def with_numerics(self, numerics: str) -> "JakiroGenerator":
        """The same pair under other numerics, made once; no weights are loaded, passes are measured anew.

        Where exact numerics cannot be computed the result's `status` says "fast".

        Raises:
            ValueError: unknown numerics.
        """
        if numerics not in self._under:
            other = copy.copy(self)
            other.target = self.target.with_numerics(numerics)
            other._profiles, other._known_profile = {}, None
            other._resources = replace(self._resources, target=other.target)
            if self.lanes is not None:
                other.lanes = self.lanes.for_target(other.target)
            self._under[numerics] = other
        return self._under[numerics]

    @property
    def status(self) -> dict:
        """What runs where, for chips and headers; seconds are those of loading and of the first answer's prompt."""
        return {
            "target": self.target.name,
            "head": self.head["name"] if self.head else None,
            "methods": [method.name for method in self.methods],
            "device": str(self.target.device),
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "numerics": self.target.numerics,
            "exact_suits": self.exact_suits,
            "bit_identical": self.target.bit_identical,
            "weight_bits": 8 * self.target.weight_itemsize,
            "compiled": self.target.compiled,
            "draft_precision": self.head.get("precision") if self.head else None,
            "graphs": self.lanes.status if self.lanes is not None else None,
            "seconds": dict(self._seconds),
            "notices": list(self.notices),
        }

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that work with what was loaded."""
        return tuple(method for method in METHODS.values() if self._works(method))

    def _works(self, method: Method) -> bool:
        return method.name in self._drafters or why_not(method, self._resources) is None

    def drafter(self, method: Method) -> Drafter:
        """The method's drafter, loaded on first use.

        Raises:
            ValueError: it needs a draft head and there is none, or none of its kind.
        """
        if not self._works(method):
            known = ", ".join(each.name for each in self.methods)
            raise ValueError(f"{why_not(method, self._resources)}; choose one of {known}.")
        if method.name not in self._drafters:
            self._drafters[method.name] = method.load(self._resources)
        return self._drafters[method.name]

    @property
    def profile(self) -> DeviceProfile | None:
        """This device's costs under the default method, measured on first use; None without a head."""
        return self.profile_of(DEFAULT) if self._works(DEFAULT) else None

    @profile.setter
    def profile(self, known: DeviceProfile) -> None:
        """Takes costs that another process measured on the same kind of device, so that nothing is measured here."""
        self._known_profile = known

    def profile_of(self, method: Method) -> DeviceProfile | None:
        """This device's costs under a method; None where nothing is measured, or trees cannot be scored."""
        if self._known_profile is not None:
            return self._known_profile
        if method.name not in self._profiles and self._folder is not None and not self.target.chains_only:
            profiler = Profiler(self.target, self._folder, self.lanes)
            self._profiles[method.name] = profiler.profile(method, self.drafter(method))
        return self._profiles.get(method.name)

    @property
    def device_name(self) -> str:
        """The device in words a person reads: "2-core CPU", or the GPU's name."""
        return device_name(self.target.device)

    @property
    def max_prompt_tokens(self) -> int:
        return self.target.max_positions

    def num_prompt_tokens(self, messages: Messages) -> int:
        """How many tokens the model reads before it answers, chat template included."""
        return len(encode_messages(self.tokenizer, messages))

    def stream(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        method: str = DEFAULT.name,
        tree: TreeConfig | None = None,
        raw: bool = False,
    ) -> Stream:
        """Reads the prompt and returns an iterator of steps whose `.trace` grows.

        Args:
            messages: a user message, or role/content dictionaries; with `raw` a bare text to continue.
            method: a name of `jakiro.methods.METHODS`, or an alias of one.
            tree: how trees are grown; ignored by plain decoding. With `context=True` the default method also copies.

        Raises:
            ValueError: an empty or too long prompt, an unknown method, or no draft head for a method that needs one.
        """
        wanted = method_named(method, tree)
        drafter = self.drafter(wanted)
        tree = ROOT_ONLY if wanted is PLAIN else tree or AUTOMATIC_TREE
        sizes_itself = tree.policy == "auto" and not tree.root_only
        setup = Setup(
            target=self.target,
            token_text=self.token_text,
            method=wanted,
            drafter=drafter,
            profile=self.profile_of(wanted) if sizes_itself else None,
            device_name=self.device_name,
            borrow=partial(self._borrow, drafter),
        )
        start = time.perf_counter()
        stream = Stream(setup, Request(messages, sampling or SamplingParams(), tree, raw))
        if self._seconds["first_prompt"] is None:
            self._seconds["first_prompt"] = time.perf_counter() - start
        return stream

    def _borrow(
        self, drafter: Drafter, request: Request, sizes: tuple[int, ...], num_prompt_tokens: int, limit: int
    ) -> tuple[Runner, Callable[[], object]]:
        """The device's side of one answer, and what to call when it ends; see `Lanes.borrow`."""
        tree, sampling = request.tree, request.sampling
        if self.lanes is not None:
            return self.lanes.borrow(drafter, sampling, tree, sizes, num_prompt_tokens, limit)
        nodes = 1 if tree.root_only else max(tree.nodes, *sizes, MAX_CHAIN + 1)
        capacity = num_prompt_tokens + limit + self.target.row_bucket(nodes)
        return SlicedRunner(self.target, sampling, capacity), lambda: None

    def run(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        method: str = DEFAULT.name,
        tree: TreeConfig | None = None,
        raw: bool = False,
    ) -> Trace:
        """Decodes to the end and returns the trace."""
        stream = self.stream(messages, sampling, method, tree, raw)
        for _ in stream:
            pass
        return stream.trace

    def race(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        methods: Sequence[str] = (PLAIN.name, DEFAULT.name),
        tree: TreeConfig | None = None,
        raw: bool = False,
    ) -> "Race":
        """Answers one question by several methods; each step goes to the one that has used the least time so far."""
        return Race({method: self.stream(messages, sampling, method, tree, raw) for method in methods})


class Race:
    """Answers of several methods that share one device and one time axis; iterate for (method, step)."""

    def __init__(self, streams: dict[str, Stream]) -> None:
        self.streams = streams
        self.traces = {method: stream.trace for method, stream in streams.items()}

    def __iter__(self) -> Iterator[tuple[str, Step]]:
        return self

    def __next__(self) -> tuple[str, Step]:
        running = [method for method, stream in self.streams.items() if not stream.finished]
        if not running:
            raise StopIteration
        next_one = min(running, key=lambda method: self.traces[method].decode_seconds)
        return next_one, next(self.streams[next_one])

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()
