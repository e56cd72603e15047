"""Forward passes that are copied beside exported weights: they import nothing of ours, and nothing imports them when it is loaded."""
