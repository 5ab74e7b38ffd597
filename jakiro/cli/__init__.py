"""The command line: its commands and their options, `doctor`, and the race in the terminal."""
