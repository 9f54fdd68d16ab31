"""Looking into disks of versions: files read by a process that can do nothing else."""
