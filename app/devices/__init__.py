"""Devices that run the answers: a model in this process, a borrowed GPU on Spaces, or workers of a Ray cluster."""
