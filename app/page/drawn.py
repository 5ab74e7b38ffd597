"""A component that the browser draws by itself; the server gives it functions to call."""

import inspect
from collections.abc import Callable

import gradio as gr


def drawn(elem_id: str, mount: str, functions: dict[str, Callable], kind: str = "view", tab: str = "") -> gr.HTML:
    """An empty element for the browser to fill.

    Args:
        mount: the call that fills it, of `Jakiro`'s functions; it may use element, props, watch and server.
        functions: what the browser may call, by name; each takes one argument or none.
        kind: its class is `jk-` and this. tab: the tab that it belongs to, where it is one.
    """
    classes, data = (f"jk-view jk-{tab}", f' data-tab="{tab}"') if tab else (f"jk-{kind}", "")
    return gr.HTML(
        value={},
        html_template=f'<div class="{classes}"{data}></div>',
        js_on_load=f"server = Jakiro.served(server); Jakiro.{mount};",
        server_functions=[_called_by_browser(*item) for item in functions.items()],
        apply_default_css=False,
        elem_id=elem_id,
    )


def _called_by_browser(name: str, function: Callable) -> Callable:
    """The function as Gradio calls it: its one argument may come in a list, or be missing."""
    takes = len(inspect.signature(function).parameters)

    def called(given=None):
        return function(*[given[0] if isinstance(given, list) and given else given][:takes])

    called.__name__ = name
    return called
