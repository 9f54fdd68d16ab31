//! Weighted consistent hashing of OIDs onto hosts.
