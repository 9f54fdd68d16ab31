"""What an agent looks after: one module for each."""
