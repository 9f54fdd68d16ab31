//! Making the manifests of attached disks whole on this host, so that it needs no origin to find what it
//! has.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use acstor_manifest::PageCache;
use acstor_types::{Digest, DiskId};
use tokio::time::{Instant, sleep, timeout};

use crate::fetch::sources::Sources;
use crate::limits;
use crate::pages::page_failure::PageFailure;
use crate::pages::page_window::{Fetched, parts};
use crate::view::attachment::Attachment;
use crate::view::attachments::Attachments;
use crate::view::disk_manifest::{Level, PagedManifest};

/// The task that fetches what is missing: some pages of each manifest in turn, never much at a time.
pub(crate) struct Completion {
    sources: Arc<Sources>,
    attachments: Arc<Attachments>,
}

/// Progress with one manifest.
#[derive(Default)]
struct Pass {
    cursor: Cursor,
    /// Number of its files, and names of its levels: what is in others is begun anew.
    files: u64,
    names: Vec<Digest>,
    /// True if pages were passed over.
    has_gaps: bool,
    attempts: u32,
    /// Time before which nothing is tried.
    again_at: Option<Instant>,
}

/// Place from which on holes are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    level: usize,
    /// Number of the part of the level; see [`parts`].
    part: usize,
    page: u32,
}

/// Pages that are missing, and where to go on behind them.
struct Hole {
    level: Level,
    window: Range<u32>,
    next: Cursor,
}

/// Returns the next pages that are missing; reads no page.
fn next_hole(manifest: &PagedManifest, from: Cursor) -> Option<Hole> {
    for (number, level) in manifest.levels().iter().enumerate().skip(from.level) {
        let is_first = number == from.level;
        let first_part = if is_first { from.part } else { 0 };
        for (part, pages) in parts(&level.0).into_iter().enumerate().skip(first_part) {
            let is_begun = is_first && part == from.part;
            let start = if is_begun { pages.start.max(from.page) } else { pages.start };
            if start >= pages.end {
                continue;
            }
            let Some(hole) = level.1.next_hole(start..pages.end) else { continue };
            let end = hole.end.min(hole.start.saturating_add(limits::COMPLETION_WINDOW));
            let next = Cursor { level: number, part, page: end };
            return Some(Hole { level: level.clone(), window: hole.start..end, next });
        }
    }
    None
}

impl Completion {
    pub(crate) fn new(sources: Arc<Sources>, attachments: Arc<Attachments>) -> Completion {
        Completion { sources, attachments }
    }

    /// Works for ever. A disk that is detached is not looked at any more.
    pub(crate) async fn run(&self) {
        let mut passes: HashMap<DiskId, Pass> = HashMap::new();
        loop {
            let attached = self.attachments.all();
            passes.retain(|disk, _| attached.iter().any(|attachment| attachment.id() == *disk));
            let mut has_fetched = false;
            for attachment in attached.iter().filter(|attachment| !attachment.is_complete()) {
                let pass = passes.entry(attachment.id()).or_default();
                has_fetched |= self.go_on(attachment, pass).await;
            }
            if !has_fetched {
                // Whoever tells of a new disk before this waits is not missed.
                let _ = timeout(limits::COMPLETION_RETRY, self.sources.attached.notified()).await;
            }
        }
    }

    /// Fetches the next pages of a manifest; returns whether there may be more to do at once.
    async fn go_on(&self, attachment: &Arc<Attachment>, pass: &mut Pass) -> bool {
        if pass.again_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        pass.again_at = None;
        match self.look(attachment, pass).await {
            Ok(Some(hole)) => {
                self.give_way().await;
                self.fetch(hole, pass).await
            }
            Ok(None) if pass.has_gaps => pass.put_off(),
            Ok(None) => {
                attachment.set_complete(pass.files);
                false
            }
            // The local disk may do better later.
            Err(()) => pass.put_off(),
        }
    }

    async fn look(
        &self,
        attachment: &Arc<Attachment>,
        pass: &mut Pass,
    ) -> Result<Option<Hole>, ()> {
        let (attachment, files) = (attachment.clone(), attachment.files());
        if files != pass.files {
            *pass = Pass { files, ..Pass::default() };
        }
        let (cursor, names) = (pass.cursor, pass.names.clone());
        let look = move || {
            let Some(manifest) = attachment.paged().map_err(drop)? else { return Ok(None) };
            let found: Vec<Digest> = manifest.names().collect();
            let cursor = if found == names { cursor } else { Cursor::default() };
            Ok(Some((next_hole(&manifest, cursor), found)))
        };
        let looked = self.sources.runtime.spawn_blocking(look).await.map_err(drop)?;
        let Some((hole, names)) = looked? else { return Ok(None) };
        if names != pass.names {
            *pass = Pass { files, names, ..Pass::default() };
        }
        Ok(hole)
    }

    /// Waits while reads of guests wait, but not for ever.
    async fn give_way(&self) {
        let waiting = &self.sources.waiting_reads;
        let _ = timeout(limits::COMPLETION_YIELD_MAX, waiting.none()).await;
    }

    async fn fetch(&self, hole: Hole, pass: &mut Pass) -> bool {
        let fetches = &self.sources.page_fetches;
        let (recoveries, started) = (fetches.recoveries(), Instant::now());
        // What guests need stays in the cache, and here counts what is in the file.
        let pages = Arc::new(PageCache::new(limits::PASS_PAGES_BYTES));
        match fetches.complete(&hole.level, hole.window, &pages).await {
            Ok(Fetched { left, .. }) => {
                pass.attempts = 0;
                pass.cursor = hole.next;
                pass.has_gaps |= left > 0;
                self.rest(started.elapsed()).await;
                true
            }
            Err(failure) if failure.is_of_the_page() => {
                pass.cursor = hole.next;
                pass.has_gaps = true;
                pass.put_off()
            }
            Err(PageFailure::Stopped) => pass.put_off(),
            Err(_) => {
                fetches.pause(pass.attempts, recoveries).await;
                pass.attempts = pass.attempts.saturating_add(1);
                true
            }
        }
    }

    /// Leaves the link to others for longer than it was used.
    async fn rest(&self, used: Duration) {
        sleep((used * limits::COMPLETION_REST_FACTOR).min(limits::COMPLETION_REST_MAX)).await;
    }
}

impl Pass {
    /// Begins anew, but not now; returns that there is nothing to do at once.
    fn put_off(&mut self) -> bool {
        *self = Pass {
            files: self.files,
            names: std::mem::take(&mut self.names),
            again_at: Some(Instant::now() + limits::COMPLETION_RETRY),
            ..Pass::default()
        };
        false
    }
}
