"""The origin in Ceph RADOS: objects in stripes over all OSDs, refs as one object each."""
