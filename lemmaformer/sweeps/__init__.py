"""Sweeps: many jobs of the library, one row each, on one process or a cluster, resumable after any interruption.

The functions that jobs call are named and found when a job runs, since the library above uses this room. May import from `verify.report`
and what lies below it.
"""
