"""The leaderboard of all methods: with trees of its own best size for speed, with equal ones for acceptance."""
