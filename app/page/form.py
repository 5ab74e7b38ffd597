"""The settings sidebar: form fields in the order in which `read_asking` takes them, and the list of known pairs."""

import json

import gradio as gr

from app.page import web
from app.page.picker import Picker
from app.words import page as words

NAMES = (
    "temperature", "top-p", "top-k", "seed", "length", "tree", "candidates", "levels", "copied", "alongside",
    "third-lane", "numerics", "system-prompt",
)  # fmt: skip
_PAIRS_TEMPLATE = '<div class="jk-pairs"></div>'


def build(picker: Picker, numerics: str = words.EXACT) -> list:
    """The sidebar; its components in the order of `NAMES`. Which of them differ from the answer, the browser marks."""
    with gr.Sidebar(open=False, position="right", label=words.SETTINGS, elem_id="settings"):
        with gr.Row():
            temperature = _number(0, words.TEMPERATURE, words.TEMPERATURE_INFO, "temperature", step=0.1)
            seed = _number(0, words.SEED, words.SEED_INFO, "seed")
        with gr.Row():
            top_p = _number(1, words.TOP_P, words.TOP_P_INFO, "top-p", step=0.05)
            top_k = _number(0, words.TOP_K, words.TOP_K_INFO, "top-k")
        length = _number(96, words.LENGTH, words.LENGTH_INFO, "length")
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
        copied = _switch(False, words.COPIED, words.COPIED_INFO, "copied")
        alongside = _switch(True, words.ALONGSIDE, words.ALONGSIDE_INFO, "alongside")
        third_lane = _switch(False, words.THIRD_LANE, words.THIRD_LANE_INFO, "third-lane")
        exactness = gr.Radio(
            [words.EXACT, words.FAST],
            value=numerics,
            label=words.NUMERICS,
            info=words.NUMERICS_INFO,
            elem_id="numerics",
        )
        system_prompt = gr.Textbox("", label=words.SYSTEM_PROMPT, lines=3, elem_id="system-prompt")
        gr.HTML(
            value={},
            html_template=_PAIRS_TEMPLATE,
            js_on_load="Jakiro.mountPairs(element, server);",
            server_functions=_choosing(picker),
            apply_default_css=False,
            elem_id="pairs",
        )
    fields = [
        temperature, top_p, top_k, seed, length, tree, candidates, levels, copied, alongside, third_lane, exactness,
        system_prompt,
    ]  # fmt: skip
    tree.change(_sizes, tree, [candidates, levels], queue=False, show_progress="hidden", api_visibility="private")
    told = f"(...values) => Jakiro.settingsChanged({json.dumps(NAMES)}, values)"
    gr.on([field.change for field in fields], None, fields, None, js=told, api_visibility="private")
    return fields


def _choosing(picker: Picker) -> list:
    def pairs(_=None) -> dict:
        return picker.listing()

    def choose_pair(name) -> str:
        return picker.choose(str(web.only(name)))

    return [pairs, choose_pair]


def _sizes(tree: str):
    """Candidates and levels act only on a fixed tree."""
    return [gr.update(interactive=tree == words.FIXED)] * 2


def _number(value: float, label: str, info: str, name: str, step: float = 1, interactive: bool = True) -> gr.Number:
    """A number field without limits of its own: what does not fit is refused by the settings, in their words."""
    return gr.Number(value, label=label, info=info, step=step, elem_id=name, min_width=100, interactive=interactive)


def _switch(value: bool, label: str, info: str, name: str) -> gr.Checkbox:
    return gr.Checkbox(value, label=label, info=info, elem_id=name)
