"""Certificates of the standard limits, found once and re-checked whenever they are used."""
