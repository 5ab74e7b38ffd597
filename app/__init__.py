"""The Gradio page over the library: handlers, packing of steps for the browser, and all words people read."""

import os

from app.proxies import ask_directly
from jakiro.system import bound_waiting

bound_waiting()
ask_directly()
# Gradio reads it when it is imported, and with an IPv6 address there finds no free port
named_host = os.environ.pop("GRADIO_SERVER_NAME") if ":" in os.environ.get("GRADIO_SERVER_NAME", "") else None
