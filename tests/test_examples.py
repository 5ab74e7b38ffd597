"""The Python examples of the documents run on the default pair, in the order in which they are printed."""

import re
import subprocess
import sys

import pytest

from jakiro.loading.embedded import embedded_file
from tests.faults import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.rare
@pytest.mark.parametrize("document", ["README.md", "docs/library.md", "docs/package.md"])
def test_the_examples_of_a_document_run_in_order(document, tmp_path):
    try:
        embedded_file()
    except ValueError as error:
        pytest.skip(f"the default model is missing: {error}")
    code = "\n".join(BLOCK.findall((ROOT / document).read_text(encoding="utf-8")))
    assert "from_pretrained" in code
    # Relative paths of the checkout are readable, and nothing is written into it
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
