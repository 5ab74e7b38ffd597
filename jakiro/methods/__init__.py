"""The drafting methods, one file each; registering one here is all it takes to have it everywhere."""
