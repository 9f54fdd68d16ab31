"""Panel of usage: what a project has of what it may have, for administrators."""
