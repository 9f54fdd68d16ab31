"""Panel of schedules: times of versions, and which of them stay."""
