//! The ring: its format, balance and movement.
//!
//! One program: what each file of its own would compile and link again is there once.

mod balance;
mod codec;
mod golden;
mod movement;
mod reftest_candidates;
