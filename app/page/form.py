"""The settings drawer: form fields, named as `read_asking` takes them, and the list of known pairs."""

import json
from dataclasses import asdict

import gradio as gr

from app.asking import MOST_LANES
from app.page.drawn import drawn
from app.page.offered import offered_methods
from app.page.picker import Picker
from app.serving.worker import USUAL_LENGTH
from app.words import page as words
from jakiro.config import SamplingParams
from jakiro.methods import DEFAULT, METHODS, Methods


def build(picker: Picker, numerics: str = words.EXACT, known: Methods = METHODS) -> list:
    """The drawer; returns its fields. Which of them differ from the answer on screen, the browser marks."""
    with gr.Column(elem_id="settings"):
        close = gr.Button(words.CLOSE_SETTINGS, elem_id="close-settings", size="sm")
        close.click(None, None, None, js="() => { Jakiro.toggleSettings(false); return []; }", api_visibility="private")
        length = _number(USUAL_LENGTH, words.LENGTH, words.LENGTH_INFO, "length")
        drafting = [(method.title, method.name) for method in offered_methods(known)]
        method = _choice(drafting, DEFAULT.name, words.METHOD, words.METHOD_INFO, "method")
        alongside = gr.Checkbox(True, label=words.ALONGSIDE, info=words.ALONGSIDE_INFO, elem_id="alongside")
        further_lanes = gr.Dropdown(
            drafting,
            value=[],
            multiselect=True,
            max_choices=MOST_LANES - 1,
            label=words.FURTHER_LANES,
            info=words.FURTHER_LANES_INFO,
            elem_id="further-lanes",
            filterable=False,
        )
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
            bias = gr.Textbox("", label=words.BIAS, info=words.BIAS_INFO, elem_id="logit-bias", min_width=100)
            suppressed = gr.Textbox(
                "", label=words.SUPPRESSED, info=words.SUPPRESSED_INFO, elem_id="suppress-tokens", min_width=100
            )
        with gr.Row():
            makers = gr.Button(words.MAKERS, elem_id="makers-settings", size="sm", min_width=100)
            greedy = gr.Button(words.GREEDY, elem_id="greedy", size="sm", min_width=100)
        answer_as = _choice(
            list(words.ANSWER_FORMS), words.FREE_TEXT, words.ANSWER_AS, words.ANSWER_AS_INFO, "answer-as"
        )
        answer_form = gr.Textbox(
            "", label=words.ANSWER_FORM, info=words.ANSWER_FORM_INFO, lines=2, elem_id="answer-form"
        )
        tree = gr.Radio(
            [words.AUTOMATIC, words.FIXED],
            value=words.AUTOMATIC,
            label=words.TREE,
            info=words.TREE_INFO,
            elem_id="tree",
        )
        with gr.Row():
            candidates = _number(23, words.CANDIDATES, words.CANDIDATES_INFO, "candidates", interactive=False)
            levels = _number(5, words.LEVELS, words.LEVELS_INFO, "levels", interactive=False)
        exactness = gr.Radio(
            [words.EXACT, words.FAST],
            value=numerics,
            label=words.NUMERICS,
            info=words.NUMERICS_INFO,
            elem_id="numerics",
        )
        system_prompt = gr.Textbox("", label=words.SYSTEM_PROMPT, lines=3, elem_id="system-prompt")
        template_arguments = gr.Textbox(
            "", label=words.TEMPLATE_ARGUMENTS, info=words.TEMPLATE_ARGUMENTS_INFO, elem_id="template-arguments"
        )
        functions = {
            "pairs": picker.listing,
            "choose_pair": lambda name: picker.choose(str(name)),
            "cancel": picker.cancel,
        }
        drawn("pairs", "mountPairs(element, server)", functions, "pairs")
    fields = [
        temperature, top_p, top_k, seed, length, tree, candidates, levels, method, alongside, further_lanes, exactness,
        system_prompt, template_arguments, min_p, repetition, presence, frequency, runs, answer_as, answer_form,
        bias, suppressed,
    ]  # fmt: skip
    asked = [temperature, top_p, top_k, min_p, repetition, presence, frequency, runs]
    names = [field.elem_id.replace("-", "_") for field in asked]
    for button, values in (
        (makers, lambda: _makers_values(picker.makers_settings(), names)),
        (greedy, lambda: _values(asdict(SamplingParams()), names)),
    ):
        button.click(values, None, asked, queue=False, show_progress="hidden", api_visibility="private")
    tree.change(_sizes, tree, [candidates, levels], queue=False, show_progress="hidden", api_visibility="private")
    gr.on(
        [field.change for field in fields], None, fields, None, js=calling("settingsChanged", fields),
        api_visibility="private",
    )  # fmt: skip
    return fields


def calling(function: str, fields: list) -> str:
    """The script that calls a function of the page with the names and the values of these fields."""
    return f"(...values) => Jakiro.{function}({json.dumps([field.elem_id for field in fields])}, values)"


def by_name(fields: list, values: tuple) -> dict:
    """What the fields hold, by the names that `read_asking` takes."""
    return {field.elem_id.replace("-", "_"): value for field, value in zip(fields, values, strict=True)}


def _makers_values(settings: dict, names: list[str]) -> list:
    """What the fields get of what a model's makers ask for; nothing where they ask for nothing."""
    if not settings:
        gr.Info(words.NO_MAKERS)
    return _values(settings, names)


def _values(settings: dict, names: list[str]) -> list:
    """Updates of the fields of these names; those that the settings leave out stay as they are."""
    return [gr.update(value=settings[name]) if name in settings else gr.update() for name in names]


def _sizes(tree: str):
    """Candidates and levels act only on a fixed tree."""
    return [gr.update(interactive=tree == words.FIXED)] * 2


def _number(value: float, label: str, info: str, name: str, step: float = 1, interactive: bool = True) -> gr.Number:
    """A number field without limits of its own: what does not fit is refused by the settings, in their words."""
    return gr.Number(value, label=label, info=info, step=step, elem_id=name, min_width=100, interactive=interactive)


def _choice(choices: list[tuple[str, str]], value: str, label: str, info: str, name: str) -> gr.Dropdown:
    return gr.Dropdown(choices, value=value, label=label, info=info, elem_id=name, filterable=False)
