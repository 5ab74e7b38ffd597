"""Drafting methods: their contract, growth and merging of trees, and one module per method."""
