"""Resources of version 1 of the API, and the proxy that works with them."""
