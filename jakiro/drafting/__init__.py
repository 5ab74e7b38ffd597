"""Deprecated import path of `jakiro.drafters`."""

from jakiro.deprecated import alias_package

alias_package(
    "jakiro.drafting",
    "jakiro.drafters",
    {
        "base": "base",
        "candidates": "candidates",
        "growing": "tree_growth",
        "heads": "head",
        "merged": "merged",
        "parallel": "parallel",
    },
)
