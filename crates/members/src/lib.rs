//! The reading side of an origin that is made of two to four stores, its members.
//!
//! [`MembersSource`] is to the read path what the reader of one store is. A read goes to the member with
//! the least estimated time among those with a closed breaker, assigned ones first, and then to the
//! next one: on *not found*, an error, a deadline, and on bytes that their digest refuses. An origin that is
//! one store has none of this: its reader is the read path's own. Design: RFD 38.
//!
//! One read: `plan` orders the members (`order`), `reading` asks one after the other through the pool of
//! calls of each (`call_pool`), `search` makes one answer of theirs; `member_state` judges a member.
//!
//! Must never: say *not found* while a member that may have the object cannot be asked, read a member whose
//! generation is not the one that is configured, let a member that hangs hold a call for another, or
//! write to memory that a caller has got back.

mod call_pool;
mod error;
mod generation;
mod member;
mod member_metrics;
mod member_state;
pub mod metric_names;
mod order;
mod reading;
mod search;
mod settings;
mod source;
#[cfg(test)]
mod tests;
mod wanted;

pub use error::MembersError;
pub use generation::GenerationReader;
pub use settings::{MEMBERS_MAX, MEMBERS_MIN, MemberSettings, MembersSettings, calls_max};
pub use source::MembersSource;
