"""What an answer begins with: the prompt read, the first token chosen, the draft begun, the trace opened."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.grammar import GrammarRule
from jakiro.core.logits_processors import TokenRule, rule_for
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import DraftTree
from jakiro.core.verify import verify
from jakiro.decode.clock import StepClock
from jakiro.decode.completion_text import AnswerText
from jakiro.decode.device_profile import DeviceProfile
from jakiro.decode.logprobs import ranked, scored
from jakiro.decode.prefix_cache import GrowingPrefix, Prefix
from jakiro.decode.request import Request
from jakiro.decode.runner import Runner
from jakiro.decode.tree_budget import Size, TreeBudget
from jakiro.drafters.base import Context, Drafter, Method
from jakiro.models.target import TargetModel
from jakiro.system import package_versions
from jakiro.text import TokenText
from jakiro.trace import Header, Trace


@dataclass(frozen=True, slots=True)
class Setup:
    """What an answer is decoded with.

    Attributes:
        profile: this device's costs under the method; None where trees do not choose their own size.
        sizes: those that they choose from.
        device_name: in words.
        borrow: a request, for no more tokens than the target has positions for, to a runner for this answer, and the
            function that gives it back.
    """

    target: TargetModel
    token_text: TokenText
    method: Method
    drafter: Drafter
    profile: DeviceProfile | None
    sizes: tuple[Size, ...]
    device_name: str
    borrow: Callable[[Request], tuple[Runner, Callable[[], object]]]


class Answer:
    """An answer whose prompt was read and whose first token was chosen; `Stream` goes on with it.

    Raises:
        ValueError: the target cannot read the prompt, or the beginning of the answer ends it.

    Attributes:
        trace: without steps; its end is known where the first token is the last.
    """

    def __init__(self, setup: Setup, request: Request) -> None:
        self._setup, self._target, self._sampling = setup, setup.target, request.sampling
        _refuse_unknown(request.prompt.ids, self._target.vocab_size, setup.token_text)
        # Size the runner by the real limit; the wish may be far longer
        within = request.within(self._target.max_positions)
        limit = within.sampling.max_new_tokens
        limit_reason = "length" if limit == request.sampling.max_new_tokens else "context"
        stop_ids = () if request.sampling.ignore_eos else self._target.stop_ids
        stops = request.sampling.stop
        self._text = AnswerText(setup.token_text, stop_ids, stops, limit, limit_reason)
        self._text.take(list(request.prompt.answer_ids))
        if self._text.end_reason is not None:
            reason = self._text.end_reason
            raise ValueError(f"The beginning of the answer ends it ({reason}); leave out its last tokens.")
        self._rule = _rule_of(setup, request)
        self._runner, release = setup.borrow(within)
        self._release = weakref.finalize(self, release)
        self._release.atexit = False
        try:
            self._open(request)
        except BaseException:
            self._release()
            raise

    def _open(self, request: Request) -> None:
        """Reads the prompt, chooses the first token and begins the draft."""
        setup, target, runner, rule, text = self._setup, self._target, self._runner, self._rule, self._text
        prompt, sampling, tree = request.prompt, request.sampling, request.tree
        budget = None if setup.profile is None else TreeBudget(setup.profile, setup.sizes)
        clock = StepClock(target.device)
        prompt_ids = torch.tensor(prompt.ids, device=target.device)
        prefixes = request.prefixes if runner.max_reusable_tokens else None
        earlier = prefixes and prefixes.find(target, prompt.ids)
        features, logits = _read(runner, prompt_ids, earlier)
        first, chosen_from = _choose_first(logits, rule, sampling, prompt_ids)
        first_token_id = int(first)
        clock.end("other")
        runner.begin(first, rule)
        known_ids, session = [*prompt.ids, first_token_id], None
        if not tree.root_only:
            head_rows = earlier.head_rows if earlier else {}
            ids = torch.cat([prompt_ids, first])
            context = Context(known_ids, ids, features, head_rows, prompt.prediction_ids)
            session = runner.session(setup.drafter, context)
            clock.end("draft")
        text.take([first_token_id])
        if rule is not None:
            rule.advance([first_token_id], first)
        wanted = sampling.logprobs
        first_logprobs = () if wanted is None else scored(logits, [first_token_id], wanted, setup.token_text)[0]
        alternatives = ()
        if sampling.record_alternatives:
            alternatives = ranked(chosen_from, [first_token_id], sampling.temperature, setup.token_text)
        given = prompt.answer_ids
        profile = {"device": setup.device_name} | (budget.profile.to_dict() if budget else {})
        header = Header(
            method=setup.method.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            bit_identical=target.bit_identical and target.rounds_alike(tree.nodes),
            messages=prompt.messages,
            raw_prompt=prompt.raw,
            template_arguments=prompt.told,
            num_prompt_tokens=prompt.answer_start,
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
            first_logprobs=first_logprobs,
            first_alternatives=alternatives,
            prefix_ids=given,
            prefix_pieces=tuple(map(setup.token_text.piece, given)),
            forced=tuple((place, given[place]) for place in prompt.forced),
            num_reused_tokens=len(earlier.token_ids) if earlier else 0,
            special_tokens={str(token_id): name for token_id, name in setup.token_text.special_tokens.items()},
        )
        # Bounds of its trees, and what chooses each tree's size; None for trees of a fixed size
        self._tree, self._budget = replace(tree, width=1) if target.chains_only else tree, budget
        # None for plain decoding
        self._session = session
        # What the caches hold, for later prompts; None where none is kept
        self._prefix = GrowingPrefix(prefixes, target, known_ids, features) if prefixes else None
        self.trace = Trace(header, end_reason=text.end_reason)
        # Drafting before the first step, which counts as that step's
        self._draft_ms = clock.ms["draft"]


def _rule_of(setup: Setup, request: Request) -> TokenRule | None:
    """What the settings say about tokens, see `rule_for`; the beginning of the answer counts as its own.

    Raises:
        ValueError: a grammar is none, or the beginning of the answer is outside it.
    """
    target, prompt, grammar = setup.target, request.prompt, request.sampling.grammar
    if grammar is not None:
        grammar = GrammarRule(grammar, setup.token_text, target.vocab_size, target.stop_ids)
    rule = rule_for(request.sampling, target.vocab_size, target.device, grammar, target.stop_ids)
    if rule is not None:
        rule.start(prompt.ids[: prompt.answer_start])
        rule.advance(prompt.answer_ids, torch.tensor(prompt.answer_ids, dtype=torch.int64, device=target.device))
    return rule


def _refuse_unknown(prompt: Sequence[int], known: int, token_text: TokenText) -> None:
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


def _choose_first(
    logits: Tensor, rule: TokenRule | None, sampling: SamplingParams, prompt_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """The token after the prompt, (1,) int64, and the logits that it was chosen from, as the rule left them.

    It is the choice after a tree that is the prompt's last token alone.
    """
    tree, position, noise = DraftTree.root_only(prompt_ids[-1:]), len(prompt_ids) - 1, KeyedNoise(sampling.seed)
    mask = torch.ones((1, 1), dtype=torch.bool, device=logits.device)
    logits = logits if rule is None else rule.adjust(logits, tree, mask)
    noise_rows = None
    if sampling.unfiltered:
        noise_rows = noise.over(torch.arange(logits.shape[-1], device=logits.device)).rows(position + 1, 1)
    found = verify(tree, mask, logits, sampling, noise, position, noise_rows)
    if bool(found.needs_full_sort):
        found = verify(tree, mask, logits, sampling, noise, position, noise_rows, logits.shape[-1])
    return found.choices, logits
