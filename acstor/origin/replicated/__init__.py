"""An origin of several members: objects where they are assigned to, refs in one home (RFD 38)."""
