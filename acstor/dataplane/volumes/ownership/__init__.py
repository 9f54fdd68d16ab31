"""A host in the records of its volumes: owner, standby, or requester of one."""
