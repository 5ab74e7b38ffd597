"""Training draft heads: their data, the recipe, what a head is worth, and the commands."""
