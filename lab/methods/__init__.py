"""Ideas that were tried as drafting methods, one file each; none of them ships a head or is the fastest anywhere."""

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
