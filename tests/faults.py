"""Known kinds of fault, each planted in a place that is found by its name; `tests/mutants.py` plants them.

Each once passed the whole suite, or could. At least one of the tests that it names must fail. Of several faults of one
kind one stands here.
"""

import asyncio
import contextlib
import functools
import inspect
import itertools
import math
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake.

    Attributes:
        place: "module:name.of.attribute" of Python, or "file.c:function" of the C files.
        wrong: from what is there today to what the mistake makes of it; of C, the function's body.
        tests: a file, or ids of tests in it, as pytest takes them; one of them must fail.
    """

    name: str
    place: str
    wrong: Callable | str
    tests: tuple[str, ...]


def value(wrong: object) -> Callable:
    """Another value, or another function of the same arguments."""
    return lambda right: wrong


def nothing(right: Callable) -> Callable:
    """A function that does nothing."""
    return lambda *arguments, **options: None


def line(old: str, new: str) -> Callable:
    """A function or method in whose text one place reads otherwise: a bound, a sign, a key, a lock."""

    def wrong(right):
        text = textwrap.dedent(inspect.getsource(right))
        assert text.count(old) == 1, f"{right.__qualname__} has {text.count(old)} places that read {old}"
        made = {}
        # In the module itself, whose names may change while tests run
        code = compile(text.replace(old, new), inspect.getsourcefile(right), "exec")
        exec(code, inspect.unwrap(right).__globals__, made)
        return made[right.__name__]

    return wrong


def script(file: str, old: str, new: str) -> Callable:
    """The same of a module of `assets/web/`, as `app.page.web` joins it."""

    def wrong(joined):
        text = (ROOT / "assets" / "web" / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {text.count(old)} places that read {old}"
        return lambda name, text, *more: joined(name, text.replace(old, new) if name == file else text, *more)

    return wrong


CLOCK, RECORDED = "tests/engine/test_clock.py", "tests/engine/test_recorder.py"
BUDGETED, MEASURED = "tests/engine/test_budget.py", "tests/engine/test_costs.py"
PREFIXED, CHAINED = "tests/engine/test_prefix.py", "tests/drafting/test_merged.py"
GROWN, COMPILED = "tests/drafting/test_growing.py", "tests/kernels/test_compiled.py"
CAPTURED, MEMORY = "tests/graphs/test_capture.py", "tests/graphs/test_memory.py"
SCARCE, SECTIONS = "tests/graphs/test_out_of_memory.py", "tests/kernels/test_sections.py"
TOKENIZED, DAMAGED = "tests/zoo/test_gguf_tokenizer.py", "tests/zoo/test_damaged_folders.py"
CONFORMING, ERRORS = "tests/methods/test_conformance.py", "tests/test_errors.py"
REFUSED = "tests/api/test_refusals.py"


def _in_another_part(end):
    return lambda clock, part: end(clock, "other" if part == "draft" else part)


def _learning_from_any_tree(learn):
    return lambda stream, plan, proposal, *more: learn(stream, plan, replace(proposal, note=None), *more)


def _of_the_row_before(evidence):
    def wrong(*arguments):
        found, proposers = evidence(*arguments)
        return {name: matrix.roll(1, 0) for name, matrix in found.items()}, proposers

    return wrong


def _of_the_next_row(scored):
    return lambda logits, *more: scored(logits.roll(-1, 0), *more)


async def _never(receive):
    await asyncio.Event().wait()


def _without_its_branch(at):
    return lambda ranking, depth, contrastive=False: at(ranking, depth)


def _a_row_too_many(first):
    def wrong(prefix, length):
        rows = {head: rows[..., :length, :] for head, rows in prefix.head_rows.items()}
        return replace(first(prefix, length), head_rows=rows)

    return wrong


def _of_anybody(of):
    return lambda store, owner, target: [each for each in store._kept if each.target is target]


def _narrower(interval):
    def wrong(*arguments):
        found = interval(*arguments)
        return found and (found[0] + (found[1] - found[0]) / 8, found[1])

    return wrong


def _a_tie_is_kept(warp):
    def wrong(logits, sampling, *more):
        if isinstance(sampling.top_p, float) and sampling.top_p < 1:
            sampling = replace(sampling, top_p=math.nextafter(sampling.top_p, 2))
        return warp(logits, sampling, *more)

    return wrong


def _reading_the_host(accepted):
    return lambda mask, depths, right: accepted(mask, depths, right) + 0 * int(depths[0])


# Near each rule that a fault of one line once passed by: (module, the test that notices, (name, place, what it reads,
# what the fault makes of it) …)
LINES = (
    ("jakiro.core.sampling",
     "tests/core/test_sampling.py::test_ties_with_the_last_of_the_top_k_that_go_on_after_the_prefix_are_all_kept_under_top_p_too",
     (
        ("ties-at-the-last-of-the-top-k", "warp", "in_top_k = values >= floor", "in_top_k = values > floor"),
    )),
    ("jakiro.core.sampling", "tests/core/test_sampling.py::test_the_last_of_the_top_k_is_settled_by_one_token_more", (
        ("top-k-one-too-many", "warp", "values[:, top_k - 1 : top_k]", "values[:, top_k : top_k + 1]"),
        ("top-k-looks-no-further", "warp", "max(prefix_length, top_k + 1)", "max(prefix_length, top_k)"),
        ("a-prefix-of-exactly-top-k", "prefix_for", "length <= top_k", "length < top_k"),
    )),
    ("jakiro.core.sampling", "tests/core/test_sampling.py::test_top_p_is_a_share_of_what_top_k_leaves", (
        ("top-p-counts-a-token-itself", "warp", "probs.cumsum(-1) - probs", "probs.cumsum(-1)"),
        ("top-p-of-all-within-top-k", "warp", "scaled if top_k is None else kept", "scaled"),
        ("the-looser-of-two-floors", "warp", "torch.maximum(floor, boundary)", "torch.minimum(floor, boundary)"),
    )),
    ("jakiro.core.sampling",
     "tests/core/test_sampling.py::test_min_p_is_a_share_of_what_the_best_has_at_this_temperature",
     (
        ("min-p-above-the-best", "warp", "values[:, :1] + log_min_p", "values[:, :1] - log_min_p"),
        ("hot-is-not-tempered", "tempered", "sampling.temperature == 1", "sampling.temperature >= 1"),
    )),
    ("jakiro.core.sampling",
     "tests/core/test_sampling.py::test_a_flat_row_makes_a_short_prefix_too_short_and_a_peaked_row_does_not",
     (
        ("a-tie-that-goes-on-is-not-seen", "warp", "reached = (last >= (", "reached = (last > ("),
    )),
    ("jakiro.core.sampling", "tests/core/test_sampling.py::test_the_lowest_id_wins_a_tie_when_sampling_too", (
        ("the-highest-id-wins", "choose", "logits.shape[-1]).amin(-1)", "-1).amax(-1)"),
    )),
    ("jakiro.core.sampling", "tests/core/test_sampling.py::test_a_row_takes_the_noise_of_its_level", (
        ("noise-of-the-first-level", "choose", "noise_rows[levels]", "noise_rows[levels * 0]"),
    )),
    ("jakiro.core.sampling",
     "tests/core/test_sampling.py::test_the_lowest_id_wins_and_the_margin_is_the_lead_wherever_the_two_best_lie",
     (
        ("the-further-runner-up", "_best_and_gap", "torch.maximum(elsewhere", "torch.minimum(elsewhere"),
    )),
    ("jakiro.core.sampling", "tests/core/test_sampling.py::test_the_only_token_leads_over_none", (
        ("a-lead-over-nothing", "_gap", "< 2", "< 1"),
    )),
    ("jakiro.engine.prefix",
     "tests/engine/test_prefix.py::test_whoever_reads_or_changes_what_is_kept_waits_for_who_changes_it",
     (
        ("found-without-the-lock", "OwnPrefixes.find", "with self.store._lock:", "if True:"),
        ("added-without-the-lock", "OwnPrefixes.add", "with self.store._lock:", "if True:"),
        ("dropped-without-the-lock", "PrefixStore.drop", "with self._lock:", "if True:"),
    )),
    ("jakiro.engine.prefix",
     "tests/engine/test_prefix.py::test_a_longer_text_takes_the_place_of_its_beginning_and_keeps_the_longest_rows_of_each_head",
     (
        ("the-last-token-is-not-read-again", "OwnPrefixes.find", "prompt[:-1]", "prompt"),
        ("the-shortest-prefix", "OwnPrefixes.find", "= max(zip(", "= min(zip("),
        ("its-beginnings-stay", "OwnPrefixes.add", "_begins(token_ids, each.", "_begins(token_ids[:1], each."),
        ("the-shorter-rows", "_longest", ".shape[-2] < rows", ".shape[-2] > rows"),
    )),
    ("jakiro.engine.prefix", "tests/engine/test_prefix.py::test_an_owner_keeps_few_texts_those_used_last", (
        ("used-last-goes-first", "OwnPrefixes.find", "_kept.append(replace(", "_kept.insert(0, replace("),
        ("a-text-too-many", "PrefixStore._trim", "[:-MOST_TEXTS]", "[: -MOST_TEXTS - 1]"),
    )),
    ("jakiro.engine.prefix",
     "tests/engine/test_prefix.py::test_what_fills_the_store_to_the_byte_stays_and_the_oldest_goes_for_more",
     (
        ("the-newest-goes-first", "PrefixStore._trim", "_kept.pop(0)", "_kept.pop()"),
        ("a-full-store-is-too-full", "PrefixStore._trim", "total > self.max_bytes", "total >= self.max_bytes"),
    )),
    ("jakiro.engine.prefix", "tests/engine/test_prefix.py::test_who_left_stays_forgotten_when_another_leaves", (
        ("who-left-comes-back", "PrefixStore.drop", "part.dropped or part.owner == owner", "part.owner == owner"),
    )),
    ("jakiro.engine.prefix",
     "tests/engine/test_prefix.py::test_what_nobody_used_for_long_is_forgotten_when_the_next_one_asks",
     (
        ("kept-though-unused", "PrefixStore.of", "each.used >= oldest", "each.used <= oldest"),
    )),
    ("jakiro.engine.prefix",
     "tests/engine/test_prefix.py::test_of_an_answer_all_is_kept_but_its_last_token_which_nobody_has_read",
     (
        ("a-token-that-was-not-read", "GrowingPrefix.keep", "len(self.token_ids) - 1", "len(self.token_ids)"),
    )),
    ("jakiro.engine.stream",
     "tests/engine/test_sizes.py::test_each_step_is_planned_for_the_text_before_it_and_copies_alone_are_a_chain",
     (
        ("trees-without-the-prompt", "Stream._choose_size", "self.trace.header.num_prompt_tokens + ", ""),
        ("trees-of-one-token-more", "Stream._choose_size", "num_tokens - 1", "num_tokens"),
        ("chains-beyond-the-tree", "Stream._propose", "= min(self._tree.nodes", "= max(self._tree.nodes"),
        ("a-token-more-is-expected", "Stream._propose", "plan.expected_tokens - 1", "plan.expected_tokens"),
    )),
    ("jakiro.engine.stream",
     "tests/engine/test_clock.py::test_own_time_is_the_time_that_passed_and_drafting_pays_for_all_that_only_drafting_does",
     (
        ("the-first-draft-is-free", "Stream._step", 'clock.ms["draft"] + self._draft_ms', 'clock.ms["draft"]'),
        ("recording-that-adds-up", "Stream._step", 'clock.ms["other"] - before', 'clock.ms["other"] + before'),
    )),
    ("jakiro.engine.stream",
     "tests/engine/test_logprobs.py::test_logprobs_are_a_stock_models_own_before_temperature_filters_and_rules",
     (
        ("logprobs-of-another-node", "Stream._logprobs", "[0, *outcome.accepted_path]", "[*outcome.accepted_path, 0]"),
    )),
    ("app.serving.turns", "tests/app/serving/test_limits.py::test_the_mean_of_the_answers_before_is_a_running_one", (
        ("a-mean-that-only-grows", "Turns._finished", "(seconds - old)", "seconds"),
        ("a-mean-that-runs-away", "Turns._finished", "(seconds - old)", "(old - seconds)"),
    )),
    ("app.serving.turns",
     "tests/app/serving/test_limits.py::test_a_full_queue_refuses_and_a_place_left_is_free_again",
     (
        ("one-more-may-wait", "Turns.take", "len(self._waiting) >= ", "len(self._waiting) > "),
    )),
    ("app.serving.turns", "tests/app/serving/test_limits.py::test_one_address_cannot_take_the_whole_queue", (
        ("one-more-of-a-group", "Turns.take", "own >= ", "own > "),
    )),
    ("app.serving.turns",
     "tests/app/serving/test_limits.py::test_everybodys_first_answer_comes_before_anybodys_second",
     (
        ("a-second-in-the-same-round", "Turns._next_round", "get(group, -1) + 1", "get(group, -1)"),
        ("rounds-backwards", "Turns._order", "turn.round", "-turn.round"),
    )),
    ("app.serving.turns", "tests/app/serving/test_limits.py::test_with_two_places_who_waits_counts_answers_by_twos", (
        ("a-round-too-long", "Turns._sentence", "(position - 1) // places", "position // places"),
        ("the-next-one-s-time", "Turns._sentence", "rest[(position - 1) % places]", "rest[position % places]"),
        ("numbers-that-flicker", "_rounded", "seconds < 10", "seconds < 60"),
    )),
    ("app.serving.turns", "tests/app/serving/test_limits.py::test_one_more_than_the_device_has_places_for_waits", (
        ("two-on-one-device", "Turn.__enter__", "<= turns._places()", "<= turns._places() + 1"),
    )),
    ("app.serving.turns", "tests/app/serving/test_limits.py::test_who_waits_hears_whether_somebody_waits_behind", (
        ("the-last-is-told-to-hurry", "Turn.__enter__", "position < len(", "position <= len("),
    )),
    ("jakiro.training.validation",
     "tests/training/test_validation.py::test_the_contrastive_branch_is_read_two_positions_back_and_the_main_one_back",
     (
        ("contrastive-of-the-position-before", "branch_features", "position - 2]", "position - 1]"),
    )),
    ("jakiro.training.validation",
     "tests/training/test_validation.py::test_decoupled_experts_and_their_weights_are_read_one_position_back",
     (
        ("decoupled-rows-of-the-next", "branch_features", "features[:, sequence, position - 1]",
         "features[:, sequence, position]"),
        ("routing-of-the-next", "branch_features", "router_weights[sequence, position - 1]",
         "router_weights[sequence, position]"),
    )),
    ("jakiro.training.validation",
     "tests/training/test_validation.py::test_levels_of_their_own_are_read_one_position_back",
     (
        ("levels-of-the-next", "branch_features", 'yield "main", depth, features[sequence, position - 1]',
         'yield "main", depth, features[sequence, position]'),
    )),
    ("jakiro.training.validation",
     "tests/training/test_validation.py::test_a_first_guess_is_the_likeliest_and_three_are_the_three_likeliest",
     (
        ("the-second-guess", "agreement", "hits[:, :1]", "hits[:, 1:2]"),
    )),
    ("jakiro.training.validation",
     "tests/training/test_validation.py::test_a_draft_s_logits_are_divided_by_the_temperature",
     (
        ("a-hotter-draft", "log_q", "/ temperature", "* temperature"),
    )),
    ("jakiro.training.validation",
     "tests/training/test_validation.py::test_how_two_experts_share_the_work_counted_by_hand",
     (
        ("residuals-of-the-next", "expert_facts", "residual[sequence, position - 1]", "residual[sequence, position]"),
        ("both-experts-right", "expert_facts", "right.any(0)", "right.all(0)"),
        ("a-gain-below-nothing", "expert_facts", '["union_top1"] - facts["best_expert_top1"]',
         '["best_expert_top1"] - facts["union_top1"]'),
    )),
    ("jakiro.graphs.pool",
     "tests/graphs/test_slot.py::test_a_slot_has_room_for_a_text_whose_last_token_nobody_reads",
     (
        ("no-room-for-the-last-token", "Slots.__init__", "target.max_positions + 1", "target.max_positions"),
    )),
    ("jakiro.graphs.pool",
     "tests/graphs/test_slot.py::test_a_slot_holds_prompts_and_answers_of_its_tokens_and_no_more",
     (
        ("a-slot-that-is-filled-is-too-small", "Slots.borrow", "num_tokens > self.tokens", "num_tokens >= self.tokens"),
    )),
    ("jakiro.graphs.pool",
     "tests/graphs/test_slot.py::test_the_widest_tree_fits_a_slot_and_one_with_more_rows_does_not",
     (
        ("the-largest-tree-is-too-large", "Slots.borrow", "tree.nodes > MOST_NODES", "tree.nodes >= MOST_NODES"),
        ("rows-of-a-level-alone", "Slots.borrow", "tree.depth * tree.width", "tree.width"),
    )),
    ("jakiro.graphs.pool",
     "tests/graphs/test_slot.py::test_each_drafter_gets_a_slot_and_the_last_slot_serves_who_is_left",
     (
        ("slots-for-nobody", "Slots.prepare", "min(side_by_side, len(drafters))", "max(side_by_side, len(drafters))"),
        ("nobody-s-last-slot", "_shared_out", "[drafters[slots - 1 :]]", "[drafters[slots:]]"),
    )),
    ("jakiro.graphs.pool", "tests/graphs/test_slot.py::test_a_slot_is_given_back_once_and_goes_to_who_has_used_it", (
        ("another-one-s-slot", "Slots._take", "slot = min(self._free", "slot = max(self._free"),
        ("given-back-twice", "Slots._give_back", "slot not in self._free and ", ""),
        ("given-back-without-the-lock", "Slots._give_back", "with self._lock:", "if True:"),
    )),
)  # fmt: skip
# The same of scripts, which have no places
SCRIPTS = (
    ("data/metrics.js",
     "tests/app/browser/test_modules.py::test_a_tokens_margin_is_that_of_the_node_which_it_was_chosen_after",
     (
        ("page-margin-of-the-node-itself", "token.level - 2", "token.level - 1"),
        ("page-margin-of-the-first", "token.step < 0) return null", "token.step <= 0) return null"),
    )),
    ("data/metrics.js", "tests/app/browser/test_modules.py::test_metrics_equal_those_of_the_library", (
        ("page-nobody-tried-under-the-root", "new Set([0, ...step.accepted_path])", "new Set(step.accepted_path)"),
        ("page-kept-a-level-less", "step.accepted_path.length >= depth", "step.accepted_path.length > depth"),
        ("page-tau-without-the-bonus", "step.accepted_path.length + 1", "step.accepted_path.length"),
        ("page-speed-with-the-first-token", "(lane.counts[count - 1] - lane.lead) /", "lane.counts[count - 1] /"),
    )),
    ("data/metrics.js", "tests/app/browser/test_modules.py::test_speeds_and_places_of_two_answers_counted_by_hand", (
        ("page-a-window-longer-than-the-answer", "Math.min(WINDOW_SECONDS, now)", "Math.max(WINDOW_SECONDS, now)"),
        ("page-parts-where-the-longer-ends", "Math.min(...lengths)", "Math.max(...lengths)"),
        ("page-a-step-that-was-not-yet", "lane.countAfter(steps - 1)", "lane.countAfter(steps)"),
        ("page-a-speedup-of-nine", "common - lane.lead + 1 < FEWEST_TOKENS", "common - lane.lead + 1 <= FEWEST_TOKENS"),
        ("page-a-median-of-the-upper-two", "sorted[middle - 1] + sorted[middle]", "sorted[middle] + sorted[middle]"),
        ("page-a-wait-for-one-alone", "(before + mine)", "mine"),
    )),
)  # fmt: skip


FAULTS = (
    Fault(
        "logprobs-of-the-next-row", "jakiro.engine.stream:scored", _of_the_next_row, ("tests/engine/test_logprobs.py",)
    ),
    Fault("any-host-may-ask", "jakiro.api.application:_is_own_name", value(lambda given: True), (REFUSED,)),
    Fault("a-client-never-hangs-up", "jakiro.api.application:_gone", value(_never), ("tests/api/test_clients.py",)),
    Fault("drafting-counts-as-other", "jakiro.engine.clock:StepClock.end", _in_another_part, (CLOCK,)),
    Fault("a-pause-is-counted", "jakiro.engine.clock:StepClock.pause", nothing, (CLOCK,)),
    Fault(
        "target-probs-without-temperature",
        "jakiro.core.verify:tempered",
        value(lambda logits, sampling: logits.float()),
        ("tests/core/test_verify.py",),
    ),
    Fault("nobody-proposed-it-too", "jakiro.engine.recorder:names_in", value(lambda bits, names: ()), (RECORDED,)),
    Fault(
        "numbers-that-json-has-not",
        "jakiro.engine.recorder:_bounded",
        value(lambda number, unknown: min(max(number, -1e9), 1e9)),
        (RECORDED,),
    ),
    Fault("evidence-of-another-node", "jakiro.drafting.experts:expert_evidence", _of_the_row_before, (GROWN,)),
    Fault("calibration-of-another-branch", "jakiro.drafting.growing:Ranking._at", _without_its_branch, (GROWN,)),
    Fault(
        "learning-from-a-tree-that-was-not-planned",
        "jakiro.engine.stream:Stream._learn",
        _learning_from_any_tree,
        ("tests/test_generator.py",),
    ),
    Fault("estimates-without-memory", "jakiro.engine.budget:LEARN", value(1.0), (BUDGETED,)),
    Fault("drafting-never-comes-back", "jakiro.engine.budget:FADE", value(0.0), (BUDGETED,)),
    Fault(
        "a-disturbed-timing-counts-in-full",
        "jakiro.engine.costs:statistics",
        value(types.SimpleNamespace(median=max)),
        (MEASURED,),
    ),
    Fault("interval-of-a-few-prompts", "jakiro.bench.report:FEWEST_PROMPTS", value(2), ("tests/bench/test_report.py",)),
    Fault(
        "interval-of-90-percent",
        "jakiro.bench.report:resampled_interval",
        _narrower,
        ("tests/bench/test_report.py",),
    ),
    Fault(
        "any-difference-forgiven",
        "tests.test_default_pair:MOST_ROUNDED",
        value(math.inf),
        ("tests/test_default_pair.py::test_only_a_difference_that_rounding_explains_is_forgiven",),
    ),
    Fault(
        "a-text-is-decoded-from-its-start",
        "jakiro.text:IncrementalDecoder._forget_before_last",
        nothing,
        ("tests/test_text.py",),
    ),
    Fault(
        "a-text-is-cut-within-bytes", "jakiro.text:TokenText.is_byte", value(lambda *_: False), ("tests/test_text.py",)
    ),
    Fault(
        "a-typed-token-ends-a-turn",
        "jakiro.text:_Typed.masked",
        value(lambda typed, text: text),
        ("tests/test_text.py",),
    ),
    Fault("prefix-of-another-visitor", "jakiro.engine.prefix:PrefixStore._of", _of_anybody, (PREFIXED,)),
    Fault("prefix-with-a-row-too-many", "jakiro.engine.prefix:Prefix.first", _a_row_too_many, (PREFIXED,)),
    Fault("nobody-helps", "sections.c:is_over_soon", "(void)visit; return 1;", (SECTIONS,)),
    Fault(
        "late-threads-publish-too",
        "sections.c:move",
        "(void)from; __atomic_store_n(visit->progress->chunks + chunk, to, __ATOMIC_RELEASE); return 1;",
        (SECTIONS,),
    ),
    Fault("sums-that-leave-32-bits", "dots.c:largest_number", "return (float)INT16_MAX;", (COMPILED,)),
    Fault(
        "room-for-all-that-is-asked-for",
        "jakiro.engine.request:Request.within",
        value(lambda request, max_positions: request),
        (f"{CONFORMING}::test_an_answer_without_an_end_in_sight_takes_no_more_room_than_the_target_can_fill",),
    ),
    Fault(
        "copies-that-are-not-worth-their-row",
        "jakiro.drafting.base:NoDraftLimits.worth",
        value(lambda limits, scores: [math.exp(score) for score in itertools.islice(scores, 64)]),
        (CHAINED,),
    ),
    Fault(
        "chains-are-not-taken-back",
        "jakiro.drafting.merged:MergedSession.rewind",
        value(lambda session, length: session.first.rewind(length)),
        ("tests/methods/test_prompt_lookup.py",),
    ),
    Fault(
        "every-visitor-s-shape-remembered",
        "jakiro.methods.mcsd:shape_for",
        lambda right: functools.cache(right.__wrapped__),
        ("tests/methods/test_mcsd.py",),
    ),
    Fault("temperatures-that-overflow", "jakiro.config:LEAST_TEMPERATURE", value(1e-38), ("tests/test_config.py",)),
    Fault(
        "children-without-parents",
        "jakiro.drafting.candidates:known_scores",
        value(lambda scores, out=None: scores.clone()),
        ("tests/drafting/test_candidates.py",),
    ),
    Fault(
        "tokens-after-a-stop-text",
        "jakiro.engine.answer_text:AnswerText._until_stop",
        lambda right: lambda text, ids: (right(text, ids), ids)[1],
        ("tests/engine/test_stop.py",),
    ),
    Fault(
        "gguf-a-window-goes-unread",
        "jakiro.zoo.gguf_model:_ABOUT",
        value({"attention.sliding_window"}),
        ("tests/zoo/test_gguf.py",),
    ),
    Fault(
        "gguf-pairs-are-taken-for-halves",
        "jakiro.zoo.gguf_model:_halves",
        value(lambda heads, head_dim: range(heads * head_dim)),
        ("tests/zoo/test_gguf.py",),
    ),
    Fault("gguf-pieces-are-merged-anew", "jakiro.zoo.gguf_tokenizer:_WHOLE", value(set()), (TOKENIZED,)),
    Fault("gguf-no-token-is-whole", "jakiro.zoo.gguf_tokenizer:_add_whole_tokens", nothing, (TOKENIZED,)),
    Fault("scales-go-unread", "jakiro.zoo.weights:_refuse_what_differs", nothing, (DAMAGED,)),
    Fault("eight-bits-are-plain", "jakiro.zoo.files:_SCALED", value(("none",)), (DAMAGED,)),
    Fault("any-device", "jakiro.zoo.loading:_DEVICES", value(("cpu", "cuda", "mps", "meta")), (ERRORS,)),
    Fault(
        "forked-processes-wait-for-threads-that-stayed-behind",
        "jakiro.generator:_live_on_after_forks",
        nothing,
        (f"{ERRORS}::test_a_forked_process_answers_alike",),
    ),
    Fault(
        "rules-that-see-the-root-twice",
        "jakiro.core.rule:drafted_path",
        value(lambda mask: mask.float()),
        ("tests/core/test_rule.py",),
    ),
    Fault(
        "a-compiled-filter-that-drops-ties",
        "sampling.c:keep_from",
        "int64_t kept = 0; for (int64_t at = 0; at < number; at++) if (!kept || found[at].value > value) "
        "found[kept++] = found[at]; return kept;",
        (COMPILED,),
    ),
    Fault("top-p-keeps-a-token-more", "jakiro.core.sampling:warp", _a_tie_is_kept, ("tests/core/test_sampling.py",)),
    *(
        Fault(name, f"{module}:{place}", line(old, new), (test,))
        for module, test, faults in LINES
        for name, place, old, new in faults
    ),
    *(
        Fault(name, "app.page.web:_function", script(file, old, new), (test,))
        for file, test, faults in SCRIPTS
        for name, old, new in faults
    ),
    Fault(
        "a-server-gets-the-same-seeds",
        "jakiro.training.endpoint:_short_seed",
        value(lambda seed: seed % 2**31),
        ("tests/training/test_endpoint.py",),
    ),
    Fault(
        "a-run-is-judged-on-what-it-learned",
        "jakiro.training.split:refuse_rows_that_were_learned",
        nothing,
        ("tests/training/test_split.py",),
    ),
    Fault("a-page-counts-as-one-request", "app.serving.guard:DEAR", value(1), ("tests/app/serving/test_guard.py",)),
    Fault(
        "anybody-says-for-whom-a-request-is",
        "app.serving.server:_HUB_PROXIES",
        value("*"),
        ("tests/app/serving/test_addresses.py",),
    ),
    Fault(
        "an-answer-that-nobody-reads-keeps-its-place",
        "app.serving.worker:AnswerRun.look_for_reader",
        nothing,
        ("tests/app/serving/test_worker.py",),
    ),
    Fault(
        "a-benchmark-borrows-in-nobody-s-name",
        "app.serving.benchmark_run:contextvars",
        value(types.SimpleNamespace(copy_context=__import__("contextvars").Context)),
        ("tests/app/page/test_benchmark.py",),
    ),
    Fault(
        "gpu-a-pass-reads-the-host",
        "jakiro.core.verify:accepted_node",
        _reading_the_host,
        ("tests/graphs/test_capture.py",),
    ),
    Fault("gpu-graphs-are-never-dropped", "jakiro.graphs.capture:PassBook.open", nothing, (MEMORY,)),
    Fault("gpu-a-refusal-is-forgotten", "jakiro.graphs.capture:capture_was_refused", nothing, (MEMORY,)),
    Fault(
        "gpu-two-threads-capture-at-once",
        "jakiro.graphs.capture:_capturing",
        value(contextlib.nullcontext()),
        (f"{CAPTURED}::test_two_threads_never_capture_at_once",),
    ),
    Fault(
        "gpu-costs-of-eager-passes",
        "jakiro.graphs.pool:Slots.replays",
        value(property(lambda slots: True)),
        (f"{CAPTURED}::test_nothing_is_measured_where_passes_run_eagerly",),
    ),
    Fault(
        "gpu-what-runs-without-graphs-is-not-told",
        "jakiro.generator:JakiroGenerator._later_notices",
        value(lambda generator: []),
        (f"{CAPTURED}::test_a_planted_host_read_makes_capturing_fail_and_passes_run_eagerly",),
    ),
    Fault("gpu-a-dropped-slot-waits", "jakiro.graphs.slot:Slot.close", nothing, (MEMORY,)),
    Fault("gpu-a-slot-is-lost", "jakiro.graphs.pool:Slots._give_back", nothing, (MEMORY,)),
    Fault(
        "gpu-any-tree-is-said-to-round-alike",
        "jakiro.target.model:TargetModel.rounds_alike",
        value(lambda target, nodes: True),
        ("tests/target/test_numerics.py",),
    ),
    Fault(
        "gpu-memory-that-runs-out-is-torch-s-text",
        "jakiro.zoo.loading:within_memory",
        value(lambda load, sentence: load()),
        (SCARCE,),
    ),
    Fault(
        "gpu-a-borrowed-process-takes-its-pair-apart",
        "jakiro.zoo.loading:_copied",
        value(lambda module, device: module.to(device)),
        (SCARCE,),
    ),
)
