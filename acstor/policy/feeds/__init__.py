"""Sources from which a policy service hears of the load of hosts."""
