//! Which peers are loaded, and whether a host's own link is full.

use super::{Choice, VIEW_AGE};
use crate::rules::Rules;

/// What a sample of a peer finds: bits.
pub(super) const LOADED: u8 = 1;
pub(super) const LASTING: u8 = 2;
pub(super) const DRASTIC: u8 = 4;
const DRASTIC_RATIO: f64 = 4.0;
const SLOW_LINK_LASTS: f64 = 10.0;
const ORIGIN_STANDS_OUT: f64 = 4.0;
/// Of one that takes less than a chunk over a full link.
const FAST_ORIGIN_STANDS_OUT: f64 = 2.5;

impl Choice {
    /// Returns what a fetch may take longer than usual before it tells anything.
    pub(super) fn slack(&self, rules: &Rules, host: u32) -> f64 {
        let usual = 2.0 * self.views[host as usize].usual_delay;
        rules.slack_max.min(rules.slack_min.max(usual))
    }

    /// Returns what the origin takes; what is known but old is no good news.
    pub(super) fn origin_now(&self, host: u32, now: f64) -> f64 {
        let origin = &self.sources[self.origin_row(host)];
        origin.estimate(now).max(f64::from(origin.usual))
    }

    /// Returns from which estimate on a peer is slow: slower than one that read the origin first.
    pub(super) fn slow_from(&self, rules: &Rules, host: u32, now: f64) -> f64 {
        self.slack(rules, host) + rules.loaded_ratio * self.origin_now(host, now)
    }

    /// Returns from which estimate on a peer stands out among a host's peers.
    pub(super) fn beside_others(&self, rules: &Rules, host: u32) -> f64 {
        rules.stands_out * self.views[host as usize].median + self.slack(rules, host)
    }

    /// Takes the view anew where it is old: the median of the peers, and whether all are slow.
    pub(super) fn view(&mut self, rules: &Rules, host: u32, now: f64) {
        let at = host as usize;
        if now - self.views[at].taken_at < VIEW_AGE {
            return;
        }
        self.views[at].taken_at = now;
        self.views[at].median = 0.0;
        self.views[at].is_all_slow = false;
        if !self.is_by_pair {
            return; // what is known is shared by all hosts and says nothing of this one's link
        }
        let (mut known, mut are_slow) = (0, true);
        self.buffer.clear();
        for peer in &self.asked[at] {
            let source = &self.sources[self.row_of(host, *peer)];
            if source.delay == 0.0 && source.oldest.is_none() {
                continue;
            }
            known += 1;
            if source.is_fresh(rules, now) {
                self.buffer.push(source.estimate(now));
                are_slow = are_slow && source.is_slow(rules, now);
            }
        }
        let mut fresh = self.buffer.len();
        let middle = fresh.saturating_sub(1) / 2;
        let median = if fresh > 0 {
            *self.buffer.select_nth_unstable_by(middle, f64::total_cmp).1
        } else {
            0.0
        };
        let origin = &self.sources[self.origin_row(host)];
        if origin.delay > 0.0 || origin.oldest.is_some() {
            known += 1;
            if origin.is_fresh(rules, now) {
                fresh += 1;
                are_slow = are_slow && origin.is_slow(rules, now);
                let time = origin.estimate(now).max(f64::from(origin.interval));
                let is_fast = time < rules.slack_max;
                let ratio = if is_fast { FAST_ORIGIN_STANDS_OUT } else { ORIGIN_STANDS_OUT };
                are_slow = are_slow && median <= ratio * time;
            }
        }
        let is_enough = fresh >= 3 || (fresh == 2 && known == 2);
        let view = &mut self.views[at];
        view.median = median;
        view.is_all_slow = are_slow && fresh > 0;
        if are_slow && is_enough {
            if !view.is_slow {
                view.slow_since = now;
            }
            view.is_slow = true;
            view.slow_seen = now;
        } else if !are_slow || now - view.slow_seen > SLOW_LINK_LASTS {
            view.is_slow = false;
        }
    }

    /// Returns whether whatever a host asks is late: its own link is full, nobody else's.
    pub(crate) fn is_own_link_slow(&mut self, rules: &Rules, host: u32, now: f64) -> bool {
        if !rules.own_link {
            return false;
        }
        self.view(rules, host, now);
        self.views[host as usize].is_slow
    }

    /// Takes an answer of a peer for a sample; returns whether it is to be taken for slow.
    pub(super) fn note_answer_sample(
        &mut self,
        rules: &Rules,
        host: u32,
        row: usize,
        now: f64,
    ) -> bool {
        let is_slow = self.sources[row].longest(now) > self.slow_from(rules, host, now);
        self.note_sample(rules, host, row, is_slow, now)
    }

    fn note_sample(
        &mut self,
        rules: &Rules,
        host: u32,
        row: usize,
        is_slow: bool,
        now: f64,
    ) -> bool {
        let is_taken = self.sources[row].slow.note(rules, is_slow, now);
        self.views[host as usize].peers_slow.note(rules, is_taken, now);
        is_taken
    }

    /// Takes a sample of a peer before it is asked, and returns its load.
    ///
    /// What was known already is noted only where it is good news.
    pub(super) fn sample(&mut self, rules: &Rules, host: u32, peer: u32, now: f64) -> u8 {
        let row = self.row_of(host, peer);
        let time = self.sources[row].longest(now);
        if time == 0.0 {
            return 0;
        }
        let limit = self.slow_from(rules, host, now);
        let is_news = time <= limit || self.sources[row].waiting(now) > limit;
        if is_news && !self.note_sample(rules, host, row, time > limit, now) {
            return 0;
        }
        self.load_of(rules, host, row, time, now)
    }

    /// Returns what the samples so far say of a peer that is slow.
    fn load_of(&mut self, rules: &Rules, host: u32, row: usize, time: f64, now: f64) -> u8 {
        let all = self.views[host as usize].peers_slow.slow_for(rules);
        let all = all.filter(|lasted| *lasted >= rules.loaded_lasting).unwrap_or(-1.0);
        let lasted = self.sources[row].slow.slow_for(rules).unwrap_or(-1.0).max(all);
        if lasted < 0.0 {
            return 0;
        }
        self.view(rules, host, now);
        let stands_out = time > self.beside_others(rules, host);
        let needed = if stands_out { rules.loaded_after } else { rules.loaded_lasting };
        let mut found = 0;
        if lasted >= needed {
            found |= LOADED;
        }
        if lasted >= rules.loaded_lasting {
            found |= LASTING;
        }
        if time > DRASTIC_RATIO * self.slow_from(rules, host, now) {
            found |= DRASTIC;
        }
        found
    }

    /// Returns whether a peer has answered lately, and nobody waits for it for long.
    pub(super) fn may_stand_in(&self, rules: &Rules, host: u32, peer: u32, now: f64) -> bool {
        let source = &self.sources[self.row_of(host, peer)];
        now - f64::from(source.answered_at) <= rules.stand_in_age
            && source.waiting(now) <= self.slow_from(rules, host, now)
    }

    /// Returns whether a peer is known to be loaded, without a sample.
    pub(super) fn is_loaded(&mut self, rules: &Rules, host: u32, peer: u32, now: f64) -> bool {
        let row = self.row_of(host, peer);
        let time = self.sources[row].estimate(now);
        if time <= self.slow_from(rules, host, now) {
            return false;
        }
        self.load_of(rules, host, row, time, now) & LOADED != 0
    }

    /// Returns whether the origin takes about what it takes at best, or nothing is known of it.
    pub(super) fn is_origin_calm(&self, rules: &Rules, host: u32, now: f64) -> bool {
        let origin = &self.sources[self.origin_row(host)];
        let usual = f64::from(origin.usual);
        let limit = rules.origin_calm_ratio * usual + self.slack(rules, host);
        rules.origin_calm_ratio <= 0.0 || origin.estimate(now) <= limit
    }
}
