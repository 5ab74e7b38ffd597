"""Known faults of what runs everywhere, each a line or two changed to something wrong; `tests/mutants.py` makes them.

Each once passed the whole suite, or could. At least one of the tests that it names must fail.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake.

    Attributes:
        file: of the checkout. right: its text today, found once. wrong: what the mistake makes of it.
        tests: a file, or ids of tests in it, as pytest takes them; one of them must fail.
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    @property
    def places(self) -> int:
        """How often the text that it changes is found."""
        return (ROOT / self.file).read_text(encoding="utf-8").count(self.right)


STREAM, CLOCK = "jakiro/engine/stream.py", "tests/engine/test_clock.py"
PREPARE = "jakiro/engine/prepare.py"
GROWING, GROWN = "jakiro/drafting/growing.py", "tests/drafting/test_growing.py"
BUDGET, BUDGETED = "jakiro/engine/budget.py", "tests/engine/test_budget.py"
CHAINED = "tests/drafting/test_merged.py"
COSTS, MEASURED = "jakiro/engine/costs.py", "tests/engine/test_costs.py"
REPORT, REPORTED = "jakiro/bench/report.py", "tests/bench/test_report.py"
RECORDER, RECORDED = "jakiro/engine/recorder.py", "tests/engine/test_recorder.py"
PREFIX, PREFIXED = "jakiro/engine/prefix.py", "tests/engine/test_prefix.py"
ADDRESSED = "tests/app/serving/test_addresses.py"
CONFORMING, COMPILED = "tests/methods/test_conformance.py", "tests/kernels/test_compiled.py"
DAMAGED = f"{CONFORMING}::test_a_head_with_damaged_weights_changes_no_text_and_leaves_traces_that_can_be_read"
SECTIONS, LATE = "jakiro/kernels/compiled/csrc/sections.c", "tests/kernels/test_sections.py"
MEANS = f"{BUDGETED}::test_what_is_expected_is_a_running_mean"
SLOWER = f"{BUDGETED}::test_a_pass_that_is_slower_for_everybody_changes_no_size"
MEDIANS = f"{REPORTED}::test_the_median_shown_is_that_of_the_runs_and_the_speed_that_of_all_their_tokens"
CONTRASTIVE = f"{GROWN}::test_contrastive_candidates_have_the_noise_and_the_calibration_of_their_own_depth_and_branch"

FAULTS = (
    Fault(
        "proposing-outside-the-clock",
        STREAM,
        "        clock = StepClock(self._target.device)\n        plan = self._choose_size()\n"
        "        proposal = self._propose(plan)\n",
        "        plan = self._choose_size()\n        proposal = self._propose(plan)\n"
        "        clock = StepClock(self._target.device)\n",
        (CLOCK,),
    ),
    Fault(
        "observing-counted-as-other",
        STREAM,
        '            self._session.observe(committed)\n            clock.end("draft")\n',
        "            self._session.observe(committed)\n",
        (CLOCK,),
    ),
    Fault(
        "starting-a-session-outside-the-clock",
        PREPARE,
        'draft_ms=clock.ms["draft"],',
        "draft_ms=0.0,",
        (CLOCK,),
    ),
    Fault(
        "learning-outside-the-clock",
        STREAM,
        'accepted, *clock.ms.values())\n            clock.end("draft")\n',
        "accepted, *clock.ms.values())\n",
        (CLOCK,),
    ),
    Fault("spans-halved", "jakiro/engine/clock.py", "_ms + 1000 * (now", "_ms + 500 * (now", (CLOCK,)),
    Fault(
        "spans-swapped",
        STREAM,
        'clock.ms["draft"] + self._draft_ms,\n            verify_ms=clock.ms["verify"],',
        'clock.ms["verify"] + self._draft_ms,\n            verify_ms=clock.ms["draft"],',
        (CLOCK,),
    ),
    Fault(
        "target-probs-without-temperature",
        "jakiro/core/verify.py",
        "tempered(logits, sampling).softmax(-1)",
        "logits.float().softmax(-1)",
        ("tests/core/test_verify.py::test_target_probs_are_those_of_the_parent_s_raw_logits_at_the_temperature",),
    ),
    Fault(
        "target-choice-is-the-own-token",
        RECORDER,
        "target_choice_piece=token_text.piece(outcome.choices[index])",
        "target_choice_piece=token_text.piece(outcome.token_ids[index])",
        (RECORDED,),
    ),
    Fault(
        "nobody-proposed-it-too",
        RECORDER,
        "also_proposed_by=names_in(outcome.also[index], proposers)",
        "also_proposed_by=()",
        (RECORDED,),
    ),
    Fault(
        "residual-is-the-draft-prob",
        "jakiro/drafting/experts.py",
        "(other, residuals))",
        "(other, chosen.draft_probs[:, None]))",
        (f"{GROWN}::test_every_node_has_the_probability_and_evidence_of_its_own_path",),
    ),
    Fault(
        "an-expert-proposes-the-root",
        "jakiro/drafting/experts.py",
        "    root = proposers < 0\n",
        "    root = proposers < -1\n",
        (f"{GROWN}::test_every_node_has_the_probability_and_evidence_of_its_own_path",),
    ),
    Fault(
        "contrastive-without-shared-noise",
        GROWING,
        "noise = None if self.noise is None else",
        "noise = None if self.noise is None or contrastive else",
        (CONTRASTIVE,),
    ),
    Fault(
        "contrastive-with-the-main-calibration",
        GROWING,
        "f\"{'contrastive' if contrastive else 'main'}/{depth}\"",
        'f"main/{depth}"',
        (CONTRASTIVE,),
    ),
    Fault(
        "learning-from-a-tree-that-was-not-planned",
        STREAM,
        "len(outcome.accepted_path) if proposal.note is None else None",
        "len(outcome.accepted_path)",
        (
            "tests/test_generator.py::test_a_step_teaches_the_sizes_what_its_own_tree_brought_and_nothing_where_the_tree_was_another",
        ),
    ),
    Fault(
        "steps-without-a-draft-expected-to-bring-its-tokens",
        BUDGET,
        "1 + (self._accepted if size.levels else 0.0)",
        "1 + self._accepted",
        (MEANS,),
    ),
    Fault(
        "estimates-without-memory",
        BUDGET,
        "LEARN * (accepted - self._accepted)",
        "accepted - self._accepted",
        (MEANS,),
    ),
    Fault(
        "plain-decoding-for-the-rest-of-an-answer",
        BUDGET,
        "self._accepted += FADE * (START - self._accepted)",
        "pass",
        (f"{BUDGETED}::test_where_nothing_is_right_drafting_stops_is_tried_rarely_and_comes_back",),
    ),
    Fault(
        "drafts-stay-slow-when-the-neighbour-is-gone",
        BUDGET,
        "self._draft_pace += FADE * (self._verify_pace - self._draft_pace)",
        "pass",
        (f"{BUDGETED}::test_drafts_that_take_longer_than_they_were_measured_to_are_given_up_and_tried_again",),
    ),
    Fault(
        "costs-without-this-answer-s-pace",
        BUDGET,
        "self._verify_pace * self.profile.verify(size.nodes, self._context)",
        "self.profile.verify(size.nodes, self._context)",
        (SLOWER,),
    ),
    Fault(
        "costs-without-other-ms",
        BUDGET,
        " + (self._other_ms or 0.0)",
        "",
        (SLOWER,),
    ),
    Fault(
        "an-outlier-counts-in-full",
        BUDGET,
        "min(value, 2 * usual)",
        "value",
        (f"{BUDGETED}::test_one_hold_up_does_not_end_drafting",),
    ),
    Fault(
        "a-disturbed-timing-counts-in-full",
        COSTS,
        "map(statistics.median, zip(*rounds, strict=True))",
        "map(max, zip(*rounds, strict=True))",
        (f"{MEASURED}::test_sizes_take_turns_and_what_disturbs_two_rounds_of_five_changes_nothing",),
    ),
    Fault(
        "the-first-timing-counts",
        COSTS,
        "for _ in range(1 + ROUNDS)][1:]",
        "for _ in range(1 + ROUNDS)][:1]",
        (f"{MEASURED}::test_sizes_take_turns_and_what_disturbs_two_rounds_of_five_changes_nothing",),
    ),
    Fault(
        "drafts-timed-with-warm-caches",
        COSTS,
        "runner.score(runner.root_tree())",
        "pass",
        (f"{MEASURED}::test_a_profile_holds_passes_by_rows_drafts_by_levels_and_what_longer_texts_add",),
    ),
    Fault(
        "drafts-timed-that-stop-before-their-last-level",
        COSTS,
        "TreeConfig(width, depth, 1 + width * depth)",
        "TreeConfig(8, depth, 3)",
        (f"{MEASURED}::test_a_profile_holds_passes_by_rows_drafts_by_levels_and_what_longer_texts_add",),
    ),
    Fault(
        "runs-of-a-prompt-drawn-one-by-one",
        REPORT,
        "sums.setdefault(run.question_id,",
        "sums.setdefault(run.key,",
        (f"{REPORTED}::test_runs_of_one_prompt_are_drawn_together",),
    ),
    Fault(
        "interval-of-90-percent",
        REPORT,
        "[0.025, 0.975]",
        "[0.05, 0.95]",
        (f"{REPORTED}::test_the_interval_leaves_2_5_percent_on_each_side",),
    ),
    Fault(
        "interval-of-a-few-prompts",
        REPORT,
        "FEWEST_PROMPTS = 8",
        "FEWEST_PROMPTS = 2",
        (f"{REPORTED}::test_the_interval_holds_the_pooled_ratio_and_widens_with_spread",),
    ),
    Fault(
        "median-of-the-upper-half",
        REPORT,
        "[0.25, 0.5, 0.75]",
        "[0.25, 0.75, 0.75]",
        (MEDIANS,),
    ),
    Fault(
        "upper-quartile-as-the-speed",
        "jakiro/bench/render.py",
        'group.tokens_per_second[1], ".1f"),\n            _range',
        'group.tokens_per_second[2], ".1f"),\n            _range',
        (MEDIANS,),
    ),
    Fault(
        "any-difference-forgiven",
        "tests/test_default_pair.py",
        "MOST_ROUNDED = 0.5",
        'MOST_ROUNDED = float("inf")',
        ("tests/test_default_pair.py::test_only_a_difference_that_rounding_explains_is_forgiven",),
    ),
    Fault(
        "prefill-counted-against-generate",
        "jakiro/bench/peers/stock.py",
        "= device, [], []",
        "= device, [time.perf_counter()], [0]",
        ("tests/bench/test_stock.py::test_the_clock_starts_at_the_first_token",),
    ),
    Fault(
        "sentencepiece-text-is-decoded-from-its-start",
        "jakiro/text.py",
        "        if self._text.decodes_locally:\n",
        "        if False:\n",
        ("tests/test_text.py::test_only_the_newest_tokens_of_a_sentencepiece_text_are_decoded",),
    ),
    Fault(
        "a-window-of-text-begins-within-bytes",
        "jakiro/text.py",
        "while last > 0 and (self._text.is_byte(self._ids[last]) or not self._text.piece(self._ids[last])):",
        "while False:",
        ("tests/test_text.py::test_pushes_joined_equal_the_decoding_whatever_happens_to_spaces_and_bytes",),
    ),
    Fault(
        "prefix-of-another-visitor",
        PREFIX,
        "each.owner == owner and each.target is target",
        "each.target is target",
        (f"{PREFIXED}::test_nobody_finds_what_is_another_s",),
    ),
    Fault(
        "prefix-with-a-head-s-row-too-many", PREFIX, "rows[..., : length - 1, :]", "rows[..., :length, :]", (PREFIXED,)
    ),
    Fault(
        "prefix-moves-the-chunks-of-a-prompt",
        "jakiro/target/model.py",
        "PREFILL_CHUNK - start % PREFILL_CHUNK",
        "PREFILL_CHUNK",
        (f"{PREFIXED}::test_only_the_first_rows_of_a_long_text_are_taken_over",),
    ),
    Fault(
        "late-threads-publish-too",
        SECTIONS,
        "if (!move(visit, chunk, number_of(visit, TAKEN), number_of(visit, PUBLISHING))) return;",
        "if (!move(visit, chunk, number_of(visit, TAKEN), number_of(visit, PUBLISHING)) && chunk) return;",
        (LATE,),
    ),
    Fault(
        "nobody-helps",
        SECTIONS,
        "if (visit->sections->publish && !is_over_soon(visit))",
        "if (!visit->sections->publish && !is_over_soon(visit))",
        (LATE,),
    ),
    Fault(
        "room-for-all-that-is-asked-for",
        PREPARE,
        "setup.borrow(within)",
        "setup.borrow(request)",
        (f"{CONFORMING}::test_an_answer_without_an_end_in_sight_takes_no_more_room_than_the_target_can_fill",),
    ),
    Fault(
        "free-candidates-beyond-the-bound",
        "jakiro/drafting/base.py",
        "islice(scores, self.nodes - 1)",
        "islice(scores, 64)",
        (f"{CHAINED}::test_copies_keep_to_the_bound_on_nodes",),
    ),
    Fault(
        "free-candidates-that-are-not-worth-their-row",
        "jakiro/drafting/base.py",
        "if chance >= self.least_chance]",
        "]",
        (f"{CHAINED}::test_copies_that_are_not_worth_their_row_are_left_out",),
    ),
    Fault(
        "a-draft-though-copies-promise-as-much",
        "jakiro/drafting/merged.py",
        "limits.free is not None and limits.free.suffice(accumulate(log_estimates))",
        "limits.tree.root_only",
        (f"{CHAINED}::test_copies_go_alone_where_they_promise_as_much_as_a_draft",),
    ),
    Fault(
        "chains-end-with-the-head-s-length",
        "jakiro/drafting/merged.py",
        "if proposal.tree is None and token_ids else proposal",
        "if proposal.tree is None and not token_ids else proposal",
        ("tests/drafting/test_merged.py",),
    ),
    Fault(
        "every-visitor-s-shape-remembered",
        "jakiro/methods/mcsd.py",
        "@functools.lru_cache(KNOWN_SHAPES)\ndef shape_for",
        "@functools.lru_cache(None)\ndef shape_for",
        ("tests/methods/test_mcsd.py::test_of_the_shapes_that_visitors_ask_for_few_are_remembered",),
    ),
    Fault(
        "temperatures-that-overflow",
        "jakiro/config.py",
        "LEAST_TEMPERATURE = 1e-4",
        "LEAST_TEMPERATURE = 1e-38",
        ("tests/test_config.py",),
    ),
    Fault("scores-that-json-has-not", RECORDER, "unknown if math.isnan(value) else min(", "min(", (RECORDED,)),
    Fault(
        "children-without-parents",
        "jakiro/drafting/candidates.py",
        "torch.nan_to_num(scores, nan=-torch.inf, neginf=-torch.inf, out=out)",
        "scores.clone()",
        ("tests/drafting/test_candidates.py",),
    ),
    Fault(
        "rows-kept-that-were-never-filled",
        "jakiro/kernels/cache.py",
        "if needed > self.length:",
        "if needed > self.capacity:",
        ("tests/kernels/test_cache.py::test_rows_that_were_never_filled_cannot_be_kept",),
    ),
    Fault(
        "bytes-of-any-dtype-read-as-float32",
        "jakiro/kernels/compiled/linear.py",
        "if hidden.dtype != torch.float32:",
        "if hidden.dtype == torch.int64:",
        (f"{COMPILED}::test_numbers_of_another_dtype_are_refused_instead_of_read_as_float32",),
    ),
    Fault(
        "neighbouring-weights-share-bytes",
        "jakiro/kernels/compiled/pages.py",
        "_rest[-(-weight.nbytes // _LINE) * _LINE :]",
        "_rest[weight.nbytes // _LINE * _LINE :]",
        ("tests/kernels/test_pages.py",),
    ),
    Fault(
        "paired-weights-keep-their-neighbour-s-bits",
        "jakiro/kernels/compiled/csrc/products.c",
        "(vec)(both & (int32_t)0xFFFF0000)",
        "(vec)both",
        ("tests/kernels/test_linear.py::test_bfloat16_needs_no_tiles",),
    ),
    Fault(
        "a-drafted-row-goes-on-with-the-first-expert-s-feature",
        "jakiro/kernels/compiled/csrc/draft.c",
        "head->summed ? 0 : node->proposer",
        "0",
        (f"{GROWN}::test_one_call_of_compiled_code_grows_the_tree_that_torch_grows_level_by_level",),
    ),
    Fault(
        "parents-counted-among-all-candidates",
        "jakiro/kernels/compiled/csrc/draft.c",
        "whole[PARENT * kept + at] = parent;",
        "whole[PARENT * kept + at] = node->parent + 1;",
        (f"{GROWN}::test_one_call_of_compiled_code_grows_the_tree_that_torch_grows_level_by_level",),
    ),
    Fault(
        "accepted-whatever-its-parent",
        "jakiro/kernels/compiled/csrc/sampling.c",
        "on_path[row] && token_ids[child] == choices[row]",
        "token_ids[child] == choices[row]",
        ("tests/core/test_verify.py::test_the_accepted_path_follows_the_target_s_choices",),
    ),
    Fault(
        "totals-of-other-rows-than-the-parents",
        "jakiro/kernels/compiled/csrc/sampling.c",
        "work->parents[child] != row)",
        "work->parents[child] != row + 1)",
        ("tests/core/test_verify.py::test_target_probs_are_those_of_the_parent_s_raw_logits_at_the_temperature",),
    ),
    Fault(
        "sums-that-leave-32-bits",
        "jakiro/kernels/compiled/csrc/dots.c",
        "at_most(INT32_MAX / (127 * inputs), INT16_MAX)",
        "INT16_MAX",
        (f"{COMPILED}::test_sums_of_the_largest_numbers_stay_within_their_32_bits",),
    ),
    Fault(
        "weights-summed-in-other-units",
        "jakiro/kernels/compiled/csrc/attention.c",
        "#define UNIT 0x1p-44",
        "#define UNIT 0x1p-43",
        (f"{COMPILED}::test_the_sum_of_weights_does_not_depend_on_where_keys_stand",),
    ),
    Fault(
        "tokens-after-a-stop-text-are-kept",
        "jakiro/engine/answer_text.py",
        "return own_ids[:count]",
        "return own_ids",
        ("tests/engine/test_stop.py::test_every_method_ends_at_the_same_token_with_the_same_text",),
    ),
    Fault(
        "a-head-s-weights-of-another-commit-than-its-config",
        "jakiro/zoo/hub.py",
        "hf_hub_download(hub_id, weights, revision=commit)",
        "hf_hub_download(hub_id, weights, revision=revision)",
        ("tests/zoo/test_hub.py",),
    ),
    Fault(
        "a-gguf-file-is-no-target",
        "jakiro/zoo/table.py",
        "return path if is_gguf(path) else None",
        "return None",
        ("tests/zoo/test_gguf.py",),
    ),
    Fault(
        "code-beside-a-model-may-run",
        "jakiro/zoo/weights.py",
        "trust_remote_code=False, ",
        "",
        ("tests/zoo/test_foreign_code.py",),
    ),
    Fault(
        "a-file-that-cannot-be-read-is-damaged",
        "jakiro/zoo/embedded.py",
        "except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):",
        "except (OSError, ValueError, KeyError, TypeError, AttributeError):",
        ("tests/zoo/test_embedded.py::test_hashes_that_cannot_be_read_are_not_taken_for_damaged_ones",),
    ),
    Fault(
        "tensors-that-are-missing-are-drawn",
        "jakiro/zoo/weights.py",
        "    _refuse_what_was_made_up(pair, found)\n",
        "",
        ("tests/zoo/test_damaged_folders.py",),
    ),
    Fault(
        "devices-whose-first-step-crashes",
        "jakiro/zoo/loading.py",
        "if chosen.type not in _DEVICES:",
        "if False:",
        ("tests/test_errors.py::test_unknown_names_are_refused_with_the_known_ones",),
    ),
    Fault(
        "typed-special-tokens-count-without-a-template",
        "jakiro/text.py",
        "tokenizer(_plain_dialogue(messages), split_special_tokens=True)",
        "tokenizer(_plain_dialogue(messages), split_special_tokens=False)",
        ("tests/test_text.py::test_a_typed_special_token_ends_no_turn_without_a_template_either",),
    ),
    Fault(
        "tokens-beyond-the-embedding",
        PREPARE,
        "if token_id >= known), None)",
        "if token_id > known), None)",
        ("tests/test_errors.py::test_a_tokenizer_larger_than_its_model_is_told_at_load_and_such_prompts_are_refused",),
    ),
    Fault(
        "overflow-is-the-model-s-fault",
        "jakiro/target/model.py",
        "if failure == OVERFLOW and self.dtype == torch.float16:",
        "if failure == OVERFLOW and self.dtype == torch.float64:",
        ("tests/test_errors.py::test_numbers_too_large_for_float16_are_no_fault_of_the_model",),
    ),
    Fault(
        "forked-processes-wait-for-threads-that-stayed-behind",
        "jakiro/generator.py",
        "after_in_child=partial(torch.set_num_threads, 1)",
        "after_in_child=torch.get_num_threads",
        ("tests/test_errors.py::test_a_forked_process_answers_alike",),
    ),
    Fault(
        "forked-processes-wait-for-a-compile-that-stayed-behind",
        "jakiro/kernels/compiled/library.py",
        'if hasattr(os, "register_at_fork"):',
        'if not hasattr(os, "register_at_fork"):',
        ("tests/test_errors.py::test_a_forked_process_answers_alike",),
    ),
    Fault(
        "fastest-by-noise",
        REPORT,
        "round(interval[0], 2) <= 1",
        "interval[1] <= 1",
        ("tests/bench/test_standings.py::test_a_lead_that_noise_could_have_made_is_none",),
    ),
    Fault(
        "top-p-keeps-one-token-more",
        "jakiro/core/sampling.py",
        "before < sampling.top_p",
        "before <= sampling.top_p",
        ("tests/core/test_sampling.py::test_a_token_before_which_top_p_lies_to_the_last_bit_is_dropped",),
    ),
    Fault(
        "merged-sessions-forget-to-rewind-chains",
        "jakiro/drafting/merged.py",
        "        self.chains.rewind(length)\n",
        "",
        ("tests/methods/test_prompt_lookup.py::test_chains_beside_a_head_s_tree_go_back_with_it",),
    ),
    Fault(
        "the-first-step-s-loss-decays-too",
        "jakiro/training/losses.py",
        "self.weights.unroll_decay ** (step - 1)",
        "self.weights.unroll_decay**step",
        ("tests/training/test_losses.py::test_a_loss_of_several_steps_is_their_sum_with_the_first_in_full",),
    ),
    Fault(
        "a-question-during-an-answer-is-swallowed",
        "app/page/build.py",
        'trigger_mode="multiple"',
        'trigger_mode="once"',
        ("tests/app/browser/test_asking.py::test_a_question_during_an_answer_ends_it_and_is_answered",),
    ),
    Fault(
        "a-failed-call-of-the-server-is-taken-for-nothing",
        "assets/web/base/connection.js",
        'if (value === undefined) throw new ServerError(say("server_silent"));',
        "",
        ("tests/app/browser/test_asking.py::test_what_the_server_could_not_give_is_said_and_tried_again",),
    ),
    Fault(
        "an-answer-that-nobody-reads-keeps-its-place",
        "app/serving/turns.py",
        "running.look(True)",
        "running.look(False)",
        ("tests/app/serving/test_worker.py::test_an_answer_that_nobody_reads_makes_room_for_who_waits",),
    ),
    Fault(
        "a-quota-pays-for-an-answer-that-nobody-reads",
        "app/serving/worker.py",
        "METERED_SECONDS if",
        "RETURN_SECONDS if",
        ("tests/app/serving/test_worker.py::test_an_answer_that_costs_a_quota_goes_on_unread_for_a_few_seconds_only",),
    ),
    Fault(
        "an-answer-that-was-cut-is-shipped-as-a-recording",
        "app/tools/record.py",
        "if figures.whole and scenario.rule(figures):",
        "if scenario.rule(figures):",
        ("tests/app/tools/test_recording_commands.py::test_an_answer_that_was_cut_is_no_recording",),
    ),
    Fault(
        "a-long-bar-is-squeezed-until-it-fits",
        "assets/web/race/race.css",
        ".race-fill { flex: none; width: calc((100% - 18.5rem) * var(--share));",
        ".race-fill { width: calc(72% * var(--share));",
        ("tests/app/browser/test_race.py::test_bars_are_as_long_as_their_clocks_have_run",),
    ),
    Fault(
        "clocks-of-minutes-leave-the-page",
        "assets/web/race/race.css",
        "calc((100% - 18.5rem)",
        "calc((100% - 14rem)",
        ("tests/app/browser/test_race.py::test_bars_are_as_long_as_their_clocks_have_run",),
    ),
    Fault(
        "who-reads-an-answer-that-ended-is-scrolled-away",
        "assets/web/page/schedule.js",
        "if (!following && wanted === broughtTo) return;",
        "if (!following && !wanted) return;",
        ("tests/app/browser/test_watch.py::test_an_answer_that_ended_is_shown_to_its_end_once",),
    ),
    Fault(
        "a-bracket-stands-over-guesses-that-are-folded-away",
        "assets/web/tree/tree.js",
        " || !shown.has(depth + levels - 1)",
        "",
        ("tests/app/browser/test_faithful.py::test_a_bracket_stands_over_guesses_that_can_be_seen",),
    ),
    Fault(
        "an-answer-stopped-while-it-waits-keeps-its-sentence",
        "app/page/api.py",
        'if state == "waiting" else ""',
        'if not run.traces else ""',
        ("tests/app/page/test_api.py::test_an_answer_stopped_while_it_waits_says_that_it_was_stopped",),
    ),
    Fault(
        "held-out-rows-decide-the-draft-vocabulary",
        "jakiro/training/features.py",
        "        return self.ids[self.offsets[num_held_out] :]\n",
        "        return self.ids\n",
        ("tests/training/test_trainer.py::test_what_is_learned_and_counted_is_not_held_out",),
    ),
    Fault(
        "a-cache-of-other-weights-is-taken",
        "jakiro/training/features.py",
        "            if held[name] != asked:\n",
        '            if name != "target" and held[name] != asked:\n',
        ("tests/training/test_features.py::test_a_cache_of_another_target_is_refused_and_left_as_it_is",),
    ),
    Fault(
        "a-resumed-average-stays-on-the-cpu",
        "jakiro/training/trainer.py",
        "{name: tensor.to(self.device) for name, tensor in average.items()}",
        "average",
        (
            "tests/training/test_device_tags.py::test_device_tag_a_run_is_resumed_with_its_average_where_its_weights_are",
        ),
    ),
    Fault(
        "a-cache-of-a-wider-target-is-taken",
        "jakiro/training/features.py",
        "            if held[name] != asked:\n",
        '            if name != "hidden_size" and held[name] != asked:\n',
        ("tests/training/test_features.py::test_a_cache_of_another_target_is_refused_and_left_as_it_is",),
    ),
    Fault(
        "half-of-the-features-count-as-all",
        "jakiro/training/features.py",
        "        if finished < len(self):",
        "        if finished < 0:",
        ("tests/training/test_features.py::test_an_interrupted_extraction_is_continued_not_repeated",),
    ),
    Fault(
        "a-gguf-file-alone-is-no-pair-s-target",
        "app/serving/pairs.py",
        " or any(path.glob(_GGUF))",
        "",
        ("tests/app/browser/test_picker.py::test_pairs_of_a_folder_say_whether_they_fit_and_why_not",),
    ),
    Fault(
        "features-that-are-cut-off-count-as-whole",
        "jakiro/training/features.py",
        "        if held_bytes < len(all_ids) * row_bytes:",
        "        if held_bytes < 0:",
        ("tests/training/test_features.py::test_features_that_are_cut_off_are_computed_again_from_there",),
    ),
    Fault(
        "features-are-begun-that-do-not-fit",
        "jakiro/training/features.py",
        "    if shutil.disk_usage(folder).free < missing_bytes:",
        "    if missing_bytes < 0:",
        (
            "tests/training/test_features.py::"
            "test_features_for_which_there_is_no_room_are_one_sentence_before_any_is_computed",
        ),
    ),
    Fault(
        "a-disk-that-fills-up-is-the-system-s-words-alone",
        "jakiro/training/features.py",
        "        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):",
        "        if error.errno == errno.EPERM:",
        ("tests/training/test_features.py::test_a_disk_that_fills_up_meanwhile_is_the_same_sentence",),
    ),
    Fault(
        "a-full-disk-is-an-error-of-safetensors",
        "jakiro/heads/checkpoint.py",
        "    except SafetensorError as error:\n        raise OSError(",
        "    except EOFError as error:\n        raise OSError(",
        ("tests/training/test_corpus.py::test_features_that_cannot_be_written_are_one_sentence",),
    ),
    Fault(
        "a-damaged-state-is-torch-s-words-alone",
        "jakiro/training/trainer.py",
        "except (OSError, EOFError, pickle.UnpicklingError, RuntimeError, KeyError,",
        "except (OSError, KeyError,",
        ("tests/training/test_trainer.py::test_a_state_that_cannot_be_resumed_from_is_one_sentence",),
    ),
    Fault(
        "an-empty-part-has-no-rows",
        "jakiro/training/corpus.py",
        "    if not file.stat().st_size:",
        "    if file is None:",
        ("tests/training/test_corpus.py::test_a_damaged_part_is_named_where_it_is_read_and_written_again_by_corpus",),
    ),
    Fault(
        "nobody-misses-a-part-of-a-corpus",
        "jakiro/training/corpus.py",
        "        if found < counted:",
        "        if found < 0:",
        ("tests/training/test_corpus.py::test_rows_that_the_manifest_counts_and_nobody_finds_are_missed",),
    ),
    Fault(
        "a-seed-runs-into-the-text-s-number",
        "jakiro/training/corpus.py",
        "        if not 0 <= self.seed < MAX_SEED:",
        "        if self.seed < 0:",
        ("tests/training/test_corpus.py::test_a_seed_that_has_no_room_beside_a_text_s_number_is_refused",),
    ),
    Fault(
        "a-server-gets-the-same-seeds-for-every-corpus",
        "jakiro/training/endpoint.py",
        "    return (seed + upper) % 2**_SEED_BITS",
        "    return seed % 2**_SEED_BITS",
        ("tests/training/test_endpoint.py::test_a_server_is_given_other_seeds_for_another_seed",),
    ),
    Fault(
        "a-short-prompt-is-never-excluded",
        "jakiro/training/exclusion.py",
        "    last = max(len(words) - RUN_WORDS, 0)",
        "    last = len(words) - RUN_WORDS",
        ("tests/training/test_corpus.py::test_a_short_prompt_is_excluded_as_a_whole_alone",),
    ),
    Fault(
        "a-run-is-judged-on-what-its-first-head-learned",
        "jakiro/training/split.py",
        "    if unread < num_held_out:",
        "    if unread < 0:",
        (
            "tests/training/test_split.py::"
            "test_rows_that_a_head_may_have_learned_are_not_held_out_when_a_run_starts_from_it",
        ),
    ),
    Fault(
        "training-takes-the-cpu-where-nothing-is-said",
        "jakiro/training/train.py",
        "    chosen = choose_device(config.device)",
        '    chosen = torch.device(config.device or "cpu")',
        ("tests/training/test_commands.py::test_a_gpu_that_is_not_there_is_refused_before_anything_is_read",),
    ),
    Fault(
        "calibration-takes-the-cpu-where-nothing-is-said",
        "jakiro/training/calibrate.py",
        "    device = choose_device(config.device)",
        '    device = torch.device(config.device or "cpu")',
        ("tests/training/test_commands.py::test_a_gpu_is_taken_where_there_is_one_and_gets_the_weights_straight",),
    ),
    Fault(
        "a-corpus-is-written-in-float32-on-a-gpu",
        "jakiro/training/corpus.py",
        "choose_dtype(config.dtype, device)",
        'choose_dtype(config.dtype or "float32", device)',
        ("tests/training/test_commands.py::test_a_gpu_is_taken_where_there_is_one_and_gets_the_weights_straight",),
    ),
    Fault(
        "a-measured-eagle3-head-reads-its-own-features-for-the-target-s",
        "jakiro/training/evaluate.py",
        "layers = head.config.layers_of(model.config.get_text_config().num_hidden_layers)",
        "layers = head.config.feature_layers",
        ("tests/training/test_commands.py::test_an_eagle3_head_is_measured_and_calibrated",),
    ),
    Fault(
        "calibrating-makes-a-published-head-s-config-ours",
        "jakiro/training/calibrate.py",
        "if weights_file(folder).name != WEIGHTS_NAME:",
        "if False:",
        ("tests/training/test_commands.py::test_an_eagle3_head_is_measured_and_calibrated",),
    ),
    Fault(
        "a-corpus-takes-any-temperature",
        "jakiro/training/corpus.py",
        "            SamplingParams(temperature, top_k=self.top_k, max_new_tokens=self.max_new_tokens)",
        "            pass",
        ("tests/training/test_commands.py::test_bad_corpus_options_are_one_sentence",),
    ),
    Fault(
        "a-page-counts-as-one-request",
        "app/serving/guard.py",
        "count=DEAR if dear else 1",
        "count=1",
        ("tests/app/serving/test_guard.py::test_a_page_counts_as_ten_requests_and_a_file_as_a_tenth",),
    ),
    Fault(
        "anybody-says-for-whom-a-request-is",
        "app/serving/server.py",
        "trusted_hosts=list(_HUB_PROXIES)",
        'trusted_hosts="*"',
        (f"{ADDRESSED}::test_on_a_space_the_address_that_its_proxy_saw_is_counted_and_none_that_the_visitor_wrote",),
    ),
    Fault(
        "a-benchmark-borrows-in-nobody-s-name",
        "app/serving/benchmark_run.py",
        "work = contextvars.copy_context().run",
        "work = contextvars.Context().run",
        ("tests/app/page/test_benchmark.py::test_a_benchmark_runs_in_its_visitors_context",),
    ),
    Fault(
        "the-doctor-takes-any-cache",
        "jakiro/cli/doctor.py",
        '        write_atomically(kept, b"")\n        kept.unlink()\n',
        "        pass\n",
        ("tests/cli/test_doctor.py::test_a_cache_that_takes_nothing_is_not_called_good",),
    ),
)
