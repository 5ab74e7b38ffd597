"""Runs every method on every prompt, interleaved, and records each run; `report.py` computes the statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from jakiro.bench.peers import PEERS, STOCK, PeerAnswer, Peers
from jakiro.config import AUTOMATIC_TREE, About, SamplingParams, TreeConfig, setting
from jakiro.drafters.base import Method
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN, Methods
from jakiro.prompts import Question
from jakiro.trace import Trace, acceptance_by_depth

PLAIN_FAST = f"{PLAIN.name}-fast"
WARM_UP_TOKENS = 16
AUTO = "auto"
# Name that selects every registered method
ALL = "all"


@dataclass(frozen=True, slots=True)
class Lane:
    """One entry of the comparison: a method, and for tree methods the node budget or "auto"."""

    method: str
    nodes: int | str | None = None

    @property
    def name(self) -> str:
        if self.nodes is None:
            return self.method
        return f"{self.method} · {self.nodes}" + ("" if self.nodes == AUTO else " nodes")


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """Lanes and settings of a benchmark.

    Attributes:
        methods: names or aliases of drafting methods, "all" of them, or of `further_lanes`.
        nodes: node budgets that every tree method runs with; "auto" lets measured costs choose.
        tree: width and depth of the trees with a fixed budget; its own node budget is not used.
        known: the registered drafting methods.
        peers: other programs that can be measured.
    """

    methods: tuple[str, ...] = setting("Comma list, see `methods`, or all.", (PLAIN.name, DEFAULT.name, STOCK))
    temperatures: tuple[float, ...] = setting(About.TEMPERATURES, (0.0, 1.0))
    seeds: tuple[int, ...] = setting("Comma list; 0-9 is a range.", (0,))
    nodes: tuple[int | str, ...] = setting(
        "Comma list of tree sizes in nodes, one lane each; auto sizes trees by measured costs.",
        (AUTO, 24),
        words=(AUTO,),
    )
    max_new_tokens: int = setting(About.MAX_NEW_TOKENS, 128)
    top_p: float = setting(About.TOP_P, 1.0)
    top_k: int = setting(About.TOP_K, 0)
    repetition_penalty: float = setting("Above 1: tokens of prompt and answer become rarer.", 1.0)
    tree: TreeConfig = field(default_factory=TreeConfig)
    known: Methods = field(default=METHODS, repr=False, compare=False)
    peers: Peers = field(default_factory=lambda: PEERS, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = [lane for name in self.methods for lane in (self.known if name == ALL else (self._lane_method(name),))]
        object.__setattr__(self, "methods", tuple(named))
        for name in ("methods", "temperatures", "seeds", "nodes"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                shown = ", ".join(map(str, values)) or "none"
                raise ValueError(f"{name.capitalize()} must have at least one value and no value twice; got {shown}.")
        for temperature in self.temperatures:
            self.sampling(temperature, self.seeds[0])
        for nodes in self.nodes:
            self.tree_for(nodes)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(
            Lane(method, nodes)
            for method in self.methods
            for nodes in (self.nodes if method in self.known and self.known[method].drafts else (None,))
        )

    @property
    def further_lanes(self) -> tuple[str, ...]:
        """Names of the lanes that are no drafting methods."""
        return PLAIN_FAST, *self.peers

    @property
    def drafting_methods(self) -> list[Method]:
        """The selected drafting methods."""
        return [self.known[name] for name in self.methods if name in self.known]

    def to_dict(self) -> dict:
        """Return the settings in JSON's types."""
        names = [field.name for field in fields(self) if field.name not in ("known", "peers")]
        return {name: getattr(self, name) for name in names} | {"tree": asdict(self.tree)}

    def _lane_method(self, name: str) -> str:
        """Return a method's name, given the name or an alias.

        Raises:
            ValueError: the name is unknown.
        """
        if name in self.further_lanes:
            return name
        try:
            return self.known.named(name).name
        except ValueError:
            names = ", ".join((*self.known, *self.further_lanes))
            raise ValueError(f"Unknown method “{name}”; names are {names}.") from None

    def tree_for(self, nodes: int | str) -> TreeConfig:
        """Return the tree of a lane with this node budget."""
        if nodes == AUTO:
            sizes = {name: getattr(AUTOMATIC_TREE, name) for name in ("policy", "nodes", "depth")}
            return replace(self.tree, **sizes)
        return replace(self.tree, nodes=nodes)

    def sampling(self, temperature: float, seed: int) -> SamplingParams:
        return SamplingParams(
            temperature, self.top_p, self.top_k, seed, self.max_new_tokens, repetition_penalty=self.repetition_penalty
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Result of one lane on one turn; counts are sums over its steps.

    Attributes:
        seconds: decode time, without the prefill, with drafting.
        kept, tested: per depth from 1 on, steps that accepted there and steps that had a candidate there.
        comparable: whether equal settings must give equal token ids; not so for transformers' own sampling.
        prefill_ms: time of the prefill; None if it was not measured.
    """

    question_id: str
    category: str
    turn: int
    lane: Lane
    temperature: float
    seed: int
    token_ids: tuple[int, ...]
    seconds: float
    num_steps: int
    num_accepted: int
    kept: tuple[int, ...] = ()
    tested: tuple[int, ...] = ()
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    comparable: bool = True
    prefill_ms: float | None = None

    @property
    def decoded(self) -> int:
        """Number of tokens decoded in `seconds`: all but the first, which the prefill chose."""
        return len(self.token_ids) - 1

    @property
    def tokens_per_second(self) -> float | None:
        return self.decoded / self.seconds if self.seconds > 0 and self.decoded > 0 else None

    @property
    def key(self) -> tuple:
        """Prompt, turn and settings; runs of two lanes are compared if these are equal."""
        return (self.question_id, self.turn, self.temperature, self.seed)

    def to_dict(self) -> dict:
        return asdict(self) | {"lane": self.lane.name}


def _identity(lane: Lane, sampling: SamplingParams, question: Question, turn: int) -> dict:
    """Return the fields of a `Run` that identify it."""
    identity = {"question_id": question.question_id, "category": question.category, "turn": turn}
    return identity | {"lane": lane, "temperature": sampling.temperature, "seed": sampling.seed}


def run_of(trace: Trace, *identity) -> Run:
    """Return a finished trace as a run; `identity` is its lane, sampling, question and turn."""
    depths = acceptance_by_depth(trace.steps)
    return Run(
        **_identity(*identity),
        token_ids=tuple(trace.token_ids),
        seconds=trace.decode_seconds,
        num_steps=len(trace.steps),
        num_accepted=sum(len(step.accepted_path) for step in trace.steps),
        kept=tuple(kept for kept, _ in depths),
        tested=tuple(tested for _, tested in depths),
        draft_ms=sum(step.draft_ms for step in trace.steps),
        verify_ms=sum(step.verify_ms for step in trace.steps),
        other_ms=sum(step.other_ms for step in trace.steps),
        prefill_ms=trace.header.prefill_ms,
    )


def run_of_peer(answer: PeerAnswer, *identity) -> Run:
    """Return another program's answer as a run, with the `identity` of `run_of`; its steps are unknown."""
    timed = {"seconds": answer.seconds, "num_steps": 0, "num_accepted": 0}
    return Run(**_identity(*identity), token_ids=tuple(answer.token_ids), **timed, comparable=answer.comparable)


def loadable(generator, settings: BenchSettings) -> tuple[BenchSettings, list[str]]:
    """Return the settings without the methods that cannot be loaded, and one reason for each of these.

    Raises:
        ValueError: no method can be loaded.
    """
    names, reasons = [], []
    for name in settings.methods:
        try:
            if name in settings.known:
                generator.drafter(settings.known[name])
            names.append(name)
        except (ValueError, OSError) as error:
            reasons.append(f"{name} takes no part: {error}")
    if not names:
        raise ValueError(" ".join(reasons))
    return replace(settings, methods=tuple(names)), reasons


def head_names(generator, settings: BenchSettings) -> dict[str, str]:
    """Return the names of the heads in use, by the title of the first method that drafts with them."""
    titles = {}
    for method in settings.drafting_methods:
        info = generator.drafter(method).info
        if info is not None:
            titles.setdefault(info["name"], method.title)
    return {title: name for name, title in titles.items()}


class Bench:
    """Runs the lanes over the questions.

    Args:
        generator: a JakiroGenerator for plain decoding and the drafting methods.
        settings: lanes and settings.
        fast_generator: a generator with numerics="fast", for the lane "autoregressive-fast".
        peers: runners of other programs by name, see `Peers`.
    """

    def __init__(
        self, generator, settings: BenchSettings, fast_generator=None, peers: Mapping[str, Callable] | None = None
    ):
        self._generator, self._fast, self._peers, self.settings = generator, fast_generator, peers or {}, settings

    def warm_up(self, question: Question) -> None:
        """Run every lane once without measuring, so that no lane includes one-time costs."""
        short = replace(self.settings, max_new_tokens=min(WARM_UP_TOKENS, self.settings.max_new_tokens))
        for lane in self.settings.lanes:
            messages = [{"role": "user", "content": question.turns[0]}]
            self._run_lane(lane, messages, short.sampling(self.settings.temperatures[-1], 0), question, 0)

    def runs(self, questions: Sequence[Question], number_of_first: int = 0) -> Iterator[Run]:
        """Yield every run. The lanes take turns on each prompt, and a different one goes first each time.

        Args:
            questions: the prompts.
            number_of_first: number of prompts before these, for a benchmark that is run in parts.
        """
        for number, question in enumerate(questions, start=number_of_first):
            for temperature in self.settings.temperatures:
                for seed in self.settings.seeds:
                    yield from self._conversation(number, question, temperature, seed)

    def _conversation(self, number: int, question: Question, temperature: float, seed: int) -> Iterator[Run]:
        lanes = self.settings.lanes
        sampling = self.settings.sampling(temperature, seed)
        messages: list[dict] = []
        for turn, content in enumerate(question.turns):
            messages.append({"role": "user", "content": content})
            answers = {}
            for offset in range(len(lanes)):
                lane = lanes[(number + offset) % len(lanes)]
                run, answers[lane] = self._run_lane(lane, messages, sampling, question, turn)
                yield run
            # Every lane continues the first lane's answer, so that all read the same history
            messages.append({"role": "assistant", "content": answers[lanes[0]]})

    def _run_lane(self, lane: Lane, messages, sampling: SamplingParams, question: Question, turn: int):
        if lane.method in self._peers:
            answer = self._peers[lane.method](messages, sampling)
            return run_of_peer(answer, lane, sampling, question, turn), answer.text
        is_fast = lane.method == PLAIN_FAST
        generator, method = (self._fast, PLAIN.name) if is_fast else (self._generator, lane.method)
        tree = None if lane.nodes is None else self.settings.tree_for(lane.nodes)
        trace = generator.run(messages, sampling, method=method, tree=tree)
        return run_of(trace, lane, sampling, question, turn), trace.text
