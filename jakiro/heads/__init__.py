"""Draft heads: networks, training rules, and files in the formats of this package and of published heads."""
