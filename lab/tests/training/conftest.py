"""Fixtures of the training commands: a corpus, a target, and a trained head."""

from tests.training.test_commands import corpus_folder, first, target_folder  # noqa: F401
