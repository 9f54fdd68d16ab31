//! Settings of the members and their ranges.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use acstor_readpath::{OriginSource, limits};

use crate::{GenerationReader, MembersError};

/// Fewest members: an origin that is one store has none.
pub const MEMBERS_MIN: usize = 2;
/// Most members (`MEMBERS_MAX` of `acstor/origin/replicated/members.py`).
pub const MEMBERS_MAX: usize = 4;
/// Longest name of a member, bytes.
const NAME_LEN_MAX: usize = 31;
/// Longest deadline of a read.
const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// One member.
#[derive(Clone)]
pub struct MemberSettings {
    /// Name, `[a-z][a-z0-9-]{0,30}`.
    pub name: String,
    /// Generation that it has to have.
    pub generation: u64,
    /// True if it shall have what this host reads in the end, so that it is asked before others.
    pub is_assigned: bool,
    /// Its reader.
    pub source: Arc<dyn OriginSource>,
    /// Reader of the generation that it carries.
    pub generations: Arc<dyn GenerationReader>,
}

/// All members, in the order of the configuration.
#[derive(Clone)]
pub struct MembersSettings {
    /// Two to four.
    pub members: Vec<MemberSettings>,
    /// Time that one read may take, whoever is asked in it.
    pub deadline: Duration,
    /// Calls of one member under way at a time, those counted that are late; as many as there are readers
    /// ([`calls_max`]), so that none waits for another.
    pub calls_max: usize,
    /// Reads per hundred for which another member may be asked as well because the first is slow.
    pub hedge_share_percent: u32,
}

/// Number of readers that a read path with so many origin threads has at a time.
pub fn calls_max(origin_threads: usize) -> usize {
    // One thread more is for a second disk; pages have calls of their own.
    origin_threads + 1 + limits::PAGE_CALLS_MAX + limits::COMPLETION_CALLS_MAX
}

impl MembersSettings {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`MembersError::Setting`] names the first one outside its range.
    pub fn validate(&self) -> Result<(), MembersError> {
        if !(MEMBERS_MIN..=MEMBERS_MAX).contains(&self.members.len()) {
            return Err(refuse("their number", self.members.len().to_string(), "2 to 4"));
        }
        let mut names = HashSet::new();
        for member in &self.members {
            if !is_name(&member.name) || !names.insert(&member.name) {
                let allowed =
                    "a lower-case letter, then at most 30 letters, digits and dashes, once";
                return Err(refuse("a name", format!("{:?}", member.name), allowed));
            }
            if member.generation == 0 {
                return Err(refuse("a generation", "0".to_owned(), "1 or more"));
            }
        }
        if self.deadline < Duration::from_millis(1) || self.deadline > DEADLINE_MAX {
            return Err(refuse("deadline", format!("{:?}", self.deadline), "1 ms to 3600 s"));
        }
        if !(1..=256).contains(&self.calls_max) {
            return Err(refuse("calls_max", self.calls_max.to_string(), "1 to 256"));
        }
        if self.hedge_share_percent > 100 {
            let value = self.hedge_share_percent.to_string();
            return Err(refuse("hedge_share_percent", value, "0 to 100"));
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(is_inner)
}

fn refuse(name: &'static str, value: String, allowed: &'static str) -> MembersError {
    MembersError::Setting { name, value, allowed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::faulty::settings;

    #[test]
    fn test_validate_bad_value_is_named_with_its_range() {
        type Damage = fn(&mut MembersSettings);
        let cases: [(&str, Damage); 8] = [
            ("their number", |s| s.members.truncate(1)),
            ("a name", |s| s.members[1].name = "Two".into()),
            ("a name", |s| s.members[1].name = "x".repeat(NAME_LEN_MAX + 1)),
            ("a name", |s| s.members[1].name = s.members[0].name.clone()),
            ("a generation", |s| s.members[1].generation = 0),
            ("deadline", |s| s.deadline = Duration::ZERO),
            ("calls_max", |s| s.calls_max = 0),
            ("hedge_share_percent", |s| s.hedge_share_percent = 101),
        ];
        assert!(settings(&["a", "b"]).0.validate().is_ok());
        for (expected, damage) in cases {
            let mut bad = settings(&["a", "b"]).0;
            damage(&mut bad);
            let error = bad.validate().unwrap_err();
            assert!(
                matches!(&error, MembersError::Setting { name, .. } if *name == expected),
                "{expected}: {error}"
            );
        }
    }

    #[test]
    fn test_calls_are_as_many_as_readers() {
        assert_eq!(calls_max(4), 4 + 1 + 4 + 2);
    }
}
