"""Resources of the deployment, for administrators."""
