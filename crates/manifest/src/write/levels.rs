//! Depth of a stack: which levels a new one takes in.
//!
//! Source: ACStor §3.7.1 (versions are merged past a depth of 3). Differs: not only the depth
//! decides but also the size, so that what is written again and again stays small: with an upper
//! level of at most an eighth of the one below, a fold writes at most a 64th of the lowest again.

use crate::format::layout::PAGE_ENTRIES;
use crate::limits;

/// A level is merged into the one below when it has more than one page in so many of that one's.
const SHARE_DIVISOR: u64 = 8;

/// Pages of every delta: header, summary, index, directory.
const DELTA_PAGES_MIN: u64 = 4;

/// Returns about how many pages a delta of so many chunks with content, in so many spans, has.
pub fn delta_pages(data_chunks: u64, spans: u64) -> u64 {
    let entries = data_chunks.div_ceil(PAGE_ENTRIES.into());
    DELTA_PAGES_MIN.saturating_add(spans).saturating_add(entries)
}

/// Returns how many of the levels of a stack a new delta takes in; 0: it lies on top of all.
///
/// `pages` are those of the delta, `stack` those of the levels, the topmost first.
pub fn levels_to_merge(pages: u64, stack: &[u64]) -> usize {
    let mut merged = pages;
    for (level, pages) in stack.iter().enumerate() {
        let is_full = level == 0 && stack.len() >= limits::DEPTH_MAX.into();
        if !is_full && merged.saturating_mul(SHARE_DIVISOR) <= *pages {
            return level;
        }
        merged = merged.saturating_add(*pages);
    }
    stack.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_small_delta_lies_on_top() {
        assert_eq!(levels_to_merge(10, &[1000]), 0);
        assert_eq!(levels_to_merge(10, &[80, 1000]), 0);
    }

    #[test]
    fn test_third_level_is_written_anew() {
        assert_eq!(levels_to_merge(10, &[20, 1000, 100_000]), 1);
    }

    #[test]
    fn test_large_delta_takes_in_what_is_below() {
        assert_eq!(levels_to_merge(200, &[1000]), 1);
        assert_eq!(levels_to_merge(20, &[80, 1000]), 1);
        assert_eq!(levels_to_merge(60, &[80, 1000]), 2);
        assert_eq!(levels_to_merge(100, &[100, 1000, 100_000]), 2);
        assert_eq!(levels_to_merge(10_000, &[100, 1000, 50_000]), 3);
    }

    #[test]
    fn test_depth_and_what_folds_write_have_limits() {
        const DELTA: u64 = 12;
        let mut stack = vec![200_000]; // pages of 1 TiB without a hole
        let mut deepest = 0;
        for _ in 0..20_000 {
            let levels = levels_to_merge(DELTA, &stack);
            let is_merge = levels > usize::from(stack.len() == 3);
            let most = stack[stack.len() - 1] / 64 + DELTA;
            let written = stack.drain(..levels).sum::<u64>() + DELTA;
            assert!(is_merge || written <= most, "{written} pages by a fold alone");
            stack.insert(0, written);
            deepest = deepest.max(stack.len());
            assert!(stack.len() <= usize::from(limits::DEPTH_MAX), "{stack:?}");
        }
        assert_eq!(deepest, 3);
    }
}
