"""Data for the browser: the page's scripts, style sheets and words as one head block, and the recordings.

`npm run build` joins the modules of `assets/web/` into the files of `assets/bundle/`, which are committed, so that
running the page needs no Node. Gradio calls what the modules export on `window.Jakiro`.
"""

import base64
import json
from functools import cache
from pathlib import Path

from app.words import page as words
from jakiro.drafters.registry import METHODS, Methods
from jakiro.loading import registry
from jakiro.trace import Trace

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TRACES = ASSETS / "traces"
BUNDLE = ASSETS / "bundle"
# A saved replay; the browser and `app.tools.replay` fill it in. It may load nothing from elsewhere
REPLAY_TEMPLATE = (ASSETS / "web" / "page" / "replay.html").read_text(encoding="utf-8")
# Fields of a method that the browser gets
SHOWN_OF_METHODS = ("name", "title", "aliases", "proposers")
PLOT_TEMPLATE = ASSETS / "plots" / "template.json"
# Draws the plots. Its name holds its version, so that browsers may keep it
PLOT_LIBRARY = ASSETS / "plots" / "plotly-basic-4.1.1.min.js.gz"


@cache
def bundle(name: str) -> str:
    """Return a built file of `assets/bundle/`."""
    return (BUNDLE / name).read_text(encoding="utf-8")


def script(methods: Methods = METHODS, title: str = words.TITLE) -> str:
    """Return the page's script, after its words, drafting methods and the look of plots."""
    data = {
        "words": words.BROWSER | {"title": title},
        "methods": [{name: method.to_dict()[name] for name in SHOWN_OF_METHODS} for method in methods.values()],
        "headMinutes": registry.minutes_of_heads(),
        "plotTemplate": json.loads(PLOT_TEMPLATE.read_text(encoding="utf-8")),
        "plotlyFile": PLOT_LIBRARY.name,
        "replayTemplate": REPLAY_TEMPLATE,
    }
    return f"window.Jakiro = {for_script(data)};\n{bundle('page.js')}"


def plotly_element() -> str:
    """Return the element with which a saved page contains Plotly; see `assets/web/plots/library.js`."""
    packed = base64.b64encode(PLOT_LIBRARY.read_bytes()).decode()
    return f'<script type="text/plain" id="jakiro-plotly">{packed}</script>'


def style() -> str:
    """Return the page's style sheet."""
    return bundle("page.css")


def for_script(value) -> str:
    """Return a value as JSON that is safe inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def head(methods: Methods = METHODS, title: str = words.TITLE, host_style: str = "") -> str:
    """Return the block for the page's <head>, with the available drafting methods and the host's title and style."""
    styles = f"{style()}{host_style.replace('</', '')}"
    return f'<style id="jakiro-style">\n{styles}</style>\n<script id="jakiro-code">\n{script(methods, title)}</script>'


def recording_text(traces: dict[str, Trace]) -> str:
    """Return traces by method as one recording, each as the library's own JSON; its title is the last question."""
    header = next(iter(traces.values())).header
    questions = [message["content"] for message in header.messages if message["role"] == "user"]
    title = json.dumps(questions[-1] if questions else header.raw_prompt or "")
    written = ",".join(f"{json.dumps(method)}:{trace.to_json()}" for method, trace in traces.items())
    return f'{{"title":{title},"why":"","traces":{{{written}}}}}'


def recording_names() -> list[str]:
    """Return the names of the shipped recordings, in display order."""
    return sorted(path.stem for path in TRACES.glob("*.json"))


def recording(name: str) -> str | None:
    """Return the text of a shipped recording (title, reason, traces); None for an unknown name."""
    return (TRACES / f"{name}.json").read_text(encoding="utf-8") if name in recording_names() else None
