//! One chunk from somewhere: a single flight, its rounds and attempts.

pub(crate) mod attempt;
pub(crate) mod flight;
pub(crate) mod local;
pub(crate) mod obtain;
pub(crate) mod outcome;
pub(crate) mod round;
pub(crate) mod serve;
pub(crate) mod sources;
pub(crate) mod tier;
