"""The page draws every registered method with all its words; a new method needs its registration only."""

import functools

import pytest

from jakiro.drafters.registry import METHODS, PLAIN
from tests.app.conftest import show
from tests.drafters.test_conformance import FIXED, QUESTION, SAMPLINGS
from tests.support import heads_of, tiny_generator

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def generators():
    """Return a cached generator for each head; the page receives proposers, not heads."""
    return functools.cache(tiny_generator)


@pytest.mark.parametrize("method", [name for name in METHODS if name != PLAIN.name])
def test_a_method_s_trees_are_drawn_with_every_proposer_named(method, generators, modules):
    generator = generators(heads_of(METHODS[method])[0])
    traces = {name: generator.run(QUESTION, SAMPLINGS["nucleus"], name, FIXED) for name in (PLAIN.name, method)}
    tree_steps = [step for step in traces[method].steps if len(step.nodes) > 1]
    traces_as_data = {name: trace.to_dict() for name, trace in traces.items()}
    show(modules, traces_as_data, source="opened", step=tree_steps[0].index)
    labels = [proposer["label"] for proposer in traces[method].header.proposers]
    assert modules.locator(".legend-entry .token").all_text_contents() == labels
    nodes = modules.evaluate("document.querySelectorAll('svg.tree .node:not(.root, .bonus)').length")
    assert 0 < nodes <= len(tree_steps[0].nodes) - 1
    # The plot's labels come with its library
    named = "title => document.querySelector('#host').innerText.includes(title)"
    modules.wait_for_function(named, arg=METHODS[method].title)
    page_text = modules.evaluate("document.querySelector('#host').innerText")
    assert "× as fast" in page_text and "slower" not in page_text
    assert not [word for word in ("undefined", "NaN", "[object", "null") if word in page_text]
