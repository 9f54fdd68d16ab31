"""``acstor-worker``: takes tasks by lease and runs their flows; schedules, sweeps (RFD 37)."""
