"""What drafting methods share: their protocols, growing and merging trees, limits."""
