"""What an answer begins with: the prompt read, the first token chosen, the draft begun, the trace opened."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.grammar import GrammarRule
from jakiro.core.noise import KeyedNoise
from jakiro.core.rule import TokenRule, rule_for
from jakiro.core.sampling import choose
from jakiro.drafting.base import Drafter, DraftSession, Method, Prompt
from jakiro.engine.answer_text import AnswerText
from jakiro.engine.budget import Size, TreeBudget
from jakiro.engine.clock import StepClock
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.prefix import GrowingPrefix, OwnPrefixes, Prefix
from jakiro.engine.runner import Runner
from jakiro.system import package_versions
from jakiro.target.model import TargetModel
from jakiro.text import TokenText, as_messages, encode_messages
from jakiro.trace import Header, Trace

Messages = str | Sequence[dict]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: messages, or with `raw` a bare text to continue, and the settings."""

    messages: Messages
    sampling: SamplingParams
    tree: TreeConfig
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Setup:
    """What an answer is decoded with.

    Attributes:
        profile: this device's costs under the method; None where trees do not choose their own size.
        sizes: those that they choose from.
        device_name: in words.
        borrow: (request, prompt tokens) to a runner for this answer, and the function that gives it back. The request
            asks for no more tokens than the target has positions for.
        prefixes: where to look for what the prompt begins with, and where to keep what is read; None for neither.
    """

    target: TargetModel
    token_text: TokenText
    method: Method
    drafter: Drafter
    profile: DeviceProfile | None
    sizes: tuple[Size, ...]
    device_name: str
    borrow: Callable[[Request, int], tuple[Runner, Callable[[], object]]]
    prefixes: OwnPrefixes | None = None


@dataclass(slots=True)
class AnswerState:
    """An answer whose prompt was read and whose first token was chosen.

    Attributes:
        tree: the bounds of its trees.
        budget: chooses each tree's size; None for trees of a fixed size.
        release: gives the runner back.
        rule: what the settings say about tokens; None where they say nothing.
        session: None for plain decoding.
        text: the answer's tokens so far and their text.
        prefix: what the caches hold, for later prompts; None where none is kept.
        trace: without steps; its end is known where the first token is the last.
        draft_ms: drafting before the first step, which counts as that step's.
    """

    tree: TreeConfig
    budget: TreeBudget | None
    runner: Runner
    release: Callable[[], object]
    rule: TokenRule | None
    session: DraftSession | None
    text: AnswerText
    prefix: GrowingPrefix | None
    trace: Trace
    draft_ms: float


def prepare(setup: Setup, request: Request) -> AnswerState:
    """Reads the prompt and chooses the first token.

    Raises:
        ValueError: nothing was asked, or the target cannot read the prompt.
    """
    target = setup.target
    prompt = encode_messages(target.tokenizer, request.messages, raw_prompt=request.messages if request.raw else None)
    _refuse_unknown(prompt, target.vocab_size, setup.token_text)
    limit = max_answer_tokens(len(prompt), request.sampling.max_new_tokens, target.max_positions)
    budget = None if setup.profile is None else TreeBudget(setup.profile, setup.sizes)
    rule = _rule_of(setup, request.sampling)
    # Size the runner by the real limit; the wish may be far longer
    within = replace(request, sampling=replace(request.sampling, max_new_tokens=limit))
    runner, release = setup.borrow(within, len(prompt))
    try:
        return _begin(setup, request, prompt, limit, budget, rule, runner, release)
    except BaseException:
        release()
        raise


def _begin(
    setup: Setup,
    request: Request,
    prompt: list[int],
    limit: int,
    budget: TreeBudget | None,
    rule: TokenRule | None,
    runner: Runner,
    release: Callable[[], object],
) -> AnswerState:
    target, sampling, tree = setup.target, request.sampling, request.tree
    clock = StepClock(target.device)
    prompt_ids = torch.tensor(prompt, device=target.device)
    prefixes = setup.prefixes if runner.max_reusable_tokens else None
    earlier = prefixes and prefixes.find(target, prompt)
    features, logits = _read(runner, prompt_ids, earlier)
    if rule is not None:
        rule.start(prompt)
        logits = rule.adjust(logits, None, None)
    first = _choose_first(logits, sampling, len(prompt))
    first_token_id = int(first)
    clock.end("other")
    runner.begin(first, rule)
    known_ids, session = [*prompt, first_token_id], None
    if not tree.root_only:
        head_rows = earlier.head_rows if earlier else {}
        session = runner.session(setup.drafter, Prompt(known_ids, torch.cat([prompt_ids, first]), features, head_rows))
        clock.end("draft")
    limit_reason = "length" if limit == sampling.max_new_tokens else "context"
    text = AnswerText(setup.token_text, target.stop_ids, sampling.stop, limit, limit_reason)
    text.take([first_token_id])
    if rule is not None:
        rule.advance([first_token_id], first)
    profile = {"device": setup.device_name} | (budget.profile.to_dict() if budget else {})
    header = Header(
        method=setup.method.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        bit_identical=target.bit_identical and target.rounds_alike(tree.nodes),
        messages=() if request.raw else tuple(as_messages(request.messages)),
        raw_prompt=request.messages if request.raw else None,
        num_prompt_tokens=len(prompt),
        target={"name": target.name, "sha256": target.sha256},
        drafter=setup.drafter.info,
        proposers=tuple(asdict(proposer) for proposer in setup.drafter.proposers),
        device=str(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        numerics=target.numerics,
        device_profile=profile,
        versions=package_versions("jakiro", "torch", "transformers"),
        sampling=sampling.to_dict(),
        tree=asdict(tree),
        first_token_id=first_token_id,
        first_piece=setup.token_text.piece(first_token_id),
        first_text=text.text(),
        prefill_ms=clock.ms["other"],
        num_reused_tokens=len(earlier.token_ids) if earlier else 0,
        special_tokens={str(token_id): name for token_id, name in setup.token_text.special_tokens.items()},
    )
    return AnswerState(
        tree=replace(tree, width=1) if target.chains_only else tree,
        budget=budget,
        runner=runner,
        release=release,
        rule=rule,
        session=session,
        text=text,
        prefix=GrowingPrefix(prefixes, target, known_ids, features) if prefixes else None,
        trace=Trace(header, end_reason=text.end_reason),
        draft_ms=clock.ms["draft"],
    )


def _rule_of(setup: Setup, sampling: SamplingParams) -> TokenRule | None:
    """What the settings say about tokens, see `rule_for`."""
    target, grammar = setup.target, None
    if sampling.grammar is not None:
        grammar = GrammarRule(sampling.grammar, setup.token_text, target.vocab_size, target.stop_ids)
    return rule_for(sampling, target.vocab_size, target.device, grammar)


def max_answer_tokens(num_prompt_tokens: int, wanted: int, max_positions: int) -> int:
    """The most tokens the answer may have.

    Args:
        wanted: as many were asked for. max_positions: as many tokens the model reads.

    Raises:
        ValueError: the prompt is longer than the model reads.
    """
    if num_prompt_tokens > max_positions:
        raise ValueError(
            f"Your prompt has {num_prompt_tokens:,} tokens; this model reads {max_positions:,}. "
            f"Shorten it by {num_prompt_tokens - max_positions:,}."
        )
    return min(wanted, max_positions - num_prompt_tokens + 1)


def _refuse_unknown(prompt: list[int], known: int, token_text: TokenText) -> None:
    """Raises ValueError where the tokenizer gave a token that the model has no embedding for."""
    unknown = next((token_id for token_id in prompt if token_id >= known), None)
    if unknown is not None:
        name = token_text.piece(unknown).decode(errors="replace")
        raise ValueError(
            f"Your prompt holds “{name}”, token {unknown:,} of the tokenizer; this model knows {known:,} tokens. "
            "Leave it out, or resize the model's embedding to its tokenizer."
        )


def _read(runner: Runner, prompt_ids: Tensor, earlier: Prefix | None) -> tuple[Tensor, Tensor]:
    """Features of the whole prompt and the last position's logits; what was read earlier is not read again."""
    if earlier is None:
        return runner.prefill(prompt_ids)
    runner.load_prefix(earlier.rows)
    features, logits = runner.prefill(prompt_ids[len(earlier.token_ids) :])
    return torch.cat([earlier.features, features]), logits


def _choose_first(logits: Tensor, sampling: SamplingParams, position: int) -> Tensor:
    """The token after the prompt, (1,) int64, chosen by the same rule as every other."""
    positions = torch.tensor([position], device=logits.device)
    noise = KeyedNoise(sampling.seed)
    choice = choose(logits, sampling, noise, positions)
    if bool(choice.needs_full_sort):
        choice = choose(logits, sampling, noise, positions, prefix_length=logits.shape[-1])
    return choice.token_ids
