"""The Gradio page over the library: handlers, packing of steps for the browser, and all words people read."""

import os

# Model, server and often the browser share the cores here. GNU OpenMP's threads otherwise spin for milliseconds at
# every barrier and keep the others from a core; the library alone leaves this as it is. Read when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
