"""A user's claim, over a grid of sizes or on boxes: planned here without anything heavy, run as jobs of `lemmaformer.sweeps`."""

from lemmaformer.checking.boxes import box_point
from lemmaformer.checking.grid import check, point

__all__ = ["box_point", "check", "point"]
