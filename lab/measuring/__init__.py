"""Measurements for a quiet machine: the page, chats, prompts, starts, settings, and other programs beside the page."""
