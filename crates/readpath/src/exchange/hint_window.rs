//! Windows ahead of an open: along a boot profile, or along the hints of other hosts.

use std::fmt::Debug;
use std::sync::Arc;

use acstor_selection::{AheadBalance, ReadAhead, Touch};

use crate::exchange::membership::Membership;

/// Order in which an open is read ahead, and how far. The methods are those of [`ReadAhead`].
pub(crate) trait AheadWindow: Debug + Send {
    /// Notes a guest's read of a chunk.
    fn read(&mut self, chunk: u32) -> Touch;
    /// The chunks to order now beside other opens of the image, at most `room_bytes` of them.
    fn next_beside(&mut self, others: AheadBalance, room_bytes: u64) -> Vec<u32>;
    /// Notes that an ordered chunk is here.
    fn fetched(&mut self, chunk: u32);
    /// Notes that a chunk need not be fetched.
    fn present(&mut self, chunk: u32);
    /// Notes that an ordered chunk could not be had.
    fn failed(&mut self, chunk: u32);
    /// Takes back an order that was not carried out.
    fn put_back(&mut self, chunk: u32);
    /// Notes that an ordered chunk was dropped before it was read.
    fn gone(&mut self, chunk: u32);
    /// Gives up what was ordered long ago and not read; returns the chunks.
    fn age(&mut self) -> Vec<u32>;
    /// Bytes ordered that were read.
    fn right_bytes(&self) -> u64;
    /// Bytes ordered that were not read.
    fn wasted_bytes(&self) -> u64;
    /// The news for the windows of other opens of the image.
    fn balance(&self) -> AheadBalance;
    /// Returns whether all that is read next is ordered here.
    fn is_led(&self) -> bool;
    /// Returns whether nothing is left to order or to read.
    fn is_over(&self) -> bool;
    /// Notes that the open has ended.
    fn ended(&mut self);
}

impl AheadWindow for ReadAhead {
    fn read(&mut self, chunk: u32) -> Touch {
        ReadAhead::read(self, chunk)
    }

    fn next_beside(&mut self, others: AheadBalance, room_bytes: u64) -> Vec<u32> {
        ReadAhead::next_beside(self, others, room_bytes)
    }

    fn fetched(&mut self, chunk: u32) {
        ReadAhead::fetched(self, chunk);
    }

    fn present(&mut self, chunk: u32) {
        ReadAhead::present(self, chunk);
    }

    fn failed(&mut self, chunk: u32) {
        ReadAhead::failed(self, chunk);
    }

    fn put_back(&mut self, chunk: u32) {
        ReadAhead::put_back(self, chunk);
    }

    fn gone(&mut self, chunk: u32) {
        ReadAhead::gone(self, chunk);
    }

    fn age(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn right_bytes(&self) -> u64 {
        ReadAhead::right_bytes(self)
    }

    fn wasted_bytes(&self) -> u64 {
        ReadAhead::wasted_bytes(self)
    }

    fn balance(&self) -> AheadBalance {
        ReadAhead::balance(self)
    }

    fn is_led(&self) -> bool {
        ReadAhead::is_led(self)
    }

    fn is_over(&self) -> bool {
        ReadAhead::is_over(self)
    }

    fn ended(&mut self) {}
}

/// The window along hints.
pub(crate) struct HintWindow(pub(crate) Arc<Membership>);

impl Debug for HintWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HintWindow").field(&*self.0.follower()).finish()
    }
}

impl AheadWindow for HintWindow {
    fn read(&mut self, chunk: u32) -> Touch {
        self.0.read(chunk)
    }

    /// All opens of the image have one follower, which bounds them together.
    fn next_beside(&mut self, _others: AheadBalance, room_bytes: u64) -> Vec<u32> {
        let now = self.0.now();
        self.0.follower().next(room_bytes, now)
    }

    fn fetched(&mut self, chunk: u32) {
        self.0.follower().fetched(chunk);
    }

    fn present(&mut self, chunk: u32) {
        self.0.follower().settled(chunk);
    }

    fn failed(&mut self, chunk: u32) {
        self.0.follower().settled(chunk);
    }

    fn put_back(&mut self, chunk: u32) {
        self.0.follower().put_back(chunk);
    }

    fn gone(&mut self, chunk: u32) {
        self.0.follower().gone(chunk);
    }

    fn age(&mut self) -> Vec<u32> {
        let now = self.0.now();
        self.0.follower().age(now)
    }

    fn right_bytes(&self) -> u64 {
        self.0.follower().matched_bytes()
    }

    fn wasted_bytes(&self) -> u64 {
        self.0.follower().wasted_bytes()
    }

    /// Nothing: hints say nothing of the boot profile.
    fn balance(&self) -> AheadBalance {
        AheadBalance::default()
    }

    /// Never: reads beyond the hints are guessed as if there were none.
    fn is_led(&self) -> bool {
        false
    }

    /// Others may miss something at any time.
    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn ended(&mut self) {
        self.0.end();
    }
}
