"""Packaging: pins, front matter, package data, and no path of a personal machine."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import jakiro
from jakiro.cli import errors
from jakiro.heads.config import KIND
from jakiro.heads.kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent
# Folders of assets/ that only the page reads; it runs from a checkout or a Space
PAGE_FOLDERS = {"bundle", "plots", "site", "traces", "web"}
# Dependencies of transformers and accelerate, which choose the versions; a Space has its own huggingface_hub
TRANSITIVE = {"httpx2", "huggingface_hub", "jinja2", "numpy", "psutil", "tokenizers"}


def requirements(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    named = [line for line in lines if line and line[0] not in "#-"]
    matches = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?(==|>=)([\w.]+)(?:,<[\w.]+)?", line) for line in named]
    assert all(matches), lines
    return {match[1]: (match[2], match[3]) for match in matches}


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def front_matter():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return yaml.safe_load(text.split("---\n")[1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build a wheel from a copy, so that the checkout stays clean."""
    import shutil

    folder = tmp_path_factory.mktemp("build")
    for name in ("jakiro", "assets"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "docs").mkdir()
    for name in ("pyproject.toml", "docs/package.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    options = "pip wheel --no-deps --no-build-isolation --no-index -w out ."
    subprocess.run([sys.executable, "-m", *options.split()], cwd=folder, check=True, capture_output=True)
    return next((folder / "out").glob("*.whl"))


def test_one_version_is_named_everywhere(project):
    version = project["project"]["version"]
    assert jakiro.__version__ == version
    released = re.search(r"^## \[(\d.+?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (released[1], released[2]) == (version, citation["date-released"]) and citation["version"] == version


def test_the_front_matter_is_what_a_space_expects(front_matter, project):
    assert front_matter["sdk"] == "gradio"
    assert requirements("requirements.txt")["gradio"] == ("==", str(front_matter["sdk_version"]))
    assert front_matter["app_file"] == "app.py"
    assert front_matter["python_version"] == "3.12"
    assert front_matter["license"] == project["project"]["license"].lower()
    assert len(front_matter["short_description"]) <= 60


def needed_distributions(names):
    """Return the names of all distributions that pip installs for these names in this Python."""
    visited, waiting = set(), [(name, ("",)) for name in names]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in visited:
            continue
        visited.add((name, extras))
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append((requirement.name, ("", *sorted(requirement.extras))))
    return {name for name, _ in visited}


def link_distributions(names, folder):
    """Link the files of these distributions into a folder."""
    for name in names:
        for entry in {file.parts[0] for file in distribution(name).files} - {".."}:
            link = folder / entry
            if not link.exists() and entry != "__pycache__":
                link.symlink_to(distribution(name).locate_file(entry))


@pytest.mark.rare
def test_page_modules_need_only_requirements_txt(tmp_path):
    """Import every module with only the distributions of requirements.txt on the path."""
    link_distributions(needed_distributions(requirements("requirements.txt")), tmp_path)
    assert (tmp_path / "gradio").exists() and not (tmp_path / "pytest").exists()
    code = f"""
import importlib, pkgutil, sys
sys.path += {[str(tmp_path), str(ROOT)]!r}
import app, jakiro
for package in (app, jakiro):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.startswith("app.devices.ray_") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
from app.devices import local as local_device
from app.page import build as page
page.build(local_device.LocalDevice(object))
"""
    result = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# Source: docs/hosting.md
ZEROGPU_OFFERS = {"2.8.0", "2.9.1", "2.10.0", "2.11.0"}


def test_torch_versions_of_space_and_demo_are_supported(project):
    (requirement,) = (line for line in project["project"]["dependencies"] if line.startswith("torch"))
    (for_demo,) = re.findall(r"^TORCH := torch==(\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    on_a_space = requirements("requirements.txt")["torch"][1]
    bounds = Requirement(requirement).specifier
    assert for_demo in bounds and on_a_space in bounds and on_a_space in ZEROGPU_OFFERS


def names_of(lines):
    """Return the names of the distributions in lines of pyproject.toml."""
    return {re.match(r"[\w-]+", line)[0] for line in lines}


def test_dependencies_are_pinned_exactly_and_declared_in_the_project(project):
    pins = requirements("requirements.txt") | requirements("requirements-dev.txt")
    assert {operator for operator, _ in pins.values()} == {"=="}
    extras = project["project"]["optional-dependencies"]
    needed = names_of([*project["project"]["dependencies"], *extras["page"]])
    assert needed == set(requirements("requirements.txt")) | TRANSITIVE
    assert set(extras["page"]) <= {f"{name}=={pin[1]}" for name, pin in requirements("requirements.txt").items()}
    assert names_of([*extras["train"], *extras["serve"]]) <= pins.keys()


def test_contributing_lists_every_dependency(project):
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").rpartition("| Package | Why |")[2]
    listed = set(
        re.findall(r"[\w-]+", " ".join(row.split("|")[1] for row in table.splitlines() if row.count("|") == 3))
    )
    extras = project["project"]["optional-dependencies"].values()
    declared = names_of([*project["project"]["dependencies"], *(line for lines in extras for line in lines)])
    assert (
        not (declared | requirements("requirements.txt").keys() | requirements("requirements-dev.txt").keys()) - listed
    )


def test_every_package_on_disk_is_listed(project):
    packages = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "jakiro").rglob("*.py")}
    assert set(project["tool"]["setuptools"]["packages"]) == packages | {"jakiro.assets"}


@pytest.mark.rare
def test_wheel_contains_the_library_and_its_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = {path.name for path in (ROOT / "assets").iterdir() if path.is_dir()} - PAGE_FOLDERS
    assert {"heads", "prompts"} <= folders
    shipped = [path for folder in folders for path in (ROOT / "assets" / folder).rglob("*")]
    missing = {
        path for path in shipped if path.is_file() and f"jakiro/{path.relative_to(ROOT).as_posix()}" not in names
    }
    # Heads of kinds that only lab registers are not shipped
    heads = {path.parent: json.loads(path.read_text("utf-8")) for path in ROOT.glob("assets/heads/*/config.json")}
    lab_heads = [folder for folder, config in heads.items() if config[KIND] not in KINDS]
    assert missing == {file for folder in lab_heads for file in folder.iterdir()}
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"jakiro"}
    prefixes = tuple(f"jakiro/assets/{folder}/" for folder in PAGE_FOLDERS)
    page_files = {name for name in names if name.startswith(prefixes)}
    assert page_files == {"jakiro/assets/plots/template.json"}
    assert "jakiro/py.typed" in names


def test_metadata_describe_the_package_and_name_extras_that_exist(wheel, project):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    headers, _, description = archive.read(name).decode("utf-8").partition("\n\n")
    assert description.startswith("# Jakiro\n")
    assert re.search("^Author: .", headers, re.M) and re.search("^Project-URL: Paper, https://", headers, re.M)
    for version in ("3.11", "3.12", "3.13"):
        assert f"Classifier: Programming Language :: Python :: {version}\n" in headers
    extras = project["project"]["optional-dependencies"]
    for package, extra in errors.EXTRAS.items():
        assert package in names_of(extras[extra])


def test_hosted_workflow_uses_the_torch_of_the_makefile():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    pinned = re.search(r"^TORCH := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1]
    job = workflow["jobs"]["test"]
    assert job["steps"][-1]["run"] == f"make test TORCH={pinned}+cpu"
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]


def test_tracked_files_are_small_and_contain_no_personal_paths():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    assert all(path.stat().st_size < 16 * 1024 * 1024 for path in paths)
    assert sum(path.stat().st_size for path in paths) <= 60_000_000
    personal = re.compile(r"/(?:home/(?!jakiro)|Users/|root/|work/)\w+")
    endings, names = {".py", ".md", ".toml", ".txt", ".js", ".css"}, {"Makefile", "Dockerfile", "run"}
    for path in paths:
        if path.suffix in endings or path.name in names:
            assert not personal.search(path.read_text(encoding="utf-8")), path


@pytest.mark.rare
def test_installed_wheel_generates_text(wheel, tmp_path):
    """Install into an environment without the page's packages; torch and other large packages are linked."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--prefix", environment, wheel],
        check=True,
        capture_output=True,
    )
    assert (site / "jakiro").is_dir()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    link_distributions(needed_distributions(names_of(declared)), site)
    assert (site / "torch").exists() and not (site / "gradio").exists() and not (site / "pytest").exists()
    values = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}

    def jakiro(*arguments):
        """Run the installed command and return its output."""
        command = [environment / "bin" / "python", "-I", environment / "bin" / "jakiro", *arguments]
        result = subprocess.run(command, cwd=tmp_path, env=values, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    assert "generate" in jakiro("--help")
    assert all(name in jakiro("methods") for name in ("autoregressive", "jakiro"))
    assert jakiro("generate", "--prompt", "Why is the sky blue?", "--max-new-tokens", "8").strip()
