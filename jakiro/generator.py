"""Public API: load a target with its draft head, then stream, run and race answers.

Text enters and leaves here; the layers below use token ids only. The decode loop is `jakiro/decode/loop.py`.
"""

import copy
import functools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TypedDict, Unpack, cast

import torch

from jakiro.backends.device import device_name
from jakiro.backends.torch_backend import TorchBackend
from jakiro.config import (
    AUTOMATIC_TREE,
    NO_DRAFT,
    NUMERICS,
    ROOT_ONLY,
    SPREAD_TREE,
    SamplingParams,
    TreeConfig,
    shortened,
)
from jakiro.core.backend import Backend
from jakiro.decode.device_profile import DeviceProfile, measure
from jakiro.decode.loop import Stream
from jakiro.decode.prefill import DecodeContext
from jakiro.decode.prefix_cache import OwnPrefixes
from jakiro.decode.prompt_logprobs import PromptScores, score_prompt
from jakiro.decode.request import GenerationRequest, Messages
from jakiro.decode.tree_budget import TreeBudget, candidate_sizes
from jakiro.drafters.base import Drafter, Method, Resources, why_not
from jakiro.drafters.merged import MergedDrafter
from jakiro.drafters.prediction import METHOD as PREDICTION
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN, Methods
from jakiro.loading.loader import GeneratorParts, LoadOptions, load_parts
from jakiro.loading.placement import most_gpu_memory
from jakiro.loading.registry import head_warning
from jakiro.progress import MEASURE, most_memory, process_seconds
from jakiro.text import TokenText
from jakiro.trace import Step, Trace


class StreamOptions(TypedDict, total=False):
    """Options of `JakiroGenerator.stream`, `run` and `race`.

    Attributes:
        raw: use no chat template.
        prefixes: from `PrefixStore.of`. If the prompt and an earlier text of the same owner have the same beginning,
            only the rest of the prompt is read; the answer is the same. `max_reusable_tokens` tells whether it has an
            effect.
        template_arguments: arguments of the chat template for this prompt; they override those for every prompt.
        answer_prefix_ids: beginning of the answer, which is continued as if it had been generated: it counts for
            logits processors, stop texts and the limit.
        forced: indices into that beginning of tokens chosen by hand, for the trace; None is the last one.
        prediction: the text that the caller expects. It is drafted in addition to the method's candidates: an answer
            that repeats it is faster, and its text is the same. Plain decoding ignores it.
    """

    raw: bool
    prefixes: OwnPrefixes | None
    template_arguments: Mapping[str, object] | None
    answer_prefix_ids: Sequence[int]
    forced: Sequence[int] | None
    prediction: str


class JakiroGenerator:
    """A target model with its drafting methods: it streams, runs and races answers.

    Make one with `from_pretrained`. Methods share the target; each is loaded on first use.

    Args:
        resources: the target, and the draft head if there is one.
        drafters: methods that are already loaded, by name.
        notices: sentences for the user in addition to the target's, for example that a head was trained for other
            weights.
        measures: whether passes are timed before a tree first chooses its size; if not, automatic trees take their
            bounds.
        backend: runs the target's passes; None for the reference backend.
        seconds: duration of loading, see `GeneratorParts.seconds`; for `status`.
        methods: the drafting methods to choose from.
    """

    def __init__(
        self,
        resources: Resources,
        drafters: dict[str, Drafter] | None = None,
        notices: Sequence[str] = (),
        measures: bool = False,
        backend: Backend | None = None,
        seconds: dict[str, float] | None = None,
        methods: Methods = METHODS,
    ) -> None:
        _keep_forks_alive()
        self._seconds = {**(seconds or {}), "ready": process_seconds(), "first_prompt": None}
        self.target, self.head = resources.target, resources.head_info
        self.backend = backend or cast(Backend, TorchBackend(resources.target))
        self.notices = list(notices)
        self._resources, self._drafters = resources, dict(drafters or {})
        self.known_methods = methods
        self._measures = measures and not self.target.chains_only
        self._known_profile: DeviceProfile | None = None
        # By method and number of threads
        self._profiles: dict[tuple[str, int], DeviceProfile] = {}
        self._by_numerics = {self.target.numerics: self}
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
        draft_precision: str | None = None,
        side_by_side: int = 1,
        methods: Iterable[Method] = (),
        template_arguments: Mapping[str, object] | None = None,
        draft_model: str | None = None,
        max_memory: str | None = None,
        offload_folder: str | None = None,
    ) -> "JakiroGenerator":
        """Load a target and its draft head; without arguments, the embedded default pair.

        Args:
            target: a known name (`jakiro.loading.registry`), a folder, a GGUF file or a Hub id.
            head: a known name, a folder or a Hub id; "none" loads no head; None takes the target's own.
            device: "cpu", "cuda", or "auto", which spreads a large target over GPUs, memory and disk with accelerate;
                None takes a GPU if there is one.
            dtype: "float32", "bfloat16", "float16", "8bit" or "4bit"; None takes the device's default.
            numerics: "exact" makes plain and drafted passes batch-invariant, "fast" does not; None takes exact, but
                fast on a GPU with slow float64.
            graphs: on a GPU, capture passes as CUDA graphs at load; False runs them kernel by kernel.
            draft_precision: on a CPU, "int8" (default) rounds the head's large matrices to 8 bits: drafting is faster,
                the text is the same. "full" keeps them.
            side_by_side: number of answers that run at once, as in a race; on a GPU, buffers for them are made at load.
            methods: drafting methods in addition to `jakiro.drafters.registry.METHODS`; see docs/architecture.md.
            template_arguments: arguments of the chat template for every prompt, such as {"enable_thinking": False}.
            draft_model: a small model with the target's tokenizer, which drafts in place of a head, or in addition to
                a head that is named: a known name, a folder, a GGUF file or a Hub id.
            max_memory: with device "auto", bytes of weights per device, such as "0:20GiB,cpu:60GiB".
            offload_folder: with device "auto", a folder for weights on disk; None takes one in the user's cache.

        Raises:
            ValueError, FileNotFoundError: one sentence with the value, what is expected, and what to do.
        """
        options = LoadOptions(
            target, head, device, dtype, numerics, draft_precision, graphs, side_by_side, methods=tuple(methods),
            template_arguments=json.dumps(template_arguments) if template_arguments else None, draft_model=draft_model,
            max_memory=max_memory, offload_folder=offload_folder,
        )  # fmt: skip
        return cls.load(options)

    @classmethod
    def load(cls, options: LoadOptions) -> "JakiroGenerator":
        """Load as `from_pretrained`, with all options in one value; raises the errors of `load_parts`."""
        return cls.from_parts(load_parts(options))

    @classmethod
    def from_parts(cls, parts: GeneratorParts) -> "JakiroGenerator":
        """Return a generator of the parts of `load_parts`; it measures costs when they are first needed."""
        return cls(parts.resources, parts.drafters, parts.notices, True, parts.backend, parts.seconds, parts.methods)

    def with_numerics(self, numerics: str) -> "JakiroGenerator":
        """Return the same pair under other numerics. It shares the weights, measures its own costs and is made once.

        Its `status` reports the numerics in use: "fast" if exact numerics are impossible, "exact" with compiled passes,
        which are always exact.

        Raises:
            ValueError: unknown numerics.
        """
        if self.target.compiled and numerics in NUMERICS:
            return self
        if numerics not in self._by_numerics:
            generator = copy.copy(self)
            generator.backend = self.backend.with_target(self.target.with_numerics(numerics), self.drafter(PLAIN))
            generator.target = generator.backend.target
            generator._resources = replace(self._resources, target=generator.target)
            generator._known_profile, generator._profiles = None, {}
            self._by_numerics[numerics] = generator
        return self._by_numerics[numerics]

    @property
    def status(self) -> dict:
        """Device, methods, numerics, memory and times, in JSON's types.

        "seconds" has the durations of loading ("load") and of its steps (`jakiro.progress.STEPS`), from the start of
        the process until the pair was ready ("ready"), and from the first prompt to its first token ("first_prompt").
        "makers_settings" has the target's recommended sampling settings, by the names of `SamplingParams`.
        "most_memory" and "most_gpu_memory", the most that torch allocated on the GPU, are in bytes.
        """
        return {
            "target": self.target.name,
            "head": self.head["name"] if self.head else None,
            "methods": [method.name for method in self.methods],
            "device": str(self.target.device),
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "numerics": self.target.numerics,
            "bit_identical": self.backend.is_batch_invariant,
            "weight_bits": 8 * self.target.weight_itemsize,
            "file_bits": self.target.file_bits,
            "compiled": self.target.compiled,
            "max_reusable_tokens": self.max_reusable_tokens,
            "makers_settings": self.target.makers_settings,
            "draft_precision": self.head.get("precision") if self.head else None,
            "graphs": self.backend.status,
            "seconds": dict(self._seconds),
            "most_memory": most_memory(),
            "most_gpu_memory": most_gpu_memory(self.target.device),
            "notices": [*self.target.notices, *self.notices, *self._later_notices()],
        }

    def _later_notices(self) -> list[str]:
        """Return notices known only after loading: on the hash of large weights, and on passes without graphs."""
        backends, head = [generator.backend for generator in self._by_numerics.values()], self._resources.head
        notices = dict.fromkeys(notice for backend in backends for notice in backend.notices)
        trained_for = "" if head is None or self.head is None else head.config.target_sha256
        warning = head_warning((self.head or {}).get("name", ""), trained_for, self.target.name, self.target.sha256)
        return [*notices, *([warning] if warning else [])]

    @property
    def max_reusable_tokens(self) -> int:
        """Maximum number of prompt tokens that `prefixes` saves; 0 unless a CPU runs compiled passes."""
        return self.backend.max_reusable_tokens

    @property
    def methods(self) -> tuple[Method, ...]:
        """Methods that can run with this target and the available heads."""
        return tuple(method for method in self.known_methods.values() if self._can_run(method))

    @property
    def usual(self) -> Method:
        """The default method, see `Methods.usual`; a drafter passed to the constructor needs no head."""
        usual = self.known_methods.usual(self._resources)
        return DEFAULT if usual is PLAIN and self._can_run(DEFAULT) else usual

    def _can_run(self, method: Method) -> bool:
        return method.name in self._drafters or why_not(method, self._resources) is None

    def drafter(self, method: Method) -> Drafter:
        """Return the method's drafter, loaded on first use.

        Raises:
            ValueError: the method needs a draft head that is not available.
        """
        if not self._can_run(method):
            available = ", ".join(alternative.name for alternative in self.methods)
            raise ValueError(f"{why_not(method, self._resources)}; choose one of {available}.")
        if method.name not in self._drafters:
            self._drafters[method.name] = method.load(self._resources)
        return self._drafters[method.name]

    def _drafter_with_prediction(self, method: Method) -> Drafter:
        """Return the method's drafter with the prediction merged in; made once, so that its passes are captured."""
        name = f"{method.name}+{PREDICTION.name}"
        if name not in self._drafters:
            prediction = PREDICTION.load(self._resources)
            drafter = None if method is PREDICTION else self.drafter(method)
            self._drafters[name] = prediction if drafter is None else MergedDrafter(drafter, prediction)
        return self._drafters[name]

    def score_prompt(self, prompt: Messages, count: int | None = 0) -> PromptScores:
        """Return the log probability of every token of a text or of token ids; see `prompt_logprobs`.

        Args:
            prompt: text or token ids, read without the chat template.
            count: number of most probable tokens to report in each place; None only reads the tokens.
        """
        token_ids = self._make_request(prompt, raw=True).prompt_ids
        return score_prompt(self.target, self.token_text, token_ids, count)

    @property
    def profile(self) -> DeviceProfile | None:
        """Costs of passes with the default method, see `profile_of`; None for plain decoding."""
        return self.profile_of(self.usual) if self.usual is not PLAIN and self._can_run(self.usual) else None

    @profile.setter
    def profile(self, profile: DeviceProfile) -> None:
        """Set known costs, so that nothing is measured."""
        self._known_profile = profile

    def profile_of(self, method: Method) -> DeviceProfile | None:
        """Return the costs of passes with a method, measured on first use in about half a second on a small CPU.

        None if nothing is measured, if the target scores no trees, or if a GPU runs passes kernel by kernel, which
        costs the same for any tree.
        """
        if self._known_profile is not None or not self._measures or not self.backend.can_profile:
            return self._known_profile
        key = method.name, torch.get_num_threads()
        if key not in self._profiles:
            start = time.perf_counter()
            self._profiles[key] = measure(self.backend, self.drafter(method), method.drafts)
            self._seconds.setdefault(MEASURE, time.perf_counter() - start)
        return self._profiles[key]

    def _make_budget(self, method: Method, bounds: TreeConfig) -> TreeBudget | None:
        """Return the budget of an answer with trees that choose their size.

        None for trees of a fixed size, or if nothing was measured; then every tree has the size of `bounds`.
        """
        profile = self.profile_of(method) if bounds.policy == "auto" and not bounds.root_only else None
        if profile is None:
            return None
        sizes = candidate_sizes(profile, bounds, self.backend.fixed_size) if method.drafts else (NO_DRAFT,)
        return TreeBudget(profile, sizes)

    @property
    def device_name(self) -> str:
        """Readable name of the device: "2-core CPU", or the GPU's name."""
        return device_name(self.target.device)

    @property
    def max_prompt_tokens(self) -> int:
        """Maximum number of tokens of prompt and answer together."""
        return self.target.max_positions

    def num_prompt_tokens(
        self, messages: Messages, raw: bool = False, template_arguments: Mapping[str, object] | None = None
    ) -> int:
        """Return the number of prompt tokens, including the chat template, or with `raw` of a text."""
        request = self._make_request(messages, raw=raw, template_arguments=template_arguments)
        return len(request.prompt_ids)

    def stream(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        method: str | None = None,
        tree: TreeConfig | None = None,
        **options: Unpack[StreamOptions],
    ) -> Stream:
        """Read the prompt and return an iterator of `Step`s; its `.trace` grows, its `.close()` stops it.

        Args:
            messages: a user message, or dictionaries with "role" and "content"; with `raw`, a text or token ids to
                continue.
            sampling: how tokens are chosen; None is greedy, at most 256 tokens.
            method: a name or an alias in `known_methods`; None is `usual`.
            tree: bounds of the draft trees; None lets each step choose its size. Plain decoding ignores it.
            options: see `StreamOptions`.

        Raises:
            ValueError: an empty or too long prompt, an unknown method, no draft head for a method that needs one, or a
                beginning that ends the answer or does not match its grammar.
            TypeError: `sampling` or `tree` has another type, or an option is unknown.
        """
        return self._start(self._make_request(messages, sampling, tree, **options), method)

    def _make_request(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        tree: TreeConfig | None = None,
        prefixes: OwnPrefixes | None = None,
        prediction: str = "",
        **options,
    ) -> GenerationRequest:
        _check_arguments(sampling, tree, options)
        sampling, tree = sampling or SamplingParams(), tree or AUTOMATIC_TREE
        request = GenerationRequest.encode(self.tokenizer, messages, sampling, tree, **options)
        predicted = self.token_text.encode(prediction) if prediction else ()
        # A tokenizer may have more tokens than the model
        prediction_ids = tuple(takewhile(self.target.vocab_size.__gt__, predicted))
        return replace(request, prefixes=prefixes, prediction_ids=prediction_ids)

    def _start(self, request: GenerationRequest, method_name: str | None) -> Stream:
        """Start one method's answer to a request."""
        method = self.known_methods.named(self.usual.name if method_name is None else method_name)
        has_prediction = bool(request.prediction_ids)
        if has_prediction and method_name is None and method is PLAIN:
            method = PREDICTION
        with_prediction = has_prediction and method is not PLAIN
        tree = ROOT_ONLY if method is PLAIN else request.tree
        if self.target.is_spread and tree == replace(AUTOMATIC_TREE, width=tree.width, contrastive=tree.contrastive):
            tree = replace(tree, nodes=SPREAD_TREE.nodes)
        context = DecodeContext(
            target=self.target,
            token_text=self.token_text,
            method=method,
            drafter=self._drafter_with_prediction(method) if with_prediction else self.drafter(method),
            backend=self.backend,
            budget=self._make_budget(method, tree),
            device_name=self.device_name,
        )
        start = time.perf_counter()
        stream = Stream(context, replace(request, tree=tree))
        if self._seconds["first_prompt"] is None:
            self._seconds["first_prompt"] = time.perf_counter() - start
        return stream

    def run(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        method: str | None = None,
        tree: TreeConfig | None = None,
        **options: Unpack[StreamOptions],
    ) -> Trace:
        """Decode to the end and return the trace; see `stream` for arguments and errors."""
        stream = self.stream(messages, sampling, method, tree, **options)
        for _ in stream:
            pass
        return stream.trace

    def race(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        methods: Sequence[str] | None = None,
        tree: TreeConfig | None = None,
        **options: Unpack[StreamOptions],
    ) -> "Race":
        """Answer one prompt with several methods; the next step is always of the method with the least time.

        Args:
            methods: names; None races plain decoding and `usual`.
            options: see `StreamOptions`. With `prefixes`, the first method reads the prompt and the others reuse its
                cache.

        Raises:
            ValueError: an error of `stream`, or a method that is named twice.
        """
        if isinstance(methods, str):
            raise TypeError(f"methods must be several names; got {methods!r}; pass methods=[{methods!r}].")
        names = methods or tuple(dict.fromkeys((PLAIN.name, self.usual.name)))
        if len({self.known_methods.named(name).name for name in names}) < len(names):
            raise ValueError(f"A race must not repeat a method; got {', '.join(names)}.")
        request = self._make_request(messages, sampling, tree, **options)
        streams: dict[str, Stream] = {}
        for name in names:
            if streams:
                streams[names[0]].keep_prefix()
            streams[name] = self._start(request, name)
        return Race(streams)


def _check_arguments(sampling: object, tree: object, options: Mapping[str, object]) -> None:
    """Raise TypeError for an argument of a wrong type or an unknown option; the message names what to pass."""
    for name, value, config in (("sampling", sampling, SamplingParams), ("tree", tree, TreeConfig)):
        if value is None or isinstance(value, config):
            continue
        settings = "…"
        if isinstance(value, Mapping):
            settings = ", ".join(f"{key}={item!r}" for key, item in value.items())
        elif isinstance(value, int) and name == "tree":
            settings = f"nodes={value}"
        remedy = f"{name}={config.__name__}({settings})"
        if isinstance(value, str) and name == "sampling":
            remedy = f"a method as method={value!r}, in a race as methods=[{value!r}]"
        raise TypeError(f"{name} must be a {config.__name__}; got {shortened(value)}; pass {remedy}.")
    for name in sorted(options.keys() - StreamOptions.__annotations__.keys()):
        for argument, config in (("sampling", SamplingParams), ("tree", TreeConfig)):
            if name in config.__dataclass_fields__:
                remedy = f"pass {argument}={config.__name__}({name}={shortened(options[name])})"
                raise TypeError(f"{name} is a setting of {config.__name__}; {remedy}.")
        raise TypeError(f"{name} is no option; choose one of {', '.join(StreamOptions.__annotations__)}.")


@functools.cache
def _keep_forks_alive() -> None:
    """Make forked processes compute with one thread: a fork has no other OpenMP threads, and passes would block."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


class Race:
    """Answers of several methods that share one device and one time axis: an iterator of (method, `Step`).

    Attributes:
        streams, traces: by method.
    """

    def __init__(self, streams: dict[str, Stream]) -> None:
        self.streams = streams
        if len(streams) > 1:
            for stream in streams.values():
                # A draft launched ahead would run in the time of another answer's step
                stream.may_draft_ahead = False
        self.traces = {method: stream.trace for method, stream in streams.items()}

    def __iter__(self) -> Iterator[tuple[str, Step]]:
        return self

    def __next__(self) -> tuple[str, Step]:
        running = [method for method, stream in self.streams.items() if not stream.finished]
        if not running:
            raise StopIteration
        method = min(running, key=lambda name: self.traces[name].decode_seconds)
        return method, next(self.streams[method])

    def close(self) -> None:
        """Stop all answers; the traces keep the finished steps."""
        for stream in self.streams.values():
            stream.close()
