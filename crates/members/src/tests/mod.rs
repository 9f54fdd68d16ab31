//! Scenarios of members that fail, hang, lie, and come back.

mod choosing;
pub(crate) mod faulty;
mod fencing;
mod hanging;
mod returning;
