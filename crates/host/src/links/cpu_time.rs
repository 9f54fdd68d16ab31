//! Time that the host's processors had and did not use, as the kernel counts it.

use std::fs;

/// Totals of all processors since the start of the host, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTime {
    /// Idle, waiting for disks included.
    pub(super) idle: u64,
    /// All there was.
    pub(super) total: u64,
}

impl CpuTime {
    /// Returns the totals of now; `None` where the kernel does not tell them.
    pub(super) fn now() -> Option<CpuTime> {
        CpuTime::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq,
    /// steal; what guests use is part of user and nice.
    fn parse(text: &str) -> Option<CpuTime> {
        let ticks = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Option<Vec<u64>> =
            ticks.split_ascii_whitespace().take(8).map(|tick| tick.parse().ok()).collect();
        let ticks = ticks?;
        let [_, _, _, idle, waiting, ..] = ticks[..] else { return None };
        let total = ticks.iter().try_fold(0_u64, |sum, tick| sum.checked_add(*tick))?;
        Some(CpuTime { idle: idle.checked_add(waiting)?, total })
    }

    /// Returns the share of the time since `before` that was idle; `None` where none has passed.
    pub(super) fn idle_share_since(self, before: CpuTime) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(total);
        Some(idle as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_idle_share_is_of_the_time_between() {
        let text = "cpu  10 2 3 80 5 0 0 0 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        let before = CpuTime::parse(text).unwrap();
        assert_eq!(before, CpuTime { idle: 85, total: 100 });
        let later = CpuTime { idle: 110, total: 200 };
        assert_eq!(later.idle_share_since(before), Some(0.25));
        assert_eq!(before.idle_share_since(before), None);
        assert_eq!(before.idle_share_since(later), None, "a count that went back");
        assert!(CpuTime::now().is_some());
    }

    #[test]
    fn test_anything_else_tells_nothing() {
        let huge = format!("cpu {0} {0} {0} {0} {0} {0} {0} {0}", u64::MAX);
        for text in ["", "cpu", "cpu  1 2 3", "cpu  1 2 x 4 5", "cpu0 1 2 3 4 5", &huge] {
            assert_eq!(CpuTime::parse(text), None, "{text}");
        }
    }
}
