//! This host's link: what is free of it, and what it costs to send less over it.

mod compression_watch;
mod cpu_time;
mod link_rates;

pub(crate) use compression_watch::watch_compression;
pub use link_rates::FreeRates;
pub(crate) use link_rates::LinkRates;
