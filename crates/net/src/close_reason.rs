//! Reasons for which connections end, as enums of labels.

/// Declares `CloseReason`: why a connection ended; each reason is counted by its label.
///
/// Reasons without more to say come first, each with its label. Then come, where there are any, those
/// that say which fault of many it was, each with the fault's type, which has `ALL` and `as_str`.
#[macro_export]
macro_rules! close_reasons {
    (
        $($(#[$doc:meta])* $name:ident = $label:literal,)*
        $(; faults { $($(#[$fault_doc:meta])* $fault_name:ident($fault:ty),)* })?
    ) => {
        /// Reason for which a connection ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CloseReason {
            $($(#[$doc])* $name,)*
            $($($(#[$fault_doc])* $fault_name($fault),)*)?
        }

        impl CloseReason {
            /// Number of distinct labels.
            pub const COUNT: usize = [$($label),*].len() $($(+ <$fault>::ALL.len())*)?;

            /// Every reason.
            pub fn all() -> impl Iterator<Item = CloseReason> {
                let plain = [$(CloseReason::$name),*].into_iter();
                $($(let plain = plain.chain(
                    <$fault>::ALL.into_iter().map(CloseReason::$fault_name)
                );)*)?
                plain
            }

            /// The label in metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(CloseReason::$name => $label,)*
                    $($(CloseReason::$fault_name(fault) => fault.as_str(),)*)?
                }
            }

            /// The place of its counter.
            pub(crate) fn index(self) -> usize {
                CloseReason::all().position(|reason| reason == self).unwrap_or(0)
            }
        }

        impl std::fmt::Display for CloseReason {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
