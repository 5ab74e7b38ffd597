"""The page itself: its components, its tabs, its endpoints, and what the browser gets."""
