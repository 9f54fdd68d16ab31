//! The peer protocol: chunks between hosts by digest.
