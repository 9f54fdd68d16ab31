//! Generation of a member: whether it is the store that the home knows.

use acstor_readpath::OriginError;

/// Reads the generation that a member carries (its ref `member`).
///
/// The implementation should return within the member's own timeout: a thread of the member's pool
/// waits for it.
pub trait GenerationReader: Send + Sync + 'static {
    /// Reads it from the member.
    ///
    /// # Errors
    /// [`OriginError`]; the member is then not read.
    fn read(&self) -> Result<u64, OriginError>;
}

/// Knowledge of a member's generation.
///
/// ```text
///                     Matched
///    +-----------+ -----------> +---------+
///    | Unchecked |              | Current |
///    +-----------+ <----------- +---------+
///      |      ^      Renewed
///      | Differed      |
///      v      | Renewed
///    +-----------+   Matched    +---------+
///    |  Fenced   | -----------> | Current |
///    +-----------+              +---------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationState {
    /// Not looked at since it may have changed: it is before the next read.
    Unchecked,
    /// The one that is configured, or a later one.
    Current,
    /// An earlier one: restored from a backup. It is looked at again before each read
    /// that its breaker lets through.
    Fenced,
}

/// Event of the knowledge of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationEvent {
    /// It was read, and is the configured one or a later one.
    Matched,
    /// It was read, and is an earlier one.
    Differed,
    /// The member was away, or another generation is configured.
    Renewed,
}

/// Every transition; a pair that is not listed leaves the state as it is.
pub(crate) const GENERATION_TRANSITIONS: [(GenerationState, GenerationEvent, GenerationState); 6] = [
    (GenerationState::Unchecked, GenerationEvent::Matched, GenerationState::Current),
    (GenerationState::Unchecked, GenerationEvent::Differed, GenerationState::Fenced),
    (GenerationState::Current, GenerationEvent::Differed, GenerationState::Fenced),
    (GenerationState::Current, GenerationEvent::Renewed, GenerationState::Unchecked),
    (GenerationState::Fenced, GenerationEvent::Matched, GenerationState::Current),
    (GenerationState::Fenced, GenerationEvent::Renewed, GenerationState::Unchecked),
];

impl GenerationState {
    pub(crate) fn after(self, event: GenerationEvent) -> GenerationState {
        let mut rows = GENERATION_TRANSITIONS.iter();
        let row = rows.find(|(from, on, _)| *from == self && *on == event);
        row.map_or(self, |(_, _, to)| *to)
    }
}

/// Returns whether a member that carries `found` is the one of which `configured` is known.
///
/// What this host knows is a lower bound: a generation grows in the member first, and goes on to grow while
/// the host cannot read the home. One that is behind lacks what it has acknowledged, and says *not found*
/// of it.
pub(crate) fn is_current(found: u64, configured: u64) -> bool {
    found >= configured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_members_behind_the_configured_generation_are_not_read() {
        let current: Vec<u64> = (0..10).filter(|found| is_current(*found, 5)).collect();
        assert_eq!(current, [5, 6, 7, 8, 9]);
        assert!(is_current(u64::MAX, u64::MAX) && !is_current(0, u64::MAX));
    }

    #[test]
    fn test_whatever_happens_it_is_current_only_after_a_match() {
        use GenerationEvent::*;
        for before in
            [GenerationState::Unchecked, GenerationState::Current, GenerationState::Fenced]
        {
            assert_eq!(before.after(Matched), GenerationState::Current);
            assert_eq!(before.after(Differed), GenerationState::Fenced);
            assert_eq!(before.after(Renewed), GenerationState::Unchecked);
        }
    }
}
