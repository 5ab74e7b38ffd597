"""Gradio is imported without a look at its stub files, and works as ever."""

import subprocess
import sys

PROGRAM = """
import ast, sys
from app.stubs import without_stub_files

assert "gradio" not in sys.modules
parse, parsed = ast.parse, []
ast.parse = lambda source, *rest, **named: parsed.append(source) or parse(source, *rest, **named)
before = list(sys.meta_path)
with without_stub_files():
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
"""


def test_importing_gradio_reads_no_component_s_source():
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.split("\n")[:2] == ["0", "as ever 1"]
