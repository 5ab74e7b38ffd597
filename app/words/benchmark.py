"""Texts of the tab "Benchmark": its form, its table and plot, and error messages."""

COUNT_NOT_WHOLE = "The number of prompts must be a whole number from 1 to {most}; got {value}."
CHOOSE_TEMPERATURE = "Choose at least one temperature."
UNKNOWN_TEMPERATURE = "Temperatures must be among {known}; got {value}."
CHOOSE_METHOD = "Choose at least one method besides plain decoding."
UNKNOWN_METHOD = "Methods must be among {known}; got {value}."
NOT_A_REQUEST = "A benchmark request has “count”, “temperatures” and “methods”; got {value}."
NO_HEAD = "No draft head fits this model; only methods without a head can be measured."
TOO_MANY = "{count} benchmarks from your network address are running already; wait for one, or stop it."
MODEL_CHANGED = "Another model was loaded during the run; the numbers are from the first model."
UNKNOWN_RESULTS = "The server no longer stores these results; run the benchmark again."

# The tab's name, and its text if its code could not be loaded
FIRST = {
    "tab_benchmark": "Benchmark",
    "bench_not_loaded": "This tab could not be loaded; reload the page to try again.",
}

BROWSER = {
    "bench_form": "Measure this machine",
    "bench_more_methods": "More methods",
    "bench_headline": "{method} is {times} as fast as plain decoding on {prompts}",
    "bench_headline_interval": "between {low} and {high}",
    "bench_headline_all_same": "all texts identical",
    "bench_headline_same": "{share} of the texts identical",
    "bench_set": "Our own prompts in {categories} categories; at most {tokens} tokens per answer.",
    "bench_count": "Prompts",
    "bench_temperatures": "Temperature",
    "bench_methods": "Against plain decoding",
    "bench_run": "Run benchmark",
    "bench_stop": "Stop",
    "bench_turns": "Each prompt waits in the queue like any question, so visitors are not blocked.",
    "bench_starting": "Starting.",
    "bench_progress": "prompt {n} of {total}",
    "bench_stopped": "Stopped after {n} of {total} prompts; these are their numbers.",
    "bench_finished": "Finished: {n} prompts.",
    "bench_nothing": "Stopped before the first prompt was done.",
    "bench_save": "Save results",
    "bench_gone": UNKNOWN_RESULTS,
    "bench_which": "Results",
    "bench_recorded": "Recorded",
    "bench_here": "This run",
    "bench_temperature": "Temperature",
    "bench_badge_recorded": "Recorded on {device} · {date}",
    "bench_badge_here": "Measured now on {device} · {date}",
    "bench_setup": "{target} · {head} · {dtype}, {numerics} · at most {tokens} tokens an answer",
    "bench_core": "{n} core",
    "bench_cores": "{n} cores",
    "bench_no_head": "no draft head",
    "bench_missing": "No recorded results are shipped with this copy. Run the benchmark to see this device’s.",
    "bench_waiting": "The first prompt’s numbers appear here.",
    "bench_results": "Results",
    "bench_table": "Speed by category, temperature {temperature}",
    "bench_category": "Category",
    "bench_method": "Method",
    "bench_prompts": "Prompts",
    "bench_plain": "Plain decoding, tokens/s",
    "bench_lane": "Method, tokens/s",
    "bench_speedup": "Speedup",
    "bench_tau": "τ",
    "bench_same": "Same text",
    "bench_overall": "All prompts",
    "bench_spread": "{low}–{high}",
    "bench_times": "{n}×",
    "bench_plot": "Speedup by category, temperature {temperature}: points are speedups, lines their 95 % intervals",
    "bench_axis": "times as fast as plain decoding",
    "bench_even": "1×: as fast as plain",
    "one_bench_prompt": "1 prompt",
    "many_bench_prompts": "{n} prompts",
    "bench_definitions": "Tokens a second: all tokens ÷ all seconds, below it the interquartile range; the "
    "first token and reading the prompt are not counted. Speedup: plain seconds ÷ the method’s, same prompts; below it "
    "the 95 % interval from resampling prompts. Both are shown from eight prompts on. τ: accepted per step + 1, over "
    "all steps. Same text: share of answers with the token ids of plain decoding.",
    "bench_spoken": "{n} of {total} prompts done.",
    "board": "Leaderboard",
    "board_missing": "No leaderboard is shipped with this copy.",
    "board_table": "{category}, temperature {temperature}; press a column’s name to sort by it",
    "board_speed": "Tokens/s",
    "board_plain": "Against plain decoding",
    "board_against": "Against {method}",
    "board_draft": "Draft, ms a step",
    "board_verify": "Check, ms a step",
    "board_other": "Rest, ms a step",
    "board_ahead": "Fastest over all prompts at temperature {temperature}: {method}, {times} times as fast as {others} "
    "({interval}). Choose it for speed.",
    "board_level": "No method is the fastest over all prompts at temperature {temperature}: {method} is not "
    "measurably faster than {others} ({times} times as fast as {against}, {interval}).",
    "board_about": "Every method chose its tree’s size at each step by costs measured on this machine; all "
    "ran in turn on each prompt. Against plain and {method}: how many times as fast over the same prompts, below it "
    "the 95 % interval from resampling prompts, from eight prompts on. τ: accepted per step + 1. This is a "
    "separate run from the recorded results, with shorter answers and all methods in turn, so the factors differ.",
}
