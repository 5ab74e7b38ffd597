"""A component that the browser draws by itself; the server gives it functions to call."""

from collections.abc import Callable

import gradio as gr


def drawn(elem_id: str, mount: str, functions: list[Callable], kind: str = "view", tab: str = "") -> gr.HTML:
    """An empty element for the browser to fill.

    Args:
        mount: the call that fills it, of `Jakiro`'s functions; it may use element, props, watch and server.
        functions: what the browser may call, by their names.
        kind: its class is `jk-` and this. tab: the tab that it belongs to, where it is one.
    """
    classes, data = (f"jk-view jk-{tab}", f' data-tab="{tab}"') if tab else (f"jk-{kind}", "")
    return gr.HTML(
        value={},
        html_template=f'<div class="{classes}"{data}></div>',
        js_on_load=f"Jakiro.{mount};",
        server_functions=functions,
        apply_default_css=False,
        elem_id=elem_id,
    )
