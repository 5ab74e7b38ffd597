"""What the browser gets: the modules, the style sheet and the words of the page as one head block, and the recordings.

The files in `assets/web/` are ES modules; they are joined in the order of their imports, without a build, since one
request is faster than eighty and a saved replay page is one file. Gradio calls what they export on `window.Jakiro`.
"""

import base64
import graphlib
import json
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

from app.words import page as words
from jakiro.drafters.registry import METHODS, Methods
from jakiro.loading import registry
from jakiro.trace import Trace

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TRACES = ASSETS / "traces"
WEB = ASSETS / "web"
# Folders that come to the browser by themselves, after the page's own
APART = ("lesson", "benchmark")
_IMPORT = re.compile(r'^import \{\s*([^}]*?),?\s*\} from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
_EXPORTS = re.compile(r"export ?\{([^}]*)\};?\s*$")
# What the browser gets of a method
SHOWN_OF_METHODS = ("name", "title", "aliases", "proposers")
PLOT_TEMPLATE = ASSETS / "plots" / "template.json"
# Draws the plots. Its name holds its version, so that browsers may keep it
PLOT_LIBRARY = ASSETS / "plots" / "plotly-basic-4.1.1.min.js.gz"
STYLES = (
    "base/base.css",
    "page/page.css",
    "watch/answer.css",
    "plots/plots.css",
    "tree/tree.css",
    "race/race.css",
    "chat/chat.css",
    "share/share.css",
    "page/narrow.css",
    "base/hall.css",
    "base/access.css",
)


def script(known: Methods = METHODS) -> str:
    """All modules in order; words, drafting methods and how plots look first."""
    given = {
        "words": words.BROWSER,
        "methods": [{name: method.to_dict()[name] for name in SHOWN_OF_METHODS} for method in known.values()],
        "headMinutes": registry.minutes_of_heads(),
        "plotTemplate": json.loads(PLOT_TEMPLATE.read_text(encoding="utf-8")),
        "plotlyFile": PLOT_LIBRARY.name,
    }
    own = [name for name in module_names() if name.split("/")[0] not in APART]
    return f"window.Jakiro = {for_script(given)};\n{joined(own)}"


def plotly_element() -> str:
    """Plotly as a saved page carries it, see `assets/web/plots/library.js`."""
    packed = base64.b64encode(PLOT_LIBRARY.read_bytes()).decode()
    return f'<script type="text/plain" id="jakiro-plotly">{packed}</script>'


def style() -> str:
    return tight(STYLES)


def tight(names: Iterable[str]) -> str:
    """Style sheets, one after the other, without the comments and spaces that no browser needs."""
    text = "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)
    return re.sub(r"/\*.*?\*/|(?<=[;:,>])\s+|\s*(?=[{}>])|(?<=[{}])\s+|;\s*(?=})", "", text)


def module_names(folder: str = "") -> list[str]:
    """The modules of a folder of `assets/web/`, all of them without one."""
    return sorted(path.relative_to(WEB).as_posix() for path in (WEB / folder).rglob("*.js"))


def joined(names: Iterable[str]) -> str:
    """Modules as one script: each is a function, called after those it imports from.

    What a module imports from one that is not among them, the page has already.

    Raises:
        graphlib.CycleError: modules import each other in a circle.
    """
    texts = {name: (WEB / name).read_text(encoding="utf-8") for name in names}
    imported = {
        name: {posixpath.normpath(posixpath.join(posixpath.dirname(name), path)): what for what, path in found}
        for name, text in texts.items()
        for found in [_IMPORT.findall(text)]
    }
    within = {name: [other for other in others if other in texts] for name, others in imported.items()}
    order = list(graphlib.TopologicalSorter(within).static_order())
    calls = [_function(name, texts[name], imported[name], texts) for name in order]
    return "(() => {\n" + "\n".join(calls) + f"\nObject.assign(Jakiro, {', '.join(map(_variable, order))});\n}})();"


def _variable(name: str) -> str:
    return re.sub(r"\W", "_", name.removesuffix(".js"))


def _function(name: str, text: str, imported: dict[str, str], known: Iterable[str]) -> str:
    """One module as a variable that holds its exports; without indentation and comments, which nobody loads."""
    exports = _EXPORT.findall(text)
    for written in _EXPORTS.findall(text):  # as bundlers end a module
        exports += [": ".join(reversed(one.split(" as "))) for one in written.split(",")]
    text = _EXPORTS.sub("", _EXPORT.sub("", _IMPORT.sub("", text)))
    takes = [
        f"const {{ {what} }} = {_variable(path) if path in known else 'Jakiro'};" for path, what in imported.items()
    ]
    lines = (line.lstrip() for line in text.splitlines())
    body = [line for line in lines if line and not line.startswith("//")]
    return "\n".join(
        [f"const {_variable(name)} = (() => {{", *takes, *body, f"return {{ {', '.join(exports)} }};", "})();"]
    )


def for_script(value) -> str:
    """A value as JSON that can stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def head(known: Methods = METHODS) -> str:
    """The block for the page's <head>, which tells the browser of the drafting methods that there are."""
    return f'<style id="jakiro-style">\n{style()}</style>\n<script id="jakiro-code">\n{script(known)}</script>'


def recording_text(traces: dict[str, Trace]) -> str:
    """Traces by method as one recording, each as the library's own JSON writes it; called by the last question."""
    header = next(iter(traces.values())).header
    asked = [message["content"] for message in header.messages if message["role"] == "user"]
    title = json.dumps(asked[-1] if asked else header.raw_prompt or "")
    written = ",".join(f"{json.dumps(method)}:{trace.to_json()}" for method, trace in traces.items())
    return f'{{"title":{title},"why":"","traces":{{{written}}}}}'


def recording_names() -> list[str]:
    """Names of the shipped recordings, in the order they are shown."""
    return sorted(path.stem for path in TRACES.glob("*.json"))


def recording(name: str) -> str | None:
    """One shipped recording as its file's text: title, why it is worth seeing, and traces; None for an unknown name."""
    return (TRACES / f"{name}.json").read_text(encoding="utf-8") if name in recording_names() else None
