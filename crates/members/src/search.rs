//! One answer made of what the members said of an object.

use acstor_readpath::OriginError;

/// Statement of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does not have the object.
    Missing,
    /// It has it damaged.
    Damaged(OriginError),
    /// It cannot be asked, or did not answer.
    Failed(String),
}

impl Verdict {
    /// The verdict that an error is.
    pub(crate) fn of(error: OriginError) -> Verdict {
        match error {
            OriginError::NotFound { .. } => Verdict::Missing,
            OriginError::ShortRead { .. } | OriginError::DamagedMove { .. } => {
                Verdict::Damaged(error)
            }
            other => Verdict::Failed(other.to_string()),
        }
    }

    fn is_failure(&self) -> bool {
        matches!(self, Verdict::Failed(_))
    }
}

/// The search for one object: the last statement of each member.
#[derive(Debug)]
pub(crate) struct Search {
    /// Name of the object, for errors.
    object: String,
    /// By position, beside the names of the members.
    verdicts: Vec<(String, Option<Verdict>)>,
}

impl Search {
    /// Nobody has said anything yet.
    pub(crate) fn new(object: String, names: impl Iterator<Item = String>) -> Search {
        Search { object, verdicts: names.map(|name| (name, None)).collect() }
    }

    /// Notes the statement of the member at a position; a later one of the same member counts.
    pub(crate) fn note(&mut self, position: usize, verdict: Verdict) {
        if let Some((_, last)) = self.verdicts.get_mut(position) {
            *last = Some(verdict);
        }
    }

    /// Returns the error where nobody gave the object: *not found* only where all members say so; the
    /// damage where one has it damaged and all were asked; otherwise that it is not known. A member that
    /// has said nothing cannot be asked. `is_several`: ranges were read that are read one by one after a
    /// short read, which comes before what is not known.
    pub(crate) fn error(self, is_several: bool) -> OriginError {
        let said = || self.verdicts.iter().filter_map(|(_, verdict)| verdict.as_ref());
        let damage = said().find_map(|verdict| match verdict {
            Verdict::Damaged(error) => Some(error.clone()),
            _ => None,
        });
        if is_several && let Some(error @ OriginError::ShortRead { .. }) = &damage {
            return error.clone();
        }
        let is_answered = said().any(|verdict| !verdict.is_failure());
        let failures: Vec<String> =
            self.verdicts.iter().filter_map(|(name, verdict)| reason(name, verdict)).collect();
        let (pack, cause) = (self.object, failures.join("; "));
        match damage {
            _ if !failures.is_empty() && is_answered => OriginError::Undecided { pack, cause },
            _ if !failures.is_empty() => OriginError::Unavailable { pack, cause },
            Some(error) => error,
            None => OriginError::NotFound { pack },
        }
    }
}

/// Returns why a member gave no answer; `None`: it gave one.
fn reason(name: &str, verdict: &Option<Verdict>) -> Option<String> {
    match verdict {
        Some(Verdict::Failed(cause)) => Some(format!("{name}: {cause}")),
        None => Some(format!("{name}: it was not asked")),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::ErrorKind;

    use super::*;
    use crate::MEMBERS_MAX;

    const CODES: usize = 5;

    fn short() -> OriginError {
        OriginError::ShortRead { pack: "p".into(), end: 9 }
    }

    fn verdict(code: usize) -> Option<Verdict> {
        match code {
            0 => Some(Verdict::Missing),
            1 => Some(Verdict::Damaged(short())),
            2 => Some(Verdict::Failed("it hangs".into())),
            3 => {
                let error = OriginError::DamagedMove { pack: "p".into(), cause: "c".into() };
                Some(Verdict::of(error))
            }
            _ => None,
        }
    }

    /// The kind of the answer, by the words of RFD 38.
    fn expected(codes: &[usize], is_several: bool) -> ErrorKind {
        if is_several
            && codes.contains(&1)
            && codes.iter().find(|c| [1, 3].contains(*c)) == Some(&1)
        {
            return ErrorKind::Corrupt;
        }
        if codes.iter().any(|code| [2, 4].contains(code)) {
            return ErrorKind::Unavailable;
        }
        let is_damaged = codes.iter().any(|code| [1, 3].contains(code));
        if is_damaged { ErrorKind::Corrupt } else { ErrorKind::NotFound }
    }

    #[test]
    fn test_error_of_all_combinations_of_what_up_to_four_members_say() {
        for count in 1..=MEMBERS_MAX {
            for combination in 0..CODES.pow(count as u32) {
                let codes: Vec<usize> =
                    (0..count).map(|at| combination / CODES.pow(at as u32) % CODES).collect();
                for is_several in [false, true] {
                    let mut search = Search::new("p".into(), (0..count).map(|at| format!("m{at}")));
                    for (at, code) in codes.iter().enumerate() {
                        if let Some(verdict) = verdict(*code) {
                            search.note(at, verdict);
                        }
                    }
                    let error = search.error(is_several);
                    assert_eq!(error.kind(), expected(&codes, is_several), "{codes:?}: {error}");
                    let is_answered = codes.iter().any(|code| [0, 1, 3].contains(code));
                    let is_undecided = matches!(error, OriginError::Undecided { .. });
                    assert!(!is_undecided || is_answered, "{codes:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn test_error_names_who_cannot_be_asked() {
        let mut search = Search::new("p".into(), ["a", "b", "c"].map(String::from).into_iter());
        search.note(0, Verdict::Missing);
        search.note(1, Verdict::Failed("no mount".into()));
        let text = search.error(false).to_string();
        assert!(
            text.contains("b: no mount; c: it was not asked") && !text.contains("a:"),
            "{text}"
        );
    }

    #[test]
    fn test_late_statement_of_a_member_takes_the_place_of_its_deadline() {
        let mut search = Search::new("p".into(), ["a"].map(String::from).into_iter());
        search.note(0, Verdict::Failed("late".into()));
        search.note(0, Verdict::Missing);
        assert_eq!(search.error(false).kind(), ErrorKind::NotFound);
    }
}
