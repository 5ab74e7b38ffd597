"""The loop: propose, score, verify, commit. Text enters and leaves here; below there are only token ids.

Plain decoding is the same loop with a tree that is only its root, so both sides of a comparison give the same records.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version

import torch
from torch import Tensor

from jakiro.budget import Choice, DeviceProfile, TreeBudget
from jakiro.clock import StepClock
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting import Drafter, DraftSession
from jakiro.recording import nodes_from
from jakiro.sampling import KeyedNoise, NoiseRows, choose
from jakiro.target import TargetModel
from jakiro.text import IncrementalDecoder, TokenText, as_messages, encode_messages
from jakiro.trace import Header, Plan, Step, Trace
from jakiro.tree import DraftTree
from jakiro.verify import Outcome, Verification, read_back, verify

METHODS = ("jakiro", "autoregressive")
ROOT_ONLY = TreeConfig(depth=0, nodes=1)

Messages = str | Sequence[dict]


class JakiroGenerator:
    """A target model with a drafter: streams, runs and races answers.

    Args:
        target: the model whose text is kept.
        drafter: proposes trees; None leaves plain decoding only.
        head: name and hash of the drafter's weights for traces, None without one.
        notices: sentences to say aloud, such as a head trained for other weights.
        measure: measures this device's costs; called once, when a tree is first to size itself.
    """

    def __init__(
        self,
        target: TargetModel,
        drafter: Drafter | None = None,
        head: dict | None = None,
        notices: Sequence[str] = (),
        measure: Callable[[], DeviceProfile] | None = None,
    ) -> None:
        self._measure, self._profile = measure, None
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
    ) -> "JakiroGenerator":
        """Loads a pair by name, folder or Hub id; without arguments the embedded default.

        Args:
            target, head: names the zoo knows, folders, or Hub ids.
            device: "cpu", "cuda", …; None takes a GPU where there is one.
            dtype: "float32", "bfloat16" or "float16"; None takes what the device computes fast.
            numerics: "exact" (default) or "fast".

        Raises:
            ValueError, FileNotFoundError: one sentence that says what came, what was expected, what to do.
        """
        from jakiro.loading import load_generator

        return load_generator(target, head, device, dtype, numerics)

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
            "notices": list(self.notices),
        }

    @property
    def profile(self) -> DeviceProfile | None:
        """This device's costs, measured on first use; None without a drafter."""
        if self._profile is None and self._measure is not None:
            self._profile = self._measure()
        return self._profile

    @property
    def max_prompt_tokens(self) -> int:
        return self.target.max_positions

    def stream(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        method: str = "jakiro",
        tree: TreeConfig | None = None,
        raw: bool = False,
    ) -> "Stream":
        """Reads the prompt and returns an iterator of steps whose `.trace` grows.

        Args:
            messages: a user message, or role/content dictionaries; with `raw` a bare text to continue.
            method: "jakiro", or "autoregressive" for plain decoding.
            tree: how trees are grown; ignored by plain decoding.

        Raises:
            ValueError: an empty or too long prompt, an unknown method, or no draft head for method "jakiro".
        """
        if method not in METHODS:
            raise ValueError(f"Unknown method {method!r}; choose one of {', '.join(METHODS)}.")
        if method == "jakiro" and self.drafter is None:
            raise ValueError("No draft head fits this model, so only plain decoding is available.")
        tree = ROOT_ONLY if method == "autoregressive" else tree or TreeConfig(policy="auto", nodes=64, depth=8)
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

    def __init__(self, streams: dict[str, "Stream"]) -> None:
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


class Stream:
    """One answer being decoded: an iterator of steps that owns caches, noise and text state, and ends with them."""

    def __init__(
        self,
        generator: JakiroGenerator,
        messages: Messages,
        sampling: SamplingParams,
        method: str,
        tree: TreeConfig,
        raw: bool,
    ) -> None:
        self._target, self._text = generator.target, generator.token_text
        self._sampling, self._tree_config = sampling, tree
        self._root_only = method == "autoregressive" or tree.root_only
        self._budget = None
        if tree.policy == "auto" and not self._root_only and generator.profile is not None:
            self._budget = TreeBudget(generator.profile, tree)
        prompt = encode_messages(generator.tokenizer, messages, raw_prompt=messages if raw else None)
        num_prompt_tokens, max_positions = len(prompt.token_ids), self._target.max_positions
        if num_prompt_tokens > max_positions:
            raise ValueError(
                f"Your prompt has {num_prompt_tokens:,} tokens; this model reads {max_positions:,}. "
                f"Shorten it by {num_prompt_tokens - max_positions:,}."
            )
        self._limit = min(sampling.max_new_tokens, max_positions - num_prompt_tokens + 1)
        self._limit_reason = "length" if self._limit == sampling.max_new_tokens else "context"
        self._decoder = IncrementalDecoder(self._text)
        self._noise = KeyedNoise(sampling.seed)
        device = self._target.device
        self._noise_rows = NoiseRows(self._noise, torch.arange(self._target.vocab_size, device=device))
        prompt_ids = torch.tensor(prompt.token_ids, device=device)

        clock = StepClock(device)
        widest = self._target.row_bucket(1 if self._root_only else tree.nodes)
        self._cache = self._target.new_cache(num_prompt_tokens + self._limit + widest)
        features, logits = self._target.prefill(prompt_ids, self._cache)
        first = self._choose_first(logits, num_prompt_tokens)
        first_token_id = int(first)
        prefill_ms = clock.total_ms()

        self._root = first
        self._session: DraftSession | None = None
        self._start_session = None
        if not self._root_only:
            ids = torch.cat([prompt_ids, first])
            drafter = generator.drafter
            self._start_session = lambda: drafter.start(ids, features, sampling, self._noise)
        self._committed = 1
        first_text = self._decoder.push([first_token_id])
        ended = self._end_reason_after([first_token_id])
        self._waiting_text = first_text
        self.trace = Trace(
            Header(
                method=method,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                bit_identical=self._target.bit_identical,
                messages=() if raw else tuple(as_messages(messages)),
                raw_prompt=messages if raw else None,
                num_prompt_tokens=num_prompt_tokens,
                target={"name": self._target.name, "sha256": self._target.sha256},
                head=generator.head if method == "jakiro" else None,
                device=str(device),
                dtype=str(self._target.dtype).removeprefix("torch."),
                numerics=self._target.numerics,
                device_profile=self._budget.profile.to_dict() if self._budget else {},
                versions=_versions(),
                sampling=_settings(sampling),
                tree=_settings(tree),
                first_token_id=first_token_id,
                first_piece=self._text.piece(first_token_id),
                first_text=first_text + (self._decoder.finish() if ended else ""),
                prefill_ms=prefill_ms,
                special_tokens={str(token_id): name for token_id, name in self._text.special_tokens.items()},
            ),
            end_reason=ended,
        )

    @property
    def finished(self) -> bool:
        return self.trace.end_reason is not None

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Step:
        if self.finished:
            raise StopIteration
        step = self._step()
        self.trace.steps.append(step)
        return step

    def close(self) -> None:
        """Stops; what was decoded stays in the trace."""
        if not self.finished:
            self.trace.end_reason = "stopped"
        self._session = self._start_session = None

    @torch.inference_mode()
    def _step(self) -> Step:
        clock = StepClock(self._target.device)
        choice = self._budget.choose() if self._budget else None
        tree = self._propose(choice)
        clock.mark()
        base = self._cache.length
        scores = self._target.score(tree, self._cache)
        clock.mark()
        verification = self._verify(tree, scores.mask, scores.logits, base)
        outcome = read_back(tree, verification)
        reread = outcome.too_short
        if reread:
            verification = self._verify(tree, scores.mask, scores.logits, base, self._target.vocab_size)
            outcome = read_back(tree, verification)
        committed_ids = self._commit(outcome, scores.features, base)
        reason = self._end_reason_after(committed_ids)
        text = self._waiting_text + self._decoder.push(committed_ids) + (self._decoder.finish() if reason else "")
        self._waiting_text = ""
        nodes = nodes_from(outcome, self._text)
        self.trace.end_reason = reason
        clock.mark()
        draft_ms, verify_ms, other_ms = clock.spans_ms()
        if choice is not None:
            self._budget.observe(choice, outcome.expected, len(outcome.accepted_path), other_ms)
        return Step(
            index=len(self.trace.steps),
            nodes=nodes,
            accepted_path=tuple(outcome.accepted_path),
            bonus_token_id=outcome.bonus_token_id,
            bonus_piece=self._text.piece(outcome.bonus_token_id),
            committed_ids=tuple(committed_ids),
            text=text,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            other_ms=other_ms,
            plan=self._plan(outcome, choice, reread),
        )

    def _propose(self, choice: Choice | None) -> DraftTree:
        if self._root_only or (choice is not None and choice.levels == 0):
            return DraftTree.root_only(self._root)
        if self._session is None:
            self._session = self._start_session()
            self._session.buckets = self._budget.buckets if self._budget else ()
        config = self._tree_config
        if choice is not None:
            config = replace(config, depth=choice.levels, nodes=choice.nodes)
        return self._session.propose(config)

    def _verify(
        self, tree: DraftTree, mask: Tensor, logits: Tensor, root_position: int, prefix_length: int = 0
    ) -> Verification:
        options = {"prefix_length": prefix_length} if prefix_length else {}
        return verify(tree, mask, logits, self._sampling, self._noise, root_position, self._noise_rows, **options)

    def _choose_first(self, logits: Tensor, position: int) -> Tensor:
        """The token after the prompt, (1,) int64, chosen by the same rule as every other."""
        positions = torch.tensor([position], device=logits.device)
        choice = choose(logits, self._sampling, self._noise, positions)
        if bool(choice.prefix_too_short):
            choice = choose(logits, self._sampling, self._noise, positions, prefix_length=logits.shape[-1])
        return choice.token_ids

    def _commit(self, outcome: Outcome, features: Tensor, base: int) -> list[int]:
        """Keeps the accepted rows, hands the new tokens to the drafter and returns them, cut where the answer ends."""
        kept = [0, *outcome.accepted_path]
        self._cache.keep(base, kept)
        new_ids = [*outcome.accepted_ids, outcome.bonus_token_id]
        self._root = torch.tensor(new_ids[-1:], device=self._target.device)
        if self._session is not None:
            ids = torch.tensor(new_ids, device=self._target.device)
            self._session.extend(ids, features[torch.tensor(kept, device=features.device)])
        committed_ids = new_ids[: self._limit - self._committed]
        stops = [index for index, token_id in enumerate(committed_ids) if token_id in self._target.stop_ids]
        if stops:
            committed_ids = committed_ids[: stops[0] + 1]
        self._committed += len(committed_ids)
        return committed_ids

    def _end_reason_after(self, committed_ids: list[int]) -> str | None:
        if committed_ids[-1] in self._target.stop_ids:
            return "eos"
        return self._limit_reason if self._committed >= self._limit else None

    def _plan(self, outcome: Outcome, choice: Choice | None, reread: bool) -> Plan:
        nodes, levels = len(outcome.token_ids), max(outcome.depths)
        if choice is not None:
            return Plan(levels, nodes, choice.why, choice.expected_tokens, choice.expected_ms, choice.curve, reread)
        if self._root_only:
            why = "Plain decoding: one token is checked at a time."
        else:
            candidates = "1 candidate" if nodes == 2 else f"{nodes - 1} candidates"
            why = f"Fixed tree: {candidates} over {levels} level{'s' if levels != 1 else ''}."
        return Plan(levels=levels, nodes=nodes, why=why, reread=reread)


def _settings(values: SamplingParams | TreeConfig) -> dict:
    return {name: getattr(values, name) for name in values.__dataclass_fields__}


def _versions() -> dict:
    from jakiro import __version__

    return {
        "jakiro": __version__,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }
