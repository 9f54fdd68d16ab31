"""What Ceilometer loads of ACStor: pollsters of the host's network interfaces."""
