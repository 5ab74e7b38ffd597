"""The public face: load a pair, stream, run and race answers.

Text enters and leaves here; below there are only token ids. The step itself is `stream.py`.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

from jakiro.config import AUTOMATIC_TREE, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafting.base import Drafter
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.profile import device_name
from jakiro.engine.runner import Passes, SlicedPasses
from jakiro.engine.stream import Stream
from jakiro.graphs.pool import Lanes
from jakiro.methods.prompt_lookup import MAX_CHAIN
from jakiro.target.model import TargetModel
from jakiro.text import TokenText, encode_messages
from jakiro.trace import Step, Trace

METHODS = ("jakiro", "autoregressive", "context")
CHAIN_ONLY = TreeConfig(width=1, depth=MAX_CHAIN, nodes=MAX_CHAIN + 1, context=True)

Messages = str | Sequence[dict]


class JakiroGenerator:
    """A target model with a drafter: streams, runs and races answers.

    Args:
        target: the model whose text is kept.
        drafter: proposes trees; None leaves plain decoding only.
        head: name and hash of the drafter's weights for traces, None without one.
        notices: sentences to say aloud, such as a head trained for other weights.
        measure: measures what a target's passes cost on this device; called when a tree is first to size itself. Where
            there are lanes, it is given them too.
        lanes: run at fixed addresses, as CUDA graphs need it; None runs passes as long as the context.
    """

    def __init__(
        self,
        target: TargetModel,
        drafter: Drafter | None = None,
        head: dict | None = None,
        notices: Sequence[str] = (),
        measure: Callable[..., DeviceProfile] | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self._measure, self._profile, self.lanes = measure, None, lanes
        self._under = {target.numerics: self}
        self.target, self.drafter, self.head, self.notices = target, drafter, head, list(notices)
        self.tokenizer = target.tokenizer
        self.token_text = TokenText(target.tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        target: str | None = None,
        head: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        numerics: str | None = None,
        graphs: bool = True,
        progress: Callable[[int, int], None] | None = None,
        draft_precision: str | None = None,
    ) -> "JakiroGenerator":
        """Loads a pair by name, folder or Hub id; without arguments the embedded default.

        Args:
            target, head: names the zoo knows, folders, or Hub ids.
            device: "cpu", "cuda", …; None takes a GPU where there is one.
            dtype: "float32", "bfloat16" or "float16"; None takes what the device computes fast.
            numerics: "exact" (default) or "fast".
            graphs: on a GPU, capture passes as CUDA graphs at load; False runs the same passes one kernel at a time.
            progress: called while passes are captured, with how many are done and how many there are.
            draft_precision: "int8" (default) rounds the head's large matrices on a CPU, which is faster and changes
                guesses, never the text; "full" keeps them.

        Raises:
            ValueError, FileNotFoundError: one sentence that says what came, what was expected, what to do.
        """
        from jakiro.zoo.loading import load_generator

        return load_generator(
            target, head, device, dtype, numerics, graphs=graphs, progress=progress, draft_precision=draft_precision
        )

    def with_numerics(self, numerics: str) -> "JakiroGenerator":
        """The same pair under other numerics, made once; no weights are loaded, passes are measured anew.

        Where exact numerics cannot be computed the result's `status` says "fast".

        Raises:
            ValueError: unknown numerics.
        """
        if numerics not in self._under:
            other = copy.copy(self)
            other.target, other._profile = self.target.with_numerics(numerics), None
            if self.lanes is not None:
                other.lanes = self.lanes.for_target(other.target)
            self._under[numerics] = other
        return self._under[numerics]

    @property
    def status(self) -> dict:
        """What runs where, for chips and headers."""
        return {
            "target": self.target.name,
            "head": self.head["name"] if self.head else None,
            "device": str(self.target.device),
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "numerics": self.target.numerics,
            "bit_identical": self.target.bit_identical,
            "weight_bits": 8 * self.target.weight_itemsize,
            "compiled": self.target.compiled,
            "draft_precision": self.head.get("precision") if self.head else None,
            "graphs": self.lanes.status if self.lanes is not None else None,
            "notices": list(self.notices),
        }

    def passes(
        self, sampling: SamplingParams, tree: TreeConfig, buckets: tuple[int, ...], num_prompt_tokens: int, limit: int
    ) -> tuple[Passes, Callable[[], object]]:
        """The device's side of one answer, and what to call when it ends; see `Lanes.borrow`."""
        if self.lanes is not None:
            return self.lanes.borrow(sampling, tree, buckets, num_prompt_tokens, limit)
        nodes = 1 if tree.root_only else max(tree.nodes, *buckets, MAX_CHAIN + 1)
        capacity = num_prompt_tokens + limit + self.target.row_bucket(nodes)
        return SlicedPasses(self.target, self.drafter, sampling, capacity), lambda: None

    @property
    def profile(self) -> DeviceProfile | None:
        """This device's costs, measured on first use; None without a drafter."""
        if self._profile is None and self._measure is not None:
            self._profile = self._measure(self.target, *([self.lanes] if self.lanes is not None else []))
        return self._profile

    @profile.setter
    def profile(self, known: DeviceProfile) -> None:
        """Takes costs that another process measured on the same kind of device, so that nothing is measured here."""
        self._profile = known

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
        method: str = "jakiro",
        tree: TreeConfig | None = None,
        raw: bool = False,
    ) -> Stream:
        """Reads the prompt and returns an iterator of steps whose `.trace` grows.

        Args:
            messages: a user message, or role/content dictionaries; with `raw` a bare text to continue.
            method: "jakiro", "autoregressive" for plain decoding, or "context" for copied chains without a head.
            tree: how trees are grown; ignored by plain decoding.

        Raises:
            ValueError: an empty or too long prompt, an unknown method, or no draft head for method "jakiro".
        """
        if method not in METHODS:
            raise ValueError(f"Unknown method {method!r}; choose one of {', '.join(METHODS)}.")
        if method == "jakiro" and self.drafter is None:
            raise ValueError("No draft head fits this model, so only plain decoding is available.")
        if method == "autoregressive":
            tree = ROOT_ONLY
        elif method == "context":
            tree = CHAIN_ONLY
        else:
            tree = tree or AUTOMATIC_TREE
        return Stream(self, messages, sampling or SamplingParams(), method, tree, raw)

    def run(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        method: str = "jakiro",
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
        methods: Sequence[str] = ("autoregressive", "jakiro"),
        tree: TreeConfig | None = None,
        raw: bool = False,
    ) -> "Race":
        """Answers one question by several methods, always stepping the lane whose own clock is behind."""
        return Race({method: self.stream(messages, sampling, method, tree, raw) for method in methods})


class Race:
    """Lanes that share one device and one time axis; iterate for (method, step)."""

    def __init__(self, streams: dict[str, Stream]) -> None:
        self.streams = streams
        self.traces = {method: stream.trace for method, stream in streams.items()}

    def __iter__(self) -> Iterator[tuple[str, Step]]:
        return self

    def __next__(self) -> tuple[str, Step]:
        running = [method for method, stream in self.streams.items() if not stream.finished]
        if not running:
            raise StopIteration
        behind = min(running, key=lambda method: self.traces[method].decode_seconds)
        return behind, next(self.streams[behind])

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()
