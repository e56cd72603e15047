"""Certificates of limits that are shipped, and those of earlier runs: hints, re-checked whenever they are used."""
