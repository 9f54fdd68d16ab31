//! The chunk store, as its users see it.
//!
//! One program: what each file of its own would compile and link again is there once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod discarding;
mod guards_and_pins;
mod proptest_eviction;
mod proptest_store;
mod rot;
mod stress;
mod writeback;
