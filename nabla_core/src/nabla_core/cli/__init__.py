"""The command line: a shell around commands that plugins declare as data."""
