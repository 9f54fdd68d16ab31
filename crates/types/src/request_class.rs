//! The class of a request: how urgently somebody waits for its answer.

/// Class of a request for a chunk, on its whole way: a flight, an origin's queue, the peer wire, a
/// peer's sender.
///
/// The more urgent class goes first wherever requests wait for each other. A request may become more
/// urgent on its way (a guest reads what was fetched ahead of it), never less: what was asked for in
/// vain is cancelled instead. The order is that of urgency, the greatest most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RequestClass {
    /// A guest waits for it.
    Demand = 0,
    /// Read ahead of a guest: it will probably be wanted soon.
    Ahead = 1,
    /// Put in place in advance: nobody will miss it for a while.
    Preload = 2,
}

impl RequestClass {
    /// Every class, the most urgent first; a class's code is its position.
    pub const ALL: [RequestClass; 3] =
        [RequestClass::Demand, RequestClass::Ahead, RequestClass::Preload];
    /// Number of classes.
    pub const COUNT: usize = Self::ALL.len();

    /// The code on the wire; 0 is demand, which is what a request without a class has.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The class of a code; `None` where this build knows none.
    pub const fn from_code(code: u8) -> Option<RequestClass> {
        match code {
            0 => Some(RequestClass::Demand),
            1 => Some(RequestClass::Ahead),
            2 => Some(RequestClass::Preload),
            _ => None,
        }
    }

    /// Position in [`RequestClass::ALL`], for tables with a row per class.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns whether a guest waits.
    pub const fn is_demand(self) -> bool {
        matches!(self, RequestClass::Demand)
    }

    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            RequestClass::Demand => "demand",
            RequestClass::Ahead => "ahead",
            RequestClass::Preload => "preload",
        }
    }
}

impl Ord for RequestClass {
    /// By urgency: demand is the greatest.
    fn cmp(&self, other: &RequestClass) -> std::cmp::Ordering {
        other.code().cmp(&self.code())
    }
}

impl PartialOrd for RequestClass {
    fn partial_cmp(&self, other: &RequestClass) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::RequestClass;

    #[test]
    fn test_code_every_class_round_trips_and_no_other_is_known() {
        for (position, class) in RequestClass::ALL.into_iter().enumerate() {
            assert_eq!(RequestClass::from_code(class.code()), Some(class));
            assert_eq!(class.index(), position);
        }
        for code in [3, 4, 0xff] {
            assert_eq!(RequestClass::from_code(code), None);
        }
    }

    #[test]
    fn test_order_demand_is_the_most_urgent() {
        assert!(RequestClass::Demand > RequestClass::Ahead);
        assert!(RequestClass::Ahead > RequestClass::Preload);
        assert_eq!(RequestClass::ALL.into_iter().max(), Some(RequestClass::Demand));
    }
}
