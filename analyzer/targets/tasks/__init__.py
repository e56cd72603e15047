"""Tasks, one file each (`analyzer.targets.task`): targets that a few parameters describe."""
