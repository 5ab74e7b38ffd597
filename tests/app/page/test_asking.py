"""The server checks all form values, including those that the components exclude; a refusal is one clear sentence."""

import re
from types import SimpleNamespace

import pytest

from app.asking import read_asking
from app.page.form import _makers_values
from app.page.handlers import trouble
from app.serving.limits import Limits
from app.words import benchmark as benchmark_words
from app.words import lesson as lesson_words
from app.words import page as words
from jakiro.config import Grammar, TreeConfig
from jakiro.drafters.registry import METHODS
from tests.faults import ROOT

GOOD = {
    "question": "Why?",
    "temperature": 0.7,
    "top_p": 1,
    "top_k": 0.0,
    "seed": 3.0,
    "length": 64.0,
    "tree": words.FIXED,
    "candidates": 15.0,
    "levels": 4.0,
    "method": "jakiro",
    "alongside": True,
    "further_lanes": [],
    "numerics": words.EXACT,
    "system_prompt": " Be brief. ",
    "history": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
}


MODULES = {
    path.relative_to(ROOT / "assets" / "web").as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "assets" / "web").rglob("*.js")
}
# The form's values in the format of a link
LINKED = {name.replace("_", "-"): value for name, value in GOOD.items() if name != "history"}


def asking(**changes):
    return read_asking(**(GOOD | changes))


def test_good_values_become_settings():
    request = asking()
    assert [message["content"] for message in request.messages] == ["Be brief.", "Hi", "Hello", "Why?"]
    assert (request.params.temperature, request.params.seed, request.params.max_new_tokens) == (0.7, 3, 64)
    assert (request.tree.nodes, request.tree.depth, request.tree.policy) == (16, 4, "fixed")
    assert request.methods == ("autoregressive", "jakiro")


def test_penalties_and_the_form_of_the_answer_become_settings():
    penalties = {"min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": -1}
    params = asking(**penalties, no_repeat_ngram_size=3.0, answer_as="choice", answer_form="yes\n\n no \n").params
    assert {name: getattr(params, name) for name in penalties} == penalties
    assert (params.no_repeat_ngram_size, params.grammar) == (3, Grammar("choice", ("yes", "no")))
    named = asking(logit_bias=" 42=-5, 7=2.5 ", suppress_tokens="9, 3,3").params
    assert named.logit_bias == ((7, 2.5), (42, -5)) and named.suppress_tokens == (3, 9)
    assert asking(logit_bias=" ", suppress_tokens=None).params == asking().params
    assert asking(logit_bias={7: 2.5}, suppress_tokens=[9]).params.suppress_tokens == (9,)
    assert asking(answer_as="json", answer_form="").params.grammar == Grammar("json")
    assert asking(answer_as="free", answer_form="left from before").params.grammar is None


def test_a_grammar_that_is_none_is_refused_on_one_line():
    with pytest.raises(ValueError, match=r"^The grammar is invalid.*\Z"):
        asking(answer_as="regex", answer_form="a(")


def test_the_recommended_settings_fill_only_their_own_fields():
    updates = _makers_values({"temperature": 0.7, "top_p": 0.8}, ["temperature", "top_p", "min_p"])
    assert [update.get("value") for update in updates] == [0.7, 0.8, None]


def test_template_arguments_are_those_of_the_field_and_an_empty_field_has_none():
    assert asking(template_arguments='{"enable_thinking": false}').template_arguments == {"enable_thinking": False}
    for empty in (None, "", "  ", "{}", {}):
        assert asking(template_arguments=empty).template_arguments is None


@pytest.mark.parametrize("arguments", ["thinking", "[1]", "5", 5, [1], '{"a": "%s"}' % ("x" * 1000)])
def test_template_arguments_other_than_a_small_object_are_refused(arguments):
    with pytest.raises(ValueError, match=r"Template arguments are a JSON object.*; got .{1,90}\.$"):
        asking(template_arguments=arguments)


def test_automatic_trees_have_their_own_limits_and_plain_can_be_left_out():
    request = asking(tree=words.AUTOMATIC, alongside=False, candidates=1000, levels=None)
    assert request.tree == TreeConfig(policy="auto", nodes=64, depth=8)
    assert request.methods == ("jakiro",)


@pytest.mark.parametrize("tree", [words.AUTOMATIC, words.FIXED])
def test_copied_guesses_join_the_tree_or_race_alone(tree):
    request = asking(tree=tree, method="jakiro+prompt_lookup", further_lanes=["prompt_lookup"])
    assert request.methods == ("autoregressive", "jakiro+prompt_lookup", "prompt_lookup")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"question": ""}, "Type a question first."),
        ({"question": "a\ud800"}, "The text has half of a surrogate pair at character 1; remove it."),
        ({"temperature": None}, "Temperature must be between 0 and 2; got nothing."),
        ({"length": 0}, "Length must be a whole number of tokens, 1 or more; got 0."),
        ({"candidates": 1000}, "Guesses must be a whole number from 1 to 255; got 1000."),
        ({"levels": 99}, "Levels must be a whole number from 1 to 16; got 99."),
        ({"numerics": "exactly"}, "Arithmetic must be exact or fast; got 'exactly'."),
        ({"method": "magic"}, f"The method must be one of {', '.join(METHODS)}; got 'magic'."),
        ({"further_lanes": [["context"]]}, f"The method must be one of {', '.join(METHODS)}; got ['context']."),
        ({"further_lanes": ["medusa", "eagle2", "parallelspec"]}, "At most 4 methods race at once; you chose 5."),
        ({"repetition_penalty": None}, "Repetition penalty must be 0.1 to 10, 1 for none; got nothing."),
        ({"logit_bias": "42=-5, x=1"}, "Logit bias takes ID=BIAS, such as 42=-5; got ' x=1'."),
        ({"suppress_tokens": "the"}, "Suppressed tokens takes a comma list of whole numbers; got 'the' in it."),
        (
            {"answer_as": "xml"},
            "The format of an answer must be one of free, json, json_schema, choice, regex, lark; got 'xml'.",
        ),
        ({"history": "hello"}, words.HISTORY_NOT_MESSAGES),
        (
            {"history": [{"role": "user"}]},
            "A message needs a role (system, user, assistant) and its content as text; got {'role': 'user'}.",
        ),
    ],
)
def test_invalid_values_are_refused_in_one_sentence(changes, sentence):
    with pytest.raises(ValueError) as refusal:
        asking(**changes)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, None),
        ({"temperature": "hot"}, "Temperature must be between 0 and 2; got 'hot'."),
        ({"length": 301}, words.LENGTH_TOO_LONG.format(limit=300)),
        ({"history": []}, None),
        ({"nonsense": 1}, words.UNEXPECTED.format(kind="TypeError")),
    ],
)
def test_a_link_is_checked_as_the_form_is(values, sentence):
    service = SimpleNamespace(limits=Limits(max_new_tokens=300), methods=METHODS)
    assert trouble(service, LINKED | values) == sentence


def test_a_link_with_a_method_that_this_page_does_not_offer_says_which_it_offers(monkeypatch):
    monkeypatch.setattr("app.page.handlers.offered_methods", lambda methods: [METHODS["eagle2"]])
    service = SimpleNamespace(limits=Limits(), methods=METHODS)
    assert trouble(service, LINKED) == "The method must be one of eagle2; got 'jakiro'."
    assert trouble(service, LINKED | {"method": "eagle2"}) is None


@pytest.mark.parametrize("values", [None, "text", [], {1: 2}])
def test_values_that_are_no_form_are_refused_with_a_sentence(values):
    assert trouble(SimpleNamespace(limits=Limits(), methods=METHODS), values).endswith(".")


def test_every_word_used_by_the_scripts_exists():
    code = "".join(text for name, text in MODULES.items() if not name.startswith("benchmark"))
    defined = set(words.BROWSER) | set(lesson_words.BROWSER) | set(benchmark_words.FIRST)
    assert set(re.findall(r"say\(\"(\w+)\"", code)) <= defined


def test_every_word_is_used_by_a_script():
    code = "".join(MODULES.values())
    names = set(re.findall(r"\w+", code))
    prefixes, counted = re.findall(r"`([a-z_]+_)\$\{", code), set(re.findall(r"counted\(\"(\w+)\"", code))
    suffixes = re.findall(r"`\$\{key\}(_[a-z]+)`", code)
    for word in words.BROWSER | lesson_words.BROWSER | benchmark_words.FIRST | benchmark_words.BROWSER:
        stem = word.removeprefix("one_") if word.startswith("one_") else word.removeprefix("many_").removesuffix("s")
        is_used = word in names or stem in counted or word.startswith(tuple(prefixes)) or word.endswith(tuple(suffixes))
        assert is_used, word
