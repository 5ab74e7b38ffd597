"""A component that the browser draws; it can call functions of the server."""

import inspect
from collections.abc import Callable

import gradio as gr


def build_view(elem_id: str, mount: str, functions: dict[str, Callable], kind: str = "view", tab: str = "") -> gr.HTML:
    """Return an empty element for the browser to fill.

    Args:
        mount: call of a function of `Jakiro` that fills it; it may use element, props, watch and server.
        functions: functions for the browser by name; each takes one argument or none.
        kind: the class of the element is `jk-` and this.
        tab: name of the tab, if the element is one.
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
    """Return the function for calls by Gradio, which may wrap its argument in a list or omit it."""
    takes = len(inspect.signature(function).parameters)

    def called(data=None):
        return function(*[data[0] if isinstance(data, list) and data else data][:takes])

    called.__name__ = name
    return called
