"""Known faults, which `tests/mutants.py` plants to check that the tests detect them.

Each fault once passed the whole suite, or could have. The test that it names must fail. The list has one example of
each kind of fault.
"""

import asyncio
import contextlib
import inspect
import itertools
import math
import re
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake in one place.

    Attributes:
        place: "module:name.of.attribute" in Python, or "file.c:function" in the C files.
        wrong: function that replaces the correct object by the faulty one; for C, the faulty function body.
        test: file or pytest id of a test that must fail.
    """

    name: str
    place: str
    wrong: Callable | str
    test: str


def value(wrong: object) -> Callable:
    """Replace a value, or a function by another one with the same parameters."""
    return lambda right: wrong


def nothing(right: Callable) -> Callable:
    """Replace a function by one that does nothing."""
    return lambda *arguments, **options: None


def line(old: str, new: str) -> Callable:
    """Replace one expression in a function: a bound, a sign, a key or a lock."""

    def wrong(right):
        text = textwrap.dedent(inspect.getsource(right))
        assert text.count(old) == 1, f"{right.__qualname__} has {text.count(old)} places that read {old}"
        made = {}
        # Executed in the namespace of the module, because tests may patch names in it
        code = compile(text.replace(old, new), inspect.getsourcefile(right), "exec")
        exec(code, inspect.unwrap(right).__globals__, made)
        return made[right.__name__]

    return wrong


def script(old: str, new: str) -> Callable:
    """Replace the one match of a pattern in the page's built script; the bundler shortens names."""

    def wrong(bundle):
        text, count = re.subn(old, new, bundle("page.js"))
        assert count == 1, f"page.js has {count} places that match {old}"
        return lambda name: text if name == "page.js" else bundle(name)

    return wrong


def _learning_from_any_tree(learn):
    return lambda stream, plan, proposal, *more: learn(stream, plan, replace(proposal, note=None), *more)


async def _never(receive):
    await asyncio.Event().wait()


def _without_its_branch(at):
    return lambda ranking, depth, contrastive=False: at(ranking, depth)


def _any_owner(of):
    return lambda store, owner, target: [prefix for prefix in store._prefixes if prefix.target is target]


def _narrower(interval):
    def wrong(*arguments):
        bounds = interval(*arguments)
        return bounds and (bounds[0] + (bounds[1] - bounds[0]) / 8, bounds[1])

    return wrong


def _keep_ties(warp):
    def wrong(logits, sampling, *more):
        if isinstance(sampling.top_p, float) and sampling.top_p < 1:
            sampling = replace(sampling, top_p=math.nextafter(sampling.top_p, 2))
        return warp(logits, sampling, *more)

    return wrong


def _reading_the_host(accepted):
    return lambda mask, depths, right: accepted(mask, depths, right) + 0 * int(depths[0])


# Name, place, replacement and the test that must fail
PLACES = (
    ("any-host-is-allowed", "jakiro.server.application:_is_local_name", value(lambda host: True),
     "tests/server/test_refusals.py"),
    ("disconnects-are-ignored", "jakiro.server.application:_wait_for_disconnect", value(_never),
     "tests/server/test_clients.py"),
    ("draft-time-counts-as-other", "jakiro.backends.step_clock:StepClock.draft",
     value(lambda clock: contextlib.nullcontext()), "tests/backends/test_step_clock.py"),
    ("paused-time-counts", "jakiro.backends.step_clock:StepClock.pause", nothing, "tests/backends/test_step_clock.py"),
    ("target-probs-without-temperature", "jakiro.core.verify:tempered",
     value(lambda logits, sampling: logits.float()), "tests/core/test_verify.py"),
    ("other-proposers-are-lost", "jakiro.decode.recorder:proposers_in", value(lambda bits, names: ()),
     "tests/core/test_verify.py"),
    ("nan-is-not-replaced", "jakiro.decode.recorder:_bounded",
     value(lambda number, unknown: min(max(number, -1e9), 1e9)), "tests/decode/test_recorder.py"),
    ("calibration-of-another-branch", "jakiro.drafters.tree_growth:Ranking._at", _without_its_branch,
     "tests/drafters/test_tree_growth.py"),
    ("budget-learns-from-unplanned-trees", "jakiro.decode.loop:Stream._update_budget", _learning_from_any_tree,
     "tests/test_generator.py"),
    ("drafting-never-resumes", "jakiro.decode.tree_budget:FADE", value(0.0), "tests/decode/test_tree_budget.py"),
    ("maximum-instead-of-median", "jakiro.decode.device_profile:statistics",
     value(types.SimpleNamespace(median=max)), "tests/decode/test_device_profile.py"),
    ("interval-of-90-percent", "jakiro.bench.report:resampled_interval", _narrower, "tests/bench/test_report.py"),
    ("text-is-decoded-from-its-start", "jakiro.text.tokens:IncrementalDecoder._forget_before_last", nothing,
     "tests/test_text.py"),
    ("text-is-split-inside-characters", "jakiro.text.tokens:TokenText.is_byte", value(lambda *_: False),
     "tests/test_text.py"),
    ("typed-special-token-ends-a-turn", "jakiro.text.chat:_SpecialNameMask.hide", value(lambda mask, text: text),
     "tests/test_text.py"),
    ("prefixes-of-other-owners-are-found", "jakiro.decode.prefix_cache:PrefixStore._of", _any_owner,
     "tests/decode/test_prefix_cache.py"),
    ("no-thread-helps", "sections.c:is_over_soon", "(void)visit; return 1;", "tests/backends/native/test_sections.py"),
    ("late-threads-publish-too", "sections.c:move",
     "(void)from; __atomic_store_n(visit->progress->chunks + chunk, to, __ATOMIC_RELEASE); return 1;",
     "tests/backends/native/test_sections.py"),
    ("sums-exceed-32-bits", "dots.c:largest_number", "return (float)INT16_MAX;",
     "tests/backends/native/test_compiled.py"),
    ("compiled-filter-drops-ties", "sampling.c:keep_from",
     "int64_t kept = 0; for (int64_t at = 0; at < number; at++) if (!kept || found[at].value > value) "
     "found[kept++] = found[at]; return kept;", "tests/backends/native/test_compiled.py"),
    ("cache-is-not-limited-to-the-context", "jakiro.decode.request:GenerationRequest.limited_to",
     value(lambda request, max_positions: request),
     "tests/drafters/test_conformance.py::test_request_without_a_practical_limit_fits_into_the_context"),
    ("unlikely-copies-are-kept", "jakiro.drafters.base:DraftRequest.likely",
     value(lambda request, scores: [math.exp(score) for score in itertools.islice(scores, 64)]),
     "tests/drafters/test_merged.py"),
    ("children-without-parents", "jakiro.drafters.candidates:known_scores",
     value(lambda scores, out=None: scores.clone()), "tests/drafters/test_merged.py"),
    ("chains-are-not-rewound", "jakiro.drafters.merged:MergedSession.rewind",
     value(lambda session, length: session.first.rewind(length)), "tests/drafters/test_prompt_lookup.py"),
    ("temperatures-that-overflow", "jakiro.config:LEAST_TEMPERATURE", value(1e-38), "tests/test_config.py"),
    ("tokens-after-a-stop-string", "jakiro.decode.completion_text:CompletionText._cut_at_stop",
     lambda right: lambda text, ids: (right(text, ids), ids)[1], "tests/decode/test_stop.py"),
    ("gguf-window-is-ignored", "jakiro.loading.gguf_model:_ABOUT", value({"attention.sliding_window"}),
     "tests/loading/test_gguf.py"),
    ("gguf-pairs-are-read-as-halves", "jakiro.loading.gguf_model:_halves",
     value(lambda heads, head_dim: range(heads * head_dim)), "tests/loading/test_gguf.py"),
    ("gguf-whole-tokens-are-merged", "jakiro.loading.gguf_tokenizer:_WHOLE", value(set()),
     "tests/loading/test_gguf_tokenizer.py"),
    ("scales-are-ignored", "jakiro.loading.weights:_refuse_what_differs", nothing,
     "tests/loading/test_damaged_folders.py"),
    ("any-device", "jakiro.loading.loader:_DEVICES", value(("cpu", "cuda", "mps", "meta")), "tests/test_errors.py"),
    ("forked-processes-wait-for-missing-threads", "jakiro.generator:_keep_forks_alive", nothing,
     "tests/test_errors.py::test_forked_process_returns_the_same_answer"),
    ("penalties-count-the-root-twice", "jakiro.core.logits_processors:drafted_path", value(lambda mask: mask.float()),
     "tests/core/test_logits_processors.py"),
    ("top-p-keeps-one-token-more", "jakiro.core.sampling:warp", _keep_ties, "tests/core/test_sampling.py"),
    ("learned-rows-are-held-out", "jakiro.training.split:refuse_rows_that_were_learned", nothing,
     "tests/training/test_start.py"),
    ("page-counts-as-one-request", "app.serving.guard:DEAR", value(1), "tests/app/serving/test_guard.py"),
    ("any-proxy-is-trusted", "app.serving.server:_HUB_PROXIES", value("*"),
     "tests/app/serving/test_guard.py"),
    ("unread-answer-keeps-its-place", "app.serving.worker:AnswerRun.look_for_reader", nothing,
     "tests/app/serving/test_worker.py"),
    ("benchmark-loses-the-context-of-its-user", "app.serving.worker:contextvars",
     value(types.SimpleNamespace(copy_context=__import__("contextvars").Context)), "tests/app/page/test_benchmark.py"),
    ("gpu-pass-reads-on-the-host", "jakiro.core.verify:accepted_node", _reading_the_host,
     "tests/backends/test_capture.py"),
    ("gpu-graphs-are-never-dropped", "jakiro.backends.cuda_graphs.capture:GraphCache.open", nothing,
     "tests/backends/test_memory.py"),
    ("gpu-rejected-capture-is-ignored", "jakiro.backends.cuda_graphs.capture:capture_was_refused", nothing,
     "tests/backends/test_memory.py"),
    ("gpu-buffers-are-not-returned", "jakiro.backends.cuda_graphs.pool:GraphPool.give_back", nothing,
     "tests/backends/test_memory.py"),
    ("gpu-two-threads-capture-at-once", "jakiro.backends.cuda_graphs.capture:_capturing",
     value(contextlib.nullcontext()), "tests/backends/test_capture.py::test_two_threads_never_capture_at_once"),
    ("gpu-missing-graphs-are-not-reported", "jakiro.generator:JakiroGenerator._later_notices",
     value(lambda generator: []),
     "tests/backends/test_capture.py::test_planted_host_read_makes_capture_fail_and_passes_run_eagerly"),
    ("gpu-every-tree-is-reported-as-bit-identical", "jakiro.models.passes:TargetPasses.rounds_alike",
     value(lambda target, nodes: True), "tests/models/test_numerics.py"),
    ("gpu-out-of-memory-shows-the-text-of-torch", "jakiro.loading.loader:within_memory",
     value(lambda load, sentence: load()), "tests/backends/test_out_of_memory.py"),
    ("gpu-forked-process-moves-the-shared-pair", "jakiro.loading.loader:_copied",
     value(lambda module, device: module.to(device)), "tests/backends/test_out_of_memory.py"),
)  # fmt: skip
# One-line faults near rules where one once went undetected: (module, test, (name, place, old text, new text) …)
LINES = (
    ("jakiro.core.sampling", "tests/core/test_sampling.py", (
        ("ties-at-the-last-of-the-top-k", "warp", "in_top_k = values >= floor", "in_top_k = values > floor"),
        ("top-k-one-too-many", "warp", "values[:, top_k - 1 : top_k]", "values[:, top_k : top_k + 1]"),
        ("top-p-counts-a-token-itself", "warp", "probs.cumsum(-1) - probs", "probs.cumsum(-1)"),
        ("the-looser-of-two-floors", "warp", "torch.maximum(floor, boundary)", "torch.minimum(floor, boundary)"),
        ("min-p-above-the-best", "warp", "values[:, :1] + log_min_p", "values[:, :1] - log_min_p"),
        ("high-temperatures-are-ignored", "tempered", "sampling.temperature == 1", "sampling.temperature >= 1"),
        ("the-highest-id-wins", "choose", "logits.shape[-1]).amin(-1)", "-1).amax(-1)"),
        ("noise-of-the-first-level", "choose", "noise_rows[levels]", "noise_rows[levels * 0]"),
    )),
    ("jakiro.decode.prefix_cache", "tests/decode/test_prefix_cache.py", (
        ("find-without-the-lock", "OwnPrefixes.find", "with self.store._lock:", "if True:"),
        ("the-last-token-is-not-read-again", "OwnPrefixes.find", "prompt_ids[:-1]", "prompt_ids"),
        ("the-shortest-prefix", "OwnPrefixes.find", "= max(zip(", "= min(zip("),
        ("one-text-too-many", "PrefixStore._trim", "[:-MAX_TEXTS]", "[: -MAX_TEXTS - 1]"),
        ("newest-is-dropped-first", "PrefixStore._trim", "_prefixes.pop(0)", "_prefixes.pop()"),
        ("dropped-owner-can-add", "PrefixStore.drop", "part.dropped or part.owner == owner", "part.owner == owner"),
        ("unread-token-is-stored", "GrowingPrefix.keep", "len(self.token_ids) - 1", "len(self.token_ids)"),
    )),
    ("jakiro.decode.recorder", "tests/backends/test_step_clock.py", (
        ("first-draft-is-not-timed", "StepRecorder.record", "clock.draft_ms + self.opening_draft_ms", "clock.draft_ms"),
    )),
    ("jakiro.decode.recorder", "tests/decode/test_logprobs.py", (
        ("logprobs-of-another-node", "StepRecorder.read_step_logits", "[0, *outcome.accepted_path]",
         "[*outcome.accepted_path, 0]"),
    )),
    ("jakiro.core.logits_processors", "tests/core/test_logits_processors.py", (
        ("short-history-is-cut-from-its-end", "NoRepeatNGramProcessor._suffix", "max(len(ids) - self.size + 1, 0)",
         "len(ids) - self.size + 1"),
    )),
    ("jakiro.backends.outcome", "tests/drafters/test_dead_ends.py", (
        ("forbidden-token-is-committed", "_outcome", "if math.isnan(", "if math.isinf("),
    )),
    ("jakiro.core.validation", "tests/drafters/test_faulty_drafters.py", (
        ("any-root-is-accepted", "find_node_error", "if token_ids[0] != root_id:", "if False:"),
        ("any-token-is-accepted", "find_node_error", "if not 0 <= token_id < vocab_size:", "if token_id < 0:"),
        ("parents-may-come-later", "find_node_error", "if not 0 <= parent < node:", "if parent < 0:"),
    )),
    ("app.page.v1", "tests/app/page/test_prompt_caches.py", (
        ("prompt-caches-are-shared-between-keys", "PageBackend.answer", "(caller.key, request.", "(None, request."),
    )),
    ("jakiro.loading.gguf_model", "tests/loading/test_gguf_rope.py", (
        ("gguf-attention-factor-is-ignored", "_rope", "attention * (0.1", "(0.1"),
    )),
    ("jakiro.loading.checksums", "tests/loading/test_checksums.py", (
        ("unreadable-file-is-not-damaged", "is_corrupted", "corrupted = True", "corrupted = False"),
    )),
    ("jakiro.server.reply", "tests/server/test_usage.py", (
        ("usage-counts-tokens-after-the-cut", "_count_drafted", "step.accepted_path[: len(step.committed_ids)]",
         "step.accepted_path"),
    )),
    ("jakiro.drafters.candidates", "tests/drafters/test_merged.py", (
        ("only-the-last-chain-is-named", "Candidates.merged_with", "also | (1 << chain.proposer)",
         "1 << chain.proposer"),
    )),
    ("jakiro.drafters.prompt_lookup", "tests/drafters/test_prompt_lookup.py", (
        ("match-stays-in-a-state-that-was-split", "SuffixAutomaton._split",
         "self._match_length <= self._length[clone]", "self._match_length < self._length[clone]"),
    )),
    ("app.serving.turns", "tests/app/serving/test_limits.py", (
        ("mean-only-grows", "Turns._finished", "(seconds - old)", "seconds"),
        ("queue-is-one-longer", "Turns.take", "len(self._waiting) >= ", "len(self._waiting) > "),
        ("second-turn-in-the-same-round", "Turns._next_round", "get(group, -1) + 1", "get(group, -1)"),
        ("two-on-one-device", "Turn.__enter__", "<= turns._places()", "<= turns._places() + 1"),
    )),
    ("jakiro.training.validation", "tests/training/test_validation.py", (
        ("contrastive-of-the-position-before", "branch_features", "position - 2]", "position - 1]"),
        ("routing-of-the-next", "branch_features", "router_weights[sequence, position - 1]",
         "router_weights[sequence, position]"),
    )),
    ("jakiro.backends.cuda_graphs.pool", "tests/backends/test_buffers.py", (
        ("buffers-without-the-last-token", "GraphPool.__init__", "target.max_positions + 1", "target.max_positions"),
        ("buffers-of-another-drafter", "GraphPool._take", "buffers = min(self._free", "buffers = max(self._free"),
        ("returned-without-the-lock", "GraphPool.give_back", "with self._lock:", "if True:"),
    )),
)  # fmt: skip
# The same of the page's built script, which has no places
SCRIPTS = (
    ("tests/app/browser/test_modules.py", (
        ("page-margin-of-the-node-itself", r"(accepted_path\[\w+\.level)-2\]", r"\1-1]"),
        ("page-tau-without-the-bonus", r"(\w+\.accepted_path\.length)\+1", r"\1"),
        ("page-counts-a-future-step", r"(Math\.min\(\w+\.countAfter\(\w+)-1", r"\1"),
    )),
    ("tests/app/browser/test_chats.py::test_no_answer_is_lost_whatever_a_visitor_does", (
        ("page-an-empty-question-ends-an-answer",
         r"(if\(!\w+\.trim\(\)\))(return \w+\(\"error\",\w+\(\"empty_question)",
         r"\1return Jakiro.state.open.forEach(run=>run.stop()),Jakiro.state.open.clear(),Jakiro.redraw();\2"),
        ("page-continue-requests-twice-the-length", r"\w+\.length\+(Number\(\w+\(\)\.length\))", r"49+2*\1"),
        ("page-another-answer-deletes-the-first", r"\be\.children\.push\((\w+)\)", r"e.children.splice(0,1/0,\1)"),
        ("page-a-reload-loses-turns", r"(\w+\(\"turns\",(\w+)\))\)", r"\2.created%2?0:\1)"),
    )),
)  # fmt: skip


FAULTS = (
    *(Fault(*fault) for fault in PLACES),
    *(
        Fault(name, f"{module}:{place}", line(old, new), test)
        for module, test, faults in LINES
        for name, place, old, new in faults
    ),
    *(
        Fault(name, "app.page.web:bundle", script(old, new), test)
        for test, faults in SCRIPTS
        for name, old, new in faults
    ),
)
