"""Experimental drafting methods, one file each; none ships a head, and none is the fastest in any category."""

from lab.methods import distillspec, exit, gsd, mcsd_exit, mcsd_replacing, s2d, skip

METHODS = (
    mcsd_replacing.METHOD,
    gsd.METHOD,
    skip.METHOD,
    exit.METHOD,
    distillspec.METHOD,
    s2d.METHOD,
    mcsd_exit.METHOD,
)
