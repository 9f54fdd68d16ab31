"""Where a policy service hears of the load of hosts."""
