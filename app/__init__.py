"""The Gradio page over the library: handlers, packing of steps for the browser, and all words people read."""

from jakiro.system import bound_waiting

bound_waiting()
