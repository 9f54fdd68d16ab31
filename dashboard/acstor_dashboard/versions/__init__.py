"""Panel of versions: restore points of servers and volumes."""
