//! The protocol between hosts, its server and its client.
//!
//! One program: what each file of its own would compile and link again is there once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod classes;
mod client_faults;
mod compressed;
mod drain;
mod fetch;
mod golden_frames;
mod groups;
mod hints;
mod holds;
mod load;
mod membership;
mod proptest_frames;
mod proptest_states;
mod revocation;
mod server_limits;
mod strangers;
mod tls;
