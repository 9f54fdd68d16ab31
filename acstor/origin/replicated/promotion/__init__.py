"""Making another member the home of the refs, after the home was lost."""
