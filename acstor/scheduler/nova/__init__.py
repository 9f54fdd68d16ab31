"""What nova-scheduler loads: a weigher and a filter, and the host states that they look at."""
