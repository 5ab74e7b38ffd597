"""Gradio is imported without a look at its stub files and without pandas, and works as ever."""

import subprocess
import sys

PROGRAM = """
import ast, sys
from app.slim import slim_gradio

assert "gradio" not in sys.modules
parse, parsed = ast.parse, []
ast.parse = lambda source, *rest, **named: parsed.append(source) or parse(source, *rest, **named)
before = list(sys.meta_path)
with slim_gradio():
    import gradio
ast.parse = parse
assert sys.meta_path == before
print(sum("class Textbox" in source for source in parsed if isinstance(source, str)))

class Own(gradio.Textbox):
    pass

with gradio.Blocks() as page:
    box = Own(value="as ever")
    box.change(lambda text: text, box, box)
print(box.value, len(page.fns))
print(not {"pandas", "gradio.cli"} & set(sys.modules))

from gradio.caching import _hash_repr

frame = gradio.Dataframe().postprocess([[1, 2]])
import pandas

assert frame.data == [[1, 2]] and _hash_repr(pandas.DataFrame([[1]])) != _hash_repr(pandas.DataFrame([[2]]))
"""

LAUNCHED = """
import sys
import urllib.request
from app.slim import slim_gradio

with slim_gradio():
    from app.devices.local import LocalDevice
    from app.page import build as page

def load():
    raise ValueError("no model here")

blocks = page.build(LocalDevice(load))
address = page.launch(blocks, wait=False)
assert b"gradio" in urllib.request.urlopen(address).read()
blocks._queue.event_analytics["one"] = {"function": "ask", "status": "success", "time": 1.0, "process_time": 1.0}
blocks._queue.events_recorded += 1
blocks._queue.compute_analytics_summary(list(blocks._queue.event_analytics.values()))
print(sorted({"pandas", "gradio.cli", "gradio.cli.commands.reload"} & set(sys.modules)))
blocks.close()
"""


def said(program: str) -> list[str]:
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_importing_gradio_reads_no_component_s_source_and_no_pandas():
    assert said(PROGRAM) == ["0", "as ever 1", "True"]


def test_a_page_that_answers_has_not_needed_what_was_left_out():
    assert "[]" in said(LAUNCHED)
