//! Names of the metrics, each with the label `member`. `doc/source/admin/metrics-members.rst` describes
//! them; a test compares. There are none where the origin is one store.

/// Calls of a member, by outcome.
pub const CALLS: &str = "acstor_origin_member_calls";
/// Time of calls of a member that ended.
pub const CALL_SECONDS: &str = "acstor_origin_member_call_seconds";
/// Chunks, and windows of pages of manifests, whose bytes were refused.
pub const CORRUPT: &str = "acstor_origin_member_corrupt";
/// Calls that went to another member as well because this one was slow.
pub const HEDGES: &str = "acstor_origin_member_hedges";
/// 1 while the member is read, 0 while it is only probed.
pub const UP: &str = "acstor_origin_member_up";

/// All of them.
pub const ALL: [&str; 5] = [CALLS, CALL_SECONDS, CORRUPT, HEDGES, UP];
