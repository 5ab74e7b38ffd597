"""Experimental drafting methods, one file each; none ships a head, and none is the fastest in any category."""

from lab.methods import distillspec, exit, gsd, mcsd_exit, mcsd_replacing, s2d, skip

METHODS = tuple(method.METHOD for method in (mcsd_replacing, gsd, skip, exit, distillspec, s2d, mcsd_exit))
