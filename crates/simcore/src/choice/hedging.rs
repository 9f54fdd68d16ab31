//! When a source that is being asked is late, and what may be asked beside it.

use super::Choice;
use super::source::SAMPLES_MIN;
use crate::rules::Rules;

impl Choice {
    /// Notes a fetch from a peer, of which a share may be hedged.
    pub(crate) fn earn_hedges(&mut self, rules: &Rules, host: u32, fetches: f64) {
        let tokens = &mut self.views[host as usize].hedge_tokens;
        *tokens = rules.hedge_tokens_max.min(*tokens + fetches * rules.hedge_share);
    }

    /// Takes leave for a hedge; `false`: the share is used up.
    pub(crate) fn take_hedge(&mut self, host: u32) -> bool {
        let tokens = &mut self.views[host as usize].hedge_tokens;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }

    /// Returns whether what the origin takes tells when a peer is late, rather than its own p99.
    fn is_hedged_early(&mut self, rules: &Rules, host: u32, row: usize, now: f64) -> bool {
        self.view(rules, host, now);
        if self.views[host as usize].is_all_slow || !self.is_origin_calm(rules, host, now) {
            return false;
        }
        let slow_for = self.sources[row].slow.slow_for(rules).unwrap_or(-1.0);
        slow_for >= rules.loaded_after
    }

    /// Returns after how long a fetch is late.
    pub(crate) fn hedge_delay(&mut self, rules: &Rules, attempt: u32, now: f64) -> f64 {
        let fetch = self.fetches[attempt as usize];
        let (host, row) = (fetch.host, fetch.row);
        let mut own = rules.hedge_max;
        if !fetch.is_origin {
            let of_all = &self.views[host as usize].histogram;
            if let Some(p99) = self.sources[row].p99() {
                own = p99;
            } else if rules.hedge_prior && of_all.samples >= SAMPLES_MIN {
                own = of_all.p99().unwrap_or(own);
            }
        }
        let mut late = rules.hedge_max;
        if rules.load_aware && self.is_hedged_early(rules, host, row, now) {
            let by_origin = rules.hedge_origin_factor * self.origin_now(host, now);
            let bound = by_origin.max(self.beside_others(rules, host));
            late = late.min(bound * f64::from(self.sources[row].under_way.max(1)));
        }
        rules.hedge_min.max(own.min(late))
    }

    /// Returns after how long a fetch over a slow link of one's own is given up for another;
    /// `left` is the time from its start to the deadline of who waits.
    pub(crate) fn rescue_delay(&self, rules: &Rules, attempt: u32, left: f64) -> f64 {
        let fetch = self.fetches[attempt as usize];
        let p99 = self.sources[fetch.row].p99().filter(|_| !fetch.is_origin);
        let known = p99.map_or(left / 2.0, |p99| 2.0 * p99);
        rules.hedge_max.max(known).min(left / 2.0)
    }
}
