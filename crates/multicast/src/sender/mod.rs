//! The sending side of a session.

mod draw;
mod judge;
mod pacer;
mod rate_law;
mod session;
mod state;

pub use draw::{drawn_share, is_drawn};
pub use judge::{Judge, ReportOutcome, Verdict};
pub use pacer::Pacer;
pub use rate_law::RateLaw;
pub use session::{Sender, SenderConfig, SenderStats, Step};
pub use state::{SenderState, SessionEnd};
