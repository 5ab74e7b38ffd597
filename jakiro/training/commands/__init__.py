"""The training commands, one file each; the command line has `corpus`, `train`, `evaluate` and `trigrams`."""
