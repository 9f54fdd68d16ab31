"""Resources of the API, one file each."""
