"""The reconcilers of an agent, one module each."""
