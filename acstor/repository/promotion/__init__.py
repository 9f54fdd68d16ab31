"""Promotion of a member to the home: survey, completion, refs."""
