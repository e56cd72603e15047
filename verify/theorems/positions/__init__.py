"""Certificates of the theorems about heads with other relative positions (`analyzer.theorems.positions`)."""
