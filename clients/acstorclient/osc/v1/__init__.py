"""Commands for version 1 of the API: a file for each noun."""
