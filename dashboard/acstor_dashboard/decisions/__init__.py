"""Panel of decisions: weights of hosts and why, for administrators."""
