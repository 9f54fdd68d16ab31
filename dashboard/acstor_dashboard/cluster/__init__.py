"""Panel of the cluster: hosts and their traffic, for administrators."""
