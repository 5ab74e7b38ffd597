"""The settings drawer: form fields with the argument names of `read_asking`, and the list of models."""

import json
from dataclasses import asdict

import gradio as gr

from app.asking import MOST_LANES
from app.page.offered import offered_methods
from app.page.picker import Picker
from app.page.view import build_view
from app.serving.worker import USUAL_LENGTH
from app.words import page as words
from jakiro.config import SamplingParams
from jakiro.drafters.registry import DEFAULT, METHODS, Methods


def build(picker: Picker, numerics: str = words.EXACT, methods: Methods = METHODS) -> list:
    """Build the settings drawer and return its fields; the name of a field is its `elem_id`.

    Args:
        numerics: initial value of the field, `words.EXACT` or `words.FAST`.
        methods: known methods; the fields list those of `offered_methods`.
    """
    with gr.Column(elem_id="settings"):
        with gr.Column(elem_id="settings-head"):
            with gr.Row():
                gr.Markdown(f"## {words.SETTINGS}")
                reset = gr.Button(words.RESET, elem_id="reset-settings", size="sm", min_width=100)
                close = gr.Button(words.CLOSE_SETTINGS, elem_id="close-settings", size="sm", min_width=60)
            scripts = {close: "toggleSettings(false)", reset: "resetForm()"}
            with gr.Row(elem_id="settings-groups"):
                for group in words.GROUPS:
                    link = gr.Button(group, elem_id=f"to-{group.lower()}", size="sm", min_width=0)
                    scripts[link] = f"openGroup('{group.lower()}')"
        for button, script in scripts.items():
            button.click(None, None, None, js=f"() => {{ Jakiro.{script}; return []; }}", api_visibility="private")
        with gr.Column(elem_id="recommended"):
            gr.Markdown(words.MAKERS_INFO)
            with gr.Row():
                makers = gr.Button(words.MAKERS, elem_id="makers-settings", size="sm", min_width=100)
                greedy = gr.Button(words.GREEDY, elem_id="greedy", size="sm", min_width=60)
        _heading(words.GROUP_ANSWER)
        length = _number(USUAL_LENGTH, words.LENGTH, words.LENGTH_INFO, "length")
        system_prompt = _text(words.SYSTEM_PROMPT, None, "system-prompt", lines=3)
        alongside = gr.Checkbox(True, label=words.ALONGSIDE, info=words.ALONGSIDE_INFO, elem_id="alongside")
        _heading(words.GROUP_SAMPLING)
        with gr.Row():
            temperature = _number(0, words.TEMPERATURE, words.TEMPERATURE_INFO, "temperature", step=0.1)
            seed = _number(0, words.SEED, words.SEED_INFO, "seed")
        with gr.Row():
            top_p = _number(1, words.TOP_P, words.TOP_P_INFO, "top-p", step=0.05)
            top_k = _number(0, words.TOP_K, words.TOP_K_INFO, "top-k")
        with gr.Row():
            min_p = _number(0, words.MIN_P, words.MIN_P_INFO, "min-p", step=0.05)
            repetition = _number(1, words.REPETITION, words.REPETITION_INFO, "repetition-penalty", step=0.05)
        with gr.Row():
            presence = _number(0, words.PRESENCE, words.PRESENCE_INFO, "presence-penalty", step=0.1)
            frequency = _number(0, words.FREQUENCY, words.FREQUENCY_INFO, "frequency-penalty", step=0.1)
        runs = _number(0, words.RUNS, words.RUNS_INFO, "no-repeat-ngram-size")
        with gr.Row():
            bias = _text(words.BIAS, words.BIAS_INFO, "logit-bias")
            suppressed = _text(words.SUPPRESSED, words.SUPPRESSED_INFO, "suppress-tokens")
        _heading(words.GROUP_FORMAT)
        answer_as = _choice(
            list(words.ANSWER_FORMS), words.FREE_TEXT, words.ANSWER_AS, words.ANSWER_AS_INFO, "answer-as"
        )
        answer_form = _text(words.ANSWER_FORM, words.ANSWER_FORM_INFO, "answer-form", lines=2)
        _heading(words.GROUP_DRAFTING)
        drafting = [(method.title, method.name) for method in offered_methods(methods)]
        method = _choice(drafting, DEFAULT.name, words.METHOD, words.METHOD_INFO, "method")
        several = {"multiselect": True, "max_choices": MOST_LANES - 1}
        further_lanes = _choice(drafting, [], words.FURTHER_LANES, words.FURTHER_LANES_INFO, "further-lanes", **several)
        tree = _either(words.TREES, words.AUTOMATIC, words.TREE, words.TREE_INFO, "tree")
        with gr.Row():
            candidates = _number(23, words.CANDIDATES, words.CANDIDATES_INFO, "candidates", interactive=False)
            levels = _number(5, words.LEVELS, words.LEVELS_INFO, "levels", interactive=False)
        exactness = _either(words.ARITHMETIC, numerics, words.NUMERICS, words.NUMERICS_INFO, "numerics")
        _heading(words.GROUP_MODEL)
        template_arguments = _text(words.TEMPLATE_ARGUMENTS, words.TEMPLATE_ARGUMENTS_INFO, "template-arguments")
        functions = {
            "pairs": picker.listing,
            "choose_pair": lambda name: picker.choose(str(name)),
            "cancel": picker.cancel,
        }
        build_view("pairs", "mountPairs(element, server)", functions, "pairs")
    fields = [
        temperature, top_p, top_k, seed, length, tree, candidates, levels, method, alongside, further_lanes, exactness,
        system_prompt, template_arguments, min_p, repetition, presence, frequency, runs, answer_as, answer_form,
        bias, suppressed,
    ]  # fmt: skip
    sampling_fields = [temperature, top_p, top_k, min_p, repetition, presence, frequency, runs]
    names = [field.elem_id.replace("-", "_") for field in sampling_fields]
    for button, values in (
        (makers, lambda: _makers_values(picker.makers_settings(), names)),
        (greedy, lambda: _values(asdict(SamplingParams()), names)),
    ):
        button.click(values, None, sampling_fields, queue=False, show_progress="hidden", api_visibility="private")
    tree.change(_sizes, tree, [candidates, levels], queue=False, show_progress="hidden", api_visibility="private")
    gr.on(
        [field.change for field in fields], None, fields, None, js=calling("settingsChanged", fields),
        api_visibility="private",
    )  # fmt: skip
    return fields


def calling(function: str, fields: list) -> str:
    """Return the script that calls a function of the page with the names and values of these fields."""
    return f"(...values) => Jakiro.{function}({json.dumps([field.elem_id for field in fields])}, values)"


def _makers_values(settings: dict, names: list[str]) -> list:
    """Return updates with the recommended sampling settings; without any, show a notice."""
    if not settings:
        gr.Info(words.NO_MAKERS)
    return _values(settings, names)


def _values(settings: dict, names: list[str]) -> list:
    """Return updates of these fields; fields without a setting keep their values."""
    return [gr.update(value=settings[name]) if name in settings else gr.update() for name in names]


def _sizes(tree: str):
    """Enable candidates and levels only for a fixed tree."""
    return [gr.update(interactive=tree == words.FIXED)] * 2


def _number(value: float, label: str, info: str, name: str, step: float = 1, interactive: bool = True) -> gr.Number:
    """Return a number field without limits; `SamplingParams` rejects invalid values with its own messages."""
    return gr.Number(value, label=label, info=info, step=step, elem_id=name, min_width=100, interactive=interactive)


def _heading(text: str) -> gr.Markdown:
    """Return the heading of a group of fields."""
    return gr.Markdown(f"### {text}", elem_id=f"group-{text.lower()}")


def _choice(choices: list[tuple[str, str]], value, label: str, info: str, name: str, **several) -> gr.Dropdown:
    return gr.Dropdown(choices, value=value, label=label, info=info, elem_id=name, filterable=False, **several)


def _either(choices: tuple[tuple[str, str], ...], value: str, label: str, info: str, name: str) -> gr.Radio:
    return gr.Radio(list(choices), value=value, label=label, info=info, elem_id=name)


def _text(label: str, info: str | None, name: str, lines: int = 1) -> gr.Textbox:
    return gr.Textbox("", label=label, info=info, lines=lines, elem_id=name, min_width=100)
