//! Fetching a page that a look-up needs: once whoever wants it, with retries.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use acstor_manifest::PageCache;
use acstor_runclock::RunClock;
use acstor_selection::Backoff;
use acstor_types::ErrorKind;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::fetch::outcome::PageFetch;
use crate::observe::page_metrics::PageFetchMetrics;
use crate::origin::origin_health::OriginAdmission;
use crate::origin::origin_queue::OriginQueue;
use crate::pages::page_failure::PageFailure;
use crate::pages::page_turns::PageTurns;
use crate::pages::page_window::{self, Fetched};
use crate::steering::jitter;
use crate::view::disk_manifest::Level;
use crate::view::manifest_source::{AbsentPage, ManifestFault};
use crate::{OriginError, OriginSource, ReadPathConfig, limits};

/// Fetches of pages from the origin.
///
/// They share the origin's circuit breaker with the chunks, and have calls of their own: a page is
/// needed before it is known which chunk is.
pub(crate) struct PageFetches {
    origin: Arc<dyn OriginSource>,
    queue: Arc<OriginQueue>,
    /// Pages of all manifests.
    pages: Arc<PageCache>,
    clock: RunClock,
    runtime: Handle,
    metrics: PageFetchMetrics,
    /// Time that one call may take, and that a thread may wait for a page.
    call_time: Duration,
    wait_time: Duration,
    /// One per call for somebody who waits.
    permits: Arc<Semaphore>,
    /// One per call for nobody.
    permits_of_completion: Arc<Semaphore>,
    turns: PageTurns,
    /// True while the local disk does not take pages, so that this is told of once.
    is_unwritable: AtomicBool,
}

impl PageFetches {
    /// Fetches from `origin`, into `pages`.
    pub(crate) fn new(
        config: &ReadPathConfig,
        origin: Arc<dyn OriginSource>,
        queue: Arc<OriginQueue>,
        pages: Arc<PageCache>,
        clock: RunClock,
        registry: &mut Registry,
        runtime: Handle,
    ) -> PageFetches {
        PageFetches {
            origin,
            queue,
            pages,
            clock,
            runtime,
            metrics: PageFetchMetrics::new(registry),
            call_time: config.origin_deadline,
            wait_time: config.read_deadline,
            permits: Arc::new(Semaphore::new(limits::PAGE_CALLS_MAX)),
            permits_of_completion: Arc::new(Semaphore::new(limits::COMPLETION_CALLS_MAX)),
            turns: PageTurns::default(),
            is_unwritable: AtomicBool::new(false),
        }
    }

    /// Pages of all manifests that are in memory.
    pub(crate) fn pages(&self) -> &Arc<PageCache> {
        &self.pages
    }

    /// Brings a page that a look-up did not find, and what verifies it; tries for as long as the caller
    /// waits, unless the origin has other bytes.
    ///
    /// # Errors
    /// [`PageFailure`] that the next attempt would meet, too.
    ///
    /// # Cancel safety
    /// A page that is being read from the origin is kept, for whoever needs it next.
    pub(crate) async fn bring(
        self: &Arc<Self>,
        level: &Level,
        page: u32,
    ) -> Result<(), PageFailure> {
        let (mut attempts, mut in_vain) = (0, 0);
        while let Some(absent) = self.first_absent(level, page).await? {
            let window = page_window::around(&level.0, absent);
            let place = self.turns.enter((level.0.name(), window.start));
            let _turn = place.turn.lock().await;
            if self.first_absent(level, page).await? != Some(absent) {
                // Whose turn it was has brought it.
                continue;
            }
            let recoveries = self.recoveries();
            let failure = match self.fetch(level, window).await {
                Ok(fetched) => fetched.refusal_of(absent),
                Err(failure) => Some(failure),
            };
            in_vain += u32::from(failure.as_ref().is_some_and(PageFailure::is_of_the_page));
            if let Some(failure) = &failure
                && !failure.may_pass(in_vain)
            {
                return Err(failure.clone());
            }
            // Pages that can be kept neither on the disk nor in memory would come again and again.
            if failure.is_some() || attempts >= limits::PAGE_PATH_MAX {
                self.pause(attempts, recoveries).await;
            }
            attempts += 1;
        }
        Ok(())
    }

    /// Returns the page that has to be fetched first so that `page` can be read; `None` where it can.
    async fn first_absent(&self, level: &Level, page: u32) -> Result<Option<u32>, PageFailure> {
        let (level, pages) = (level.clone(), self.pages.clone());
        let look = move || page_window::look(&level, page, &pages);
        let looked = self.runtime.spawn_blocking(look).await.map_err(|_| PageFailure::Stopped)?;
        match looked {
            Ok(()) => Ok(None),
            Err(fault) => match fault.absent {
                Some(absent) => Ok(Some(absent.page)),
                None => Err(PageFailure::Local(fault)),
            },
        }
    }

    /// Fetches pages that nobody waits for, through `cache`; waits while as many calls as may be have not
    /// returned, however long ago they were given up: each holds a thread that the local disk is read by.
    ///
    /// # Errors
    /// [`PageFailure`].
    ///
    /// # Cancel safety
    /// As of [`PageFetches::bring`].
    pub(crate) async fn complete(
        self: &Arc<Self>,
        level: &Level,
        window: Range<u32>,
        cache: &Arc<PageCache>,
    ) -> Result<Fetched, PageFailure> {
        let permit = self.permits_of_completion.clone().acquire_owned().await;
        let permit = permit.map_err(|_| PageFailure::Stopped)?;
        self.call(level, window, cache, PageFetch::Background, permit).await
    }

    async fn fetch(
        self: &Arc<Self>,
        level: &Level,
        window: Range<u32>,
    ) -> Result<Fetched, PageFailure> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| PageFailure::Stopped)?;
        self.call(level, window, &self.pages, PageFetch::Demand, permit).await
    }

    /// Fetches pages by one call of the origin, where its health lets that go out. `held` is given back
    /// when the call has returned, which may be late.
    ///
    /// # Errors
    /// [`PageFailure`].
    ///
    /// # Cancel safety
    /// As of [`PageFetches::bring`].
    async fn call(
        self: &Arc<Self>,
        level: &Level,
        window: Range<u32>,
        cache: &Arc<PageCache>,
        reason: PageFetch,
        held: OwnedSemaphorePermit,
    ) -> Result<Fetched, PageFailure> {
        if let OriginAdmission::Wait(_) = self.queue.health.admit(Instant::now()) {
            return Err(PageFailure::Down);
        }
        let (fetches, level, cache) = (self.clone(), level.clone(), cache.clone());
        let call = self.runtime.spawn_blocking(move || {
            let _held = held;
            fetches.read_and_admit(&level, &window, &cache, reason)
        });
        match self.clock.timeout(self.call_time, call).await {
            Ok(outcome) => outcome.unwrap_or(Err(PageFailure::Stopped)),
            Err(_) => {
                self.queue.health.failed(Instant::now());
                self.metrics.failed();
                Err(PageFailure::Late)
            }
        }
    }

    fn read_and_admit(
        &self,
        level: &Level,
        window: &Range<u32>,
        cache: &Arc<PageCache>,
        reason: PageFetch,
    ) -> Result<Fetched, PageFailure> {
        let range = page_window::call(&*self.origin, &level.0, window);
        match &range {
            Ok(_)
            | Err(
                OriginError::NotFound { .. }
                | OriginError::ShortRead { .. }
                // Some members answer.
                | OriginError::Undecided { .. },
            ) => self.queue.health.succeeded(),
            Err(_) => self.queue.health.failed(Instant::now()),
        }
        let mut range = range.inspect_err(|_| self.metrics.failed())?;
        let admit = |bytes: &[u8]| {
            let fetched = page_window::admit(level, window, bytes, cache);
            self.note(level, reason, &fetched);
            fetched
        };
        let fetched = admit(&range.buffer);
        if fetched.refused.is_empty() {
            return Ok(fetched);
        }
        let again = page_window::call_elsewhere(&*self.origin, &level.0, &mut range, admit);
        Ok(again.inspect_err(|_| self.metrics.failed())?.unwrap_or(fetched))
    }

    /// Counts what a call has brought, and tells of what is refused.
    fn note(&self, level: &Level, reason: PageFetch, fetched: &Fetched) {
        self.metrics.fetched(reason, fetched.pages, fetched.unwritten);
        for (page, fault) in &fetched.refused {
            self.metrics.failed();
            tracing::error!(manifest = %level.0.name(), page, "a fetched page is refused: {fault}");
        }
        self.note_writes(fetched);
    }

    /// Tells of a local disk that does not take pages, and when it does again.
    fn note_writes(&self, fetched: &Fetched) {
        let Some(error) = &fetched.write_error else {
            if fetched.pages > 0 {
                self.is_unwritable.store(false, Ordering::Relaxed);
            }
            return;
        };
        if !self.is_unwritable.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "pages of manifests are fetched whenever they are needed, as they cannot be kept here: {error}"
            );
        }
    }

    /// Waits before the next attempt; not long once the origin is back.
    pub(crate) async fn pause(&self, attempts: u32, recoveries: u64) {
        let wait = Backoff::READ.delay(attempts, jitter());
        tokio::select! {
            () = self.clock.sleep_until(self.clock.now() + wait) => {}
            () = self.queue.health.recovered_since(recoveries) => {
                let spread = Backoff::READ.delay(0, jitter());
                self.clock.sleep_until(self.clock.now() + spread).await;
            }
        }
    }

    /// Recoveries of the origin so far.
    pub(crate) fn recoveries(&self) -> u64 {
        self.queue.health.recoveries()
    }

    /// As [`PageFetches::bring`], for a thread that may wait, and not for ever.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn bring_on_thread(
        self: &Arc<Self>,
        level: &Level,
        absent: AbsentPage,
    ) -> Result<(), ManifestFault> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (fetches, of_task) = (self.clone(), level.clone());
        self.runtime.spawn(async move {
            let bring = fetches.bring(&of_task, absent.page);
            let outcome = fetches.clock.timeout(fetches.wait_time, bring).await;
            // Whoever waited may have gone.
            let _ = sender.send(outcome.unwrap_or(Err(PageFailure::Late)));
        });
        let outcome = receiver.recv().unwrap_or(Err(PageFailure::Stopped));
        outcome.map_err(|failure| {
            let message =
                format!("page {} of manifest {}: {failure}", absent.page, absent.manifest);
            ManifestFault::new(ErrorKind::Unavailable, message).with_absent(absent)
        })
    }
}

impl std::fmt::Debug for PageFetches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageFetches").field("turns", &self.turns).finish_non_exhaustive()
    }
}
