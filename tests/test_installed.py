"""The wheel, installed beside what it declares and nothing else, answers from its command."""

import os
import subprocess
import sys
import tomllib
import venv

import pytest

from tests import test_packaging as packaging

wheel = packaging.wheel


@pytest.mark.rare
def test_an_installed_wheel_answers(wheel, tmp_path):
    """In an environment without the page's packages; torch and what else is large lie where they lie already."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--prefix", environment, wheel],
        check=True,
        capture_output=True,
    )
    assert (site / "jakiro").is_dir()
    declared = tomllib.loads((packaging.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    packaging.link_distributions(packaging.needed_distributions(packaging.names_of(declared)), site)
    assert (site / "torch").exists() and not (site / "gradio").exists() and not (site / "pytest").exists()
    values = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}

    def jakiro(*arguments):
        """What the installed command prints."""
        command = [environment / "bin" / "python", "-I", environment / "bin" / "jakiro", *arguments]
        result = subprocess.run(command, cwd=tmp_path, env=values, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    assert "generate" in jakiro("--help")
    assert all(name in jakiro("methods") for name in ("autoregressive", "jakiro"))
    assert jakiro("generate", "--prompt", "Why is the sky blue?", "--max-new-tokens", "8").strip()
