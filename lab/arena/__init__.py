"""The arena's tables and plots, made from the raw data that ships; see docs/arena.md and docs/fair-play.md."""
