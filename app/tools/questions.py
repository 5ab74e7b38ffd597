"""Choose the questions that the page offers: the default model completes their answers and drafts them best.

    python -m app.tools.questions [--target … --head … --device … --dtype …]

Every question is answered greedily, with trees of one size. An answer qualifies if it ends by itself within `LONGEST`
tokens, is no shorter than `SHORTEST`, and repeats nothing; the six with the most tokens per step are written to
`assets/questions.json` with the measurements.
"""

import json
from collections import Counter

from app.page.offered import QUESTIONS
from app.tools.record_options import load_generator, read_options
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT
from jakiro.prompts import load_questions
from jakiro.system import errors_as_one_sentence
from jakiro.trace import Trace

COUNT = 6
SHORTEST, LONGEST = 40, 256  # tokens
TREE = TreeConfig(nodes=24, depth=5)  # the same on every machine
WORDS_IN_A_ROW = 5
CANDIDATES = (
    "What is photosynthesis?",
    "Why is the sky blue?",
    "What is a rainbow?",
    "What is gravity?",
    "What is a volcano?",
    "Why do we have seasons?",
    "How do plants make food?",
    "What is the water cycle?",
    "Why do we sleep?",
    "What is democracy?",
    "How does a bird fly?",
    "What are the benefits of walking every day?",
    "Name three healthy breakfasts.",
    "How do I boil an egg?",
    "Write a thank-you note to a teacher.",
    "What is the difference between a star and a planet?",
)
MOST_CHARACTERS = 60
LEFT_OUT = "math"  # a small model's sums are often wrong, and no rule here would see it


def candidates() -> list[str]:
    """Return questions short enough for a button: our own, and the first turns of the benchmark's prompts."""
    turns = [question.turns[0] for question in load_questions() if question.category != LEFT_OUT]
    return list(dict.fromkeys([*CANDIDATES, *(question for question in turns if len(question) <= MOST_CHARACTERS)]))


def repeats(text: str) -> bool:
    """Return whether a text has the same few words in a row three times."""
    words = text.lower().split()
    rows = Counter(tuple(words[i : i + WORDS_IN_A_ROW]) for i in range(len(words) - WORDS_IN_A_ROW + 1))
    return max(rows.values(), default=0) >= 3


def fits(trace: Trace) -> bool:
    """Return whether an answer is good enough to offer its question."""
    return trace.end_reason == "eos" and len(trace.token_ids) >= SHORTEST and not repeats(trace.text)


def chosen(traces: dict[str, Trace]) -> list[dict]:
    """Return the best questions as {"question", "tokens_per_step", "tokens"}, the best first."""
    rows = [
        {"question": question, "tokens_per_step": round(trace.delivered_tau or 0, 2), "tokens": len(trace.token_ids)}
        for question, trace in traces.items()
        if fits(trace)
    ]
    return sorted(rows, key=lambda row: -row["tokens_per_step"])[:COUNT]


def main() -> None:
    pair, out = read_options("Chooses the questions that the page offers.", QUESTIONS)
    with errors_as_one_sentence():
        generator = load_generator(pair)
        sampling = SamplingParams(max_new_tokens=LONGEST)
        traces = {
            question: generator.run(question, sampling, method=DEFAULT.name, tree=TREE) for question in candidates()
        }
    out.write_text(json.dumps(chosen(traces), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
