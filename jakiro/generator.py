"""The public face: load a pair, stream, run and race answers.

Text enters and leaves here; below there are only token ids. The step itself is `jakiro/decode/loop.py`.
"""

import copy
import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from jakiro.backends.cuda_graphs.pool import Slots
from jakiro.config import AUTOMATIC_TREE, NUMERICS, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.decode.device_profile import DeviceProfile, device_name, measure
from jakiro.decode.loop import Stream
from jakiro.decode.prefill import Setup
from jakiro.decode.prefix_cache import OwnPrefixes
from jakiro.decode.prompt_logprobs import PromptScores, score_prompt
from jakiro.decode.request import Messages, Prompt, Request
from jakiro.decode.runner import Runner, SlicedRunner
from jakiro.decode.tree_budget import NONE, Size, sizes_for
from jakiro.drafters.base import Drafter, Method, Resources, why_not
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.drafters.merged import MergedDrafter
from jakiro.drafters.prediction import METHOD as PREDICTION
from jakiro.drafters.registry import METHODS, PLAIN, Methods
from jakiro.loading.loader import GeneratorParts, LoadOptions, load_parts
from jakiro.loading.placement import most_gpu_memory
from jakiro.loading.registry import head_warning
from jakiro.progress import MEASURE, most_memory, process_seconds
from jakiro.text import TokenText
from jakiro.trace import Step, Trace


class JakiroGenerator:
    """A target model with its drafting methods: it streams, runs and races answers.

    Make one with `from_pretrained`. Methods share the target; each is loaded on first use.

    Args:
        resources: the target, and the draft head if there is one.
        drafters: methods that are loaded already, by name.
        notices: sentences for the user beside the target's, such as that a head was trained for other weights.
        measures: whether passes are timed before a tree first chooses its size; if not, automatic trees take their
            bounds.
        slots: buffers at fixed addresses, as CUDA graphs need; None runs passes that grow with the context.
        seconds: what loading took, see `GeneratorParts.seconds`; for `status`.
        methods: the drafting methods to choose from.
    """

    def __init__(
        self,
        resources: Resources,
        drafters: dict[str, Drafter] | None = None,
        notices: Sequence[str] = (),
        measures: bool = False,
        slots: Slots | None = None,
        seconds: dict[str, float] | None = None,
        methods: Methods = METHODS,
    ) -> None:
        _live_on_after_forks()
        self._seconds = {**(seconds or {}), "ready": process_seconds(), "first_prompt": None}
        self.target, self.head, self.slots = resources.target, resources.head_info, slots
        self.notices = list(notices)
        self._resources, self._drafters = resources, dict(drafters or {})
        self.known_methods = methods
        self._measures = measures and not self.target.chains_only
        self._known_profile: DeviceProfile | None = None
        # By method and number of threads
        self._profiles: dict[tuple[str, int], DeviceProfile] = {}
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
        draft_precision: str | None = None,
        side_by_side: int = 1,
        methods: Iterable[Method] = (),
        template_arguments: Mapping[str, object] | None = None,
        draft_model: str | None = None,
    ) -> "JakiroGenerator":
        """Loads a target and its draft head; without arguments, the embedded default pair.

        Args:
            target: a known name (`jakiro.loading.registry`), a folder, a GGUF file or a Hub id.
            head: a known name, a folder or a Hub id; "none" loads no head; None takes the target's own.
            device: "cpu" or "cuda"; None takes a GPU if there is one.
            dtype: "float32", "bfloat16", "float16", "8bit" or "4bit"; None takes what suits the device.
            numerics: "exact" makes plain and drafted passes round alike, "fast" does not; None takes exact, but fast on
                a GPU with slow float64.
            graphs: on a GPU, capture passes as CUDA graphs at load; False runs them kernel by kernel.
            draft_precision: on a CPU, "int8" (default) rounds the head's large matrices to 8 bits: drafting is faster,
                the text is the same. "full" keeps them.
            side_by_side: answers that will run at once, as in a race; on a GPU, slots for so many are made at load.
            methods: drafting methods beside `jakiro.drafters.registry.METHODS`; see docs/architecture.md.
            template_arguments: of the chat template with every prompt, such as {"enable_thinking": False}.
            draft_model: a small model with the target's tokenizer, which drafts in place of a head, or beside one that
                is named: a known name, a folder, a GGUF file or a Hub id.

        Raises:
            ValueError, FileNotFoundError: one sentence that says what came, what was expected, what to do.
        """
        options = LoadOptions(
            target, head, device, dtype, numerics, draft_precision, graphs, side_by_side, methods=tuple(methods),
            template_arguments=template_arguments and json.dumps(template_arguments), draft_model=draft_model,
        )  # fmt: skip
        return cls.load(options)

    @classmethod
    def load(cls, options: LoadOptions) -> "JakiroGenerator":
        """`from_pretrained` with its options as one value; errors are those of `load_parts`."""
        return cls.from_parts(load_parts(options))

    @classmethod
    def from_parts(cls, parts: GeneratorParts) -> "JakiroGenerator":
        """A generator of what `load_parts` gave; it measures costs when they are first needed."""
        return cls(parts.resources, parts.drafters, parts.notices, True, parts.slots, parts.seconds, parts.methods)

    def with_numerics(self, numerics: str) -> "JakiroGenerator":
        """The same pair under other numerics. It shares the weights, measures its own costs and is made once.

        Its `status` says what it computes: "fast" where exact numerics are not possible, "exact" with compiled passes,
        which are exact anyway.

        Raises:
            ValueError: unknown numerics.
        """
        if self.target.compiled and numerics in NUMERICS:
            return self
        if numerics not in self._under:
            other = copy.copy(self)
            other.target = self.target.with_numerics(numerics)
            if self.slots is not None:
                other.slots = self.slots.for_target(other.target)
                other.target = other.slots.settle(self.drafter(PLAIN))
            other._resources = replace(self._resources, target=other.target)
            other._known_profile, other._profiles = None, {}
            self._under[numerics] = other
        return self._under[numerics]

    @property
    def status(self) -> dict:
        """What runs where, in JSON's types.

        "seconds" has those of loading ("load") and of its steps (`jakiro.progress.STEPS`), from the start of the
        process until the pair was ready ("ready"), and from the first question to its first token ("first_prompt").
        "makers_settings" is what the target's makers ask for, by the names of `SamplingParams`.
        "most_memory" and "most_gpu_memory", the most that torch held on the GPU, are in bytes.
        """
        return {
            "target": self.target.name,
            "head": self.head["name"] if self.head else None,
            "methods": [method.name for method in self.methods],
            "device": str(self.target.device),
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "numerics": self.target.numerics,
            "bit_identical": self.target.bit_identical,
            "weight_bits": 8 * self.target.weight_itemsize,
            "file_bits": self.target.file_bits,
            "compiled": self.target.compiled,
            "max_reusable_tokens": self.max_reusable_tokens,
            "makers_settings": self.target.makers_settings,
            "draft_precision": self.head.get("precision") if self.head else None,
            "graphs": self.slots.status if self.slots is not None else None,
            "seconds": dict(self._seconds),
            "most_memory": most_memory(),
            "most_gpu_memory": most_gpu_memory(self.target.device),
            "notices": [*self.target.notices, *self.notices, *self._later_notices()],
        }

    def _later_notices(self) -> list[str]:
        """Of what is known some time after loading: the hash of large weights, and what runs without graphs."""
        head, slots = self._resources.head, [each.slots for each in self._under.values() if each.slots is not None]
        found = dict.fromkeys(notice for each in slots for notice in each.notices)
        trained_for = "" if head is None or self.head is None else head.config.target_sha256
        warning = head_warning((self.head or {}).get("name"), trained_for, self.target.name, self.target.sha256)
        return [*found, *([warning] if warning else [])]

    @property
    def max_reusable_tokens(self) -> int:
        """How many tokens of a prompt `prefixes` can spare at most; 0 unless a CPU runs compiled passes."""
        return self.target.max_reusable_tokens if self.slots is None else 0

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that can run with this target and the heads at hand."""
        return tuple(method for method in self.known_methods.values() if self._works(method))

    @property
    def usual(self) -> Method:
        """What an unnamed method means, see `Methods.usual`."""
        return self.known_methods.usual(self._resources)

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

    def _drafter_with_prediction(self, method: Method) -> Drafter:
        """Return the method's drafter with the prediction merged in; made once, so that its passes are captured."""
        name = f"{method.name}+{PREDICTION.name}"
        if name not in self._drafters:
            prediction = PREDICTION.load(self._resources)
            own = None if method is PREDICTION else self.drafter(method)
            self._drafters[name] = prediction if own is None else MergedDrafter(own, prediction)
        return self._drafters[name]

    def score_prompt(self, prompt: Messages, count: int = 0) -> PromptScores:
        """Return the log probability of every token of a bare text, or of token ids; see `prompt_logprobs`.

        Args:
            prompt: text or token ids, read without the chat template.
            count: number of likeliest tokens to report in each place.
        """
        token_ids = Prompt.of(self.tokenizer, prompt, raw=True).ids
        return score_prompt(self.target, self.token_text, token_ids, count)

    @property
    def profile(self) -> DeviceProfile | None:
        """What passes cost here under the usual method, see `profile_of`; None where that method cannot run."""
        return self.profile_of(self.usual) if self.usual is not PLAIN and self._works(self.usual) else None

    @profile.setter
    def profile(self, known: DeviceProfile) -> None:
        """Takes costs that are known, so that nothing is measured here."""
        self._known_profile = known

    def profile_of(self, method: Method) -> DeviceProfile | None:
        """What passes cost here under a method, timed on first use, in about half a second on a small CPU.

        None where nothing is measured, where the target scores no trees, and where a GPU runs passes kernel by kernel,
        which costs the same for any tree.
        """
        if self._known_profile is not None or not self._measures or (self.slots is not None and not self.slots.replays):
            return self._known_profile
        wanted = method.name, torch.get_num_threads()
        if wanted not in self._profiles:
            start = time.perf_counter()
            self._profiles[wanted] = measure(self.target, self.drafter(method), method.drafts, self.slots)
            self._seconds.setdefault(MEASURE, time.perf_counter() - start)
        return self._profiles[wanted]

    def _sizes(self, method: Method, bounds: TreeConfig, profile: DeviceProfile) -> tuple[Size, ...]:
        """The trees that an answer chooses from; passes at fixed addresses have one."""
        if not method.drafts:
            return (NONE,)
        if self.slots is None:
            return sizes_for(profile, bounds)
        one = self.slots.tree
        return NONE, Size(min(one.depth, bounds.depth), min(one.nodes, bounds.nodes))

    @property
    def device_name(self) -> str:
        """The device in words a person reads: "2-core CPU", or the GPU's name."""
        return device_name(self.target.device)

    @property
    def max_prompt_tokens(self) -> int:
        """How many tokens of prompt and answer together the target can read."""
        return self.target.max_positions

    def num_prompt_tokens(
        self, messages: Messages, raw: bool = False, template_arguments: Mapping[str, object] | None = None
    ) -> int:
        """How many tokens the model reads before it answers, chat template included, or with `raw` of a bare text."""
        return len(Prompt.of(self.tokenizer, messages, raw, template_arguments=template_arguments).ids)

    def stream(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        method: str | None = None,
        tree: TreeConfig | None = None,
        raw: bool = False,
        prefixes: OwnPrefixes | None = None,
        template_arguments: Mapping[str, object] | None = None,
        answer_prefix_ids: Sequence[int] = (),
        forced: Sequence[int] | None = None,
        prediction: str = "",
    ) -> Stream:
        """Reads the prompt and returns an iterator of `Step`s; its `.trace` grows, its `.close()` stops it.

        Args:
            messages: a user message, or dictionaries with "role" and "content"; with `raw`, a bare text or token ids to
                continue.
            sampling: how tokens are chosen; None is greedy, at most 256 tokens.
            method: a name or an alias in `known_methods`; None is `usual`.
            tree: how trees grow; None lets each step choose its size. Plain decoding ignores it.
            raw: use no chat template.
            prefixes: from `PrefixStore.of`. A prompt that begins like an earlier text of the same owner is read from
                where the two part; the answer is the same. `max_reusable_tokens` says where it helps.
            template_arguments: of the chat template for this prompt; they override those for every prompt.
            answer_prefix_ids: the beginning of the answer, which goes on after it as if it had been written so: it
                counts for rules, stop texts and the limit.
            forced: places in that beginning whose tokens somebody chose, for the trace; None is the last one.
            prediction: the text that the caller expects. It is drafted beside the method's own candidates, so an
                answer that repeats it is faster; the text of the answer is the same. Plain decoding ignores it.

        Raises:
            ValueError: an empty or too long prompt, an unknown method, no draft head for a method that needs one, or a
                beginning that ends the answer or is outside its grammar.
        """
        prompt = {"raw": raw, "template_arguments": template_arguments, "forced": forced, "prediction": prediction}
        request = self._request(messages, sampling, tree, prefixes, answer_prefix_ids=answer_prefix_ids, **prompt)
        return self._start(request, method)

    def _request(
        self,
        messages: Messages,
        sampling: SamplingParams | None,
        tree: TreeConfig | None,
        prefixes: OwnPrefixes | None = None,
        **prompt,
    ) -> Request:
        asked = Prompt.of(self.tokenizer, messages, **prompt)
        return Request(asked, sampling or SamplingParams(), tree or AUTOMATIC_TREE, prefixes)

    def _start(self, request: Request, method: str | None) -> Stream:
        """One method's answer to a request."""
        wanted = self.known_methods.named(self.usual.name if method is None else method)
        predicts = bool(request.prompt.prediction_ids)
        if predicts and method is None and wanted is PLAIN:
            wanted = PREDICTION
        drafter = self._drafter_with_prediction(wanted) if predicts and wanted is not PLAIN else self.drafter(wanted)
        tree = ROOT_ONLY if wanted is PLAIN else request.tree
        sizes_itself = tree.policy == "auto" and not tree.root_only
        profile = self.profile_of(wanted) if sizes_itself else None
        sizes = self._sizes(wanted, tree, profile) if profile is not None else ()
        setup = Setup(
            target=self.target,
            token_text=self.token_text,
            method=wanted,
            drafter=drafter,
            profile=profile,
            sizes=sizes,
            device_name=self.device_name,
            borrow=partial(self._borrow, drafter, sizes),
        )
        start = time.perf_counter()
        stream = Stream(setup, replace(request, tree=tree))
        if self._seconds["first_prompt"] is None:
            self._seconds["first_prompt"] = time.perf_counter() - start
        return stream

    def _borrow(
        self, drafter: Drafter, sizes: tuple[Size, ...], request: Request
    ) -> tuple[Runner, Callable[[], object]]:
        """The device's side of one answer, and what to call when it ends; see `Slots.borrow`."""
        tree, sampling, prompt = request.tree, request.sampling, request.prompt
        tokens = prompt.answer_start + sampling.max_new_tokens
        largest = max(sizes, default=NONE)
        if largest.levels:
            tree = replace(tree, depth=largest.levels, nodes=largest.nodes, policy="fixed")
        slot = self.slots and self.slots.borrow(drafter, sampling, tree, len(prompt.ids), tokens)
        if slot is not None:
            return slot
        nodes = 1 if request.tree.root_only else max(tree.nodes, MAX_CHAIN + 1)
        return SlicedRunner(self.target, sampling, tokens + self.target.row_bucket(nodes)), lambda: None

    def run(self, *asked, **options) -> Trace:
        """Decodes to the end and returns the trace. Arguments and errors are those of `stream`."""
        stream = self.stream(*asked, **options)
        for _ in stream:
            pass
        return stream.trace

    def race(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        methods: Sequence[str] | None = None,
        tree: TreeConfig | None = None,
        **further,
    ) -> "Race":
        """Answers one question with several methods; the next step is that of the one with the least time so far.

        Args:
            methods: names; None races plain decoding and `usual`.
            further: what else `stream` takes; the first method reads the prompt, the others begin with its cache.

        Raises:
            ValueError: an error of `stream`, or a method that is named twice.
        """
        raced = methods or tuple(dict.fromkeys((PLAIN.name, self.usual.name)))
        if len({self.known_methods.named(method).name for method in raced}) < len(raced):
            raise ValueError(f"A race must not repeat a method; you gave {', '.join(raced)}.")
        request = self._request(messages, sampling, tree, **further)
        streams: dict[str, Stream] = {}
        for method in raced:
            for first in list(streams.values())[:1]:
                first.keep_prefix()
            streams[method] = self._start(request, method)
        return Race(streams)


@functools.cache
def _live_on_after_forks() -> None:
    """Lets forked processes compute with one thread: OpenMP's others stay behind, and a pass would wait for them."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


class Race:
    """Answers of several methods that share one device and one time axis: an iterator of (method, `Step`).

    Attributes:
        streams, traces: by method.
    """

    def __init__(self, streams: dict[str, Stream]) -> None:
        self.streams = streams
        for stream in streams.values():
            # A draft begun ahead would run in the time of another answer's step
            stream.may_draft_ahead = len(streams) == 1
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
        """Stops all; what was decoded stays in the traces."""
        for stream in self.streams.values():
            stream.close()
