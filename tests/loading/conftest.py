"""Fixtures of the tests of loading."""

import pytest

from jakiro.loading import hub, weights


@pytest.fixture(autouse=True)
def hub_answers(monkeypatch, request):
    """Skip the check that the Hub answers in tests that replace its downloads."""
    if "without_hub" not in request.fixturenames:
        monkeypatch.setattr(hub, "require_hub", lambda name: None)
        monkeypatch.setattr(weights, "require_hub", lambda name: None)
