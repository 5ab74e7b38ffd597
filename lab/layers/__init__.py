"""Drafts that run some of the target's layers: any subset of them, or a head on top of the first ones."""
