"""Panel of tasks: long work, its progress and how it ended."""
