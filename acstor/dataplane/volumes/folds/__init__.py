"""Folds of logs in the origin: whose turn it is, and what they leave here."""
