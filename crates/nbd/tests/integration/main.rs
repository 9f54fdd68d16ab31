//! The NBD server and what clients see of it.
//!
//! One program: what each file of its own would compile and link again is there once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../net/tests/support/certificates.rs"]
#[allow(dead_code, reason = "each crate uses a part of it")]
mod certificates;
#[path = "../support/mod.rs"]
mod support;

mod gnutls_clients;
mod golden_messages;
mod handshake;
mod lifecycle;
mod log_answers;
mod malice;
mod outage;
mod proptest_decoders;
mod store_answers;
mod tls;
mod transmission;
