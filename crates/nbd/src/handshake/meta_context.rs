//! The metadata contexts of `CMD_BLOCK_STATUS`.

use acstor_overlay::ExtentQuery;

/// A kind of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// `base:allocation`.
    Allocation,
    /// `acstor:dirty`.
    Dirty,
}

impl Context {
    pub(crate) const ALL: [Context; 2] = [Context::Allocation, Context::Dirty];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::Dirty => "acstor:dirty",
        }
    }

    /// The id on the wire; the same for every connection.
    pub(crate) const fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::Dirty => 2,
        }
    }

    pub(crate) const fn query(self) -> ExtentQuery {
        match self {
            Context::Allocation => ExtentQuery::Allocation,
            Context::Dirty => ExtentQuery::Dirty,
        }
    }

    /// Returns whether a listing's `query` finds it: its name, or its namespace alone.
    pub(crate) fn is_listed_by(self, query: &str) -> bool {
        let namespace_len = self.name().find(':').map_or(0, |colon| colon + 1);
        query == self.name() || query == &self.name()[..namespace_len]
    }
}

/// The contexts that a client selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contexts([bool; Context::ALL.len()]);

impl Contexts {
    /// The contexts that `queries` name. Wildcards and unknown names select nothing.
    pub(crate) fn select(queries: &[String]) -> Contexts {
        Contexts(Context::ALL.map(|context| queries.iter().any(|query| query == context.name())))
    }

    pub(crate) fn any(self) -> bool {
        self.0.iter().any(|is_selected| *is_selected)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().zip(self.0).filter(|(_, on)| *on).map(|(context, _)| context)
    }

    /// Those with the given ids; `None` when one of these was not selected.
    pub(crate) fn filter(self, ids: &[u32]) -> Option<Contexts> {
        let known = |id: &u32| self.iter().any(|context| context.id() == *id);
        if !ids.iter().all(known) {
            return None;
        }
        let mut on = Context::ALL.into_iter().zip(self.0);
        let is_wanted = |(context, on): (Context, bool)| on && ids.contains(&context.id());
        Some(Contexts(std::array::from_fn(|_| on.next().is_some_and(is_wanted))))
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Contexts};

    fn names(contexts: Contexts) -> Vec<&'static str> {
        contexts.iter().map(Context::name).collect()
    }

    #[test]
    fn test_select_takes_exact_names_only() {
        let queries = ["base:", "acstor:dirty", "qemu:dirty-bitmap:x"].map(str::to_owned);
        assert_eq!(names(Contexts::select(&queries)), ["acstor:dirty"]);
        assert!(!Contexts::select(&[]).any());
    }

    #[test]
    fn test_is_listed_by_takes_the_namespace_too() {
        assert!(Context::Allocation.is_listed_by("base:"));
        assert!(Context::Dirty.is_listed_by("acstor:dirty"));
        assert!(!Context::Dirty.is_listed_by("base:"));
        assert!(!Context::Dirty.is_listed_by("acstor"));
    }

    #[test]
    fn test_filter_wants_selected_ids() {
        let all = Contexts::select(&Context::ALL.map(|context| context.name().to_owned()));
        assert_eq!(names(all.filter(&[2]).unwrap()), ["acstor:dirty"]);
        assert_eq!(all.filter(&[3]), None);
        assert_eq!(Contexts::select(&["base:allocation".to_owned()]).filter(&[2]), None);
    }
}
