//! Running one preload.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_selection::Backoff;
use acstor_types::Digest;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::failure::PreloadFailure;
use super::rate_limit::{RateLimit, batch_bytes};
use super::room::Survey;
use super::{FeedRequest, Job, PreloadState, Preloads};
use crate::fetch::flight::{Flight, FlightFailure, Obtained, Priority};
use crate::fetch::outcome::PreloadChunk;
use crate::fetch::sources::{Sources, Want};
use crate::keeping::inserter::NotQueued;
use crate::keeping::pin_table::Pinned;
use crate::steering::jitter;
use crate::view::attachment::Attachment;
use crate::view::disk::Disk;
use crate::{InsertOutcome, Tier, limits};

type Ended = Result<Result<(), PreloadFailure>, JoinError>;

/// A preload at work.
struct Run {
    preloads: Arc<Preloads>,
    disk: Arc<Disk>,
    job: Arc<Job>,
    limit: RateLimit,
    /// Chunks in flight; ended when this is dropped.
    chunks: JoinSet<Result<(), PreloadFailure>>,
}

/// Waits for its turn, then brings everything that the job wants.
pub(super) async fn run(preloads: Arc<Preloads>, attachment: Arc<Attachment>, job: Arc<Job>) {
    let Ok(_place) = preloads.places.clone().acquire_owned().await else { return };
    job.begin();
    // The manifest stays in memory until the preload ends.
    let sources = &preloads.sources;
    let disk = match sources.manifest_loads.load(sources, &attachment, Priority::Preload).await {
        Ok(view) => view.disk.clone(),
        Err(error) => {
            let failure = PreloadFailure::Manifest(error);
            return preloads.end(&job, PreloadState::Failed, Some(failure));
        }
    };
    let (limit, chunks) = (RateLimit::default(), JoinSet::new());
    let mut run = Run { preloads: preloads.clone(), disk, job: job.clone(), limit, chunks };
    let outcome = run.bring_all().await;
    // Whatever is in flight ends first, so that nothing goes on behind a job that has ended.
    run.chunks.shutdown().await;
    match outcome {
        Ok(()) => preloads.end(&job, PreloadState::Done, None),
        Err(PreloadFailure::Stopped) => preloads.end(&job, PreloadState::Stopped, None),
        Err(failure) => preloads.end(&job, PreloadState::Failed, Some(failure)),
    }
}

impl Run {
    async fn bring_all(&mut self) -> Result<(), PreloadFailure> {
        let mut left = self.prepare().await?;
        if self.listen(&left.missing).await? {
            left = self.prepare().await?;
        }
        for _ in 0..limits::PRELOAD_PASSES_MAX {
            if left.missing.is_empty() {
                return Ok(());
            }
            self.bring(&left.missing).await?;
            // What was there at first may have been evicted, and so may what came.
            left = self.prepare().await?;
        }
        if left.missing.is_empty() {
            return Ok(());
        }
        let (missing, total) = (left.estimate.missing_bytes, left.estimate.total_bytes);
        Err(PreloadFailure::Evicted { missing, total })
    }

    /// Takes what comes by itself; returns whether anything did. A boot that is about to begin does not wait.
    async fn listen(&self, indexes: &[u32]) -> Result<bool, PreloadFailure> {
        let Some(feed) = self.preloads.feed.get().filter(|_| !self.job.is_hint()) else {
            return Ok(false);
        };
        let indexes = &indexes[..indexes.len().min(limits::PRELOAD_FEED_CHUNKS_MAX)];
        let mut missing = HashMap::with_capacity(indexes.len());
        for batch in indexes.chunks(limits::PRELOAD_FEED_BATCH) {
            let wants = wants_of(&self.preloads.sources, &self.disk, batch).await?;
            let named = batch.iter().zip(wants).filter_map(|(index, want)| Some((*index, want?)));
            missing.extend(named.map(|(index, want)| (u64::from(index), want.digest)));
        }
        if missing.is_empty() {
            return Ok(false);
        }
        let request = FeedRequest { disk: self.job.disk, request: self.job.request(), missing };
        let (chunks, mut fed) = mpsc::channel(limits::PRELOAD_FEED_QUEUE);
        let writing = async {
            let mut has_come = false;
            while let Some((_, digest, bytes)) = fed.recv().await {
                has_come = true;
                self.take_fed(digest, bytes).await;
            }
            has_come
        };
        let ((), has_come) = tokio::join!(feed.feed(request, chunks), writing);
        Ok(has_come)
    }

    /// Has a chunk written that came by itself; one that cannot be is fetched like any other.
    async fn take_fed(&self, digest: Digest, bytes: Bytes) {
        let (sources, len) = (&self.preloads.sources, bytes.len() as u64);
        let written = match sources.chunks.inserter.watch(digest, bytes) {
            Ok(outcome) => outcome.await,
            Err(_) => return,
        };
        if let Ok(Ok(InsertOutcome::New)) = written {
            self.job.fetched(len);
            sources.metrics.preload.chunk(PreloadChunk::Fetched);
            sources.metrics.preload.bytes(len);
        }
    }

    async fn prepare(&self) -> Result<Survey, PreloadFailure> {
        let (preloads, disk, job) = (self.preloads.clone(), self.disk.clone(), self.job.clone());
        self.preloads
            .sources
            .runtime
            .spawn_blocking(move || preloads.room.prepare(&disk, &job))
            .await
            .unwrap_or(Err(PreloadFailure::Internal("the look at the chunk store ended early")))
    }

    /// Brings the chunks of ascending `indexes`, batch by batch.
    async fn bring(&mut self, indexes: &[u32]) -> Result<(), PreloadFailure> {
        let chunk = self.preloads.sources.chunks.store.chunk_size().bytes();
        let in_flight_max = (limits::PRELOAD_WINDOW_BYTES / chunk).max(1);
        let mut left = indexes;
        while !left.is_empty() {
            let count = (batch_bytes(self.job.rate(), chunk) / chunk).min(left.len());
            let (batch, rest) = left.split_at(count);
            left = rest;
            let wants = self.still_missing(batch).await?;
            if wants.is_empty() {
                continue;
            }
            while self.chunks.len() + wants.len() > in_flight_max.max(wants.len()) {
                self.one_ended().await?;
            }
            self.pay(wants.len() * chunk).await?;
            self.give_way().await?;
            self.start(&wants)?;
        }
        while !self.chunks.is_empty() {
            self.one_ended().await?;
        }
        Ok(())
    }

    /// Returns the chunks of a batch that nobody has brought since the check of the chunk store.
    async fn still_missing(&self, batch: &[u32]) -> Result<Vec<(u32, Want)>, PreloadFailure> {
        let sources = &self.preloads.sources;
        let mut wants = Vec::with_capacity(batch.len());
        for (index, want) in batch.iter().zip(wants_of(sources, &self.disk, batch).await?) {
            let Some(want) = want else { continue };
            if sources.chunks.store.contains(&want.digest) {
                found(sources, &self.job, &want);
            } else {
                wants.push((*index, want));
            }
        }
        Ok(wants)
    }

    async fn one_ended(&mut self) -> Result<(), PreloadFailure> {
        match self.chunks.join_next().await {
            Some(ended) => settle(ended),
            None => Ok(()),
        }
    }

    async fn pay(&mut self, bytes: usize) -> Result<(), PreloadFailure> {
        let Run { job, limit, chunks, .. } = self;
        watching(chunks, limit.take(job, bytes)).await
    }

    /// Waits while reads of guests wait, but not for ever.
    async fn give_way(&mut self) -> Result<(), PreloadFailure> {
        let Run { preloads, job, chunks, .. } = self;
        let waiting = &preloads.sources.waiting_reads;
        if waiting.count() == 0 {
            return Ok(());
        }
        let since = Instant::now();
        let giving_way = job.give_way();
        let until_none = async {
            let _ = timeout(limits::PRELOAD_YIELD_MAX, waiting.none()).await;
        };
        let outcome = watching(chunks, until_none).await;
        drop(giving_way);
        preloads.sources.metrics.preload.gave_way(since.elapsed());
        outcome
    }

    /// Starts to obtain a batch; nothing waits here, so that neighbours leave the origin together.
    fn start(&mut self, wants: &[(u32, Want)]) -> Result<(), PreloadFailure> {
        let sources = &self.preloads.sources;
        let mut flights = Vec::with_capacity(wants.len());
        for (index, want) in wants {
            let pin = match self.job.request().pin {
                true => self.preloads.room.try_pin(&self.job.disk, &want.digest)?,
                false => None,
            };
            let deadline = sources.clock.now() + sources.config.read_deadline;
            let flight = sources.obtain(&self.disk, want, Priority::Preload, deadline);
            flights.push((*index, flight, deadline, pin));
        }
        for (index, flight, deadline, pin) in flights {
            let (sources, disk, job) = (sources.clone(), self.disk.clone(), self.job.clone());
            let chunk = Chunk { sources, disk, job, index, pin, attempts: 0, away_since: None };
            self.chunks.spawn_on(chunk.bring(flight, deadline), &self.preloads.sources.runtime);
        }
        Ok(())
    }
}

async fn wants_of(
    sources: &Sources,
    disk: &Arc<Disk>,
    indexes: &[u32],
) -> Result<Vec<Option<Want>>, PreloadFailure> {
    let indexes: Vec<u64> = indexes.iter().copied().map(u64::from).collect();
    let deadline = sources.clock.now() + sources.config.read_deadline;
    let wants = sources.wants(disk, indexes.into_iter(), Priority::Preload, deadline);
    wants.await.map_err(PreloadFailure::Manifest)
}

fn settle(ended: Ended) -> Result<(), PreloadFailure> {
    ended.unwrap_or(Err(PreloadFailure::Internal("the task of a chunk ended early")))
}

/// Waits, unless a chunk in flight fails meanwhile.
async fn watching(
    chunks: &mut JoinSet<Result<(), PreloadFailure>>,
    wait: impl Future<Output = ()>,
) -> Result<(), PreloadFailure> {
    tokio::pin!(wait);
    loop {
        tokio::select! {
            biased;
            Some(ended) = chunks.join_next() => settle(ended)?,
            () = &mut wait => return Ok(()),
        }
    }
}

fn found(sources: &Sources, job: &Job, want: &Want) {
    job.found(want.chunk_size.bytes() as u64);
    sources.metrics.preload.chunk(PreloadChunk::Present);
}

/// One chunk on its way.
struct Chunk {
    sources: Arc<Sources>,
    disk: Arc<Disk>,
    job: Arc<Job>,
    index: u32,
    /// Taken back unless the chunk arrives.
    pin: Option<Pinned>,
    attempts: u32,
    /// Since when the origin does not answer.
    away_since: Option<Instant>,
}

impl Chunk {
    /// Brings the chunk into the chunk store, by `flight` or by others after it.
    async fn bring(
        mut self,
        mut flight: Arc<Flight>,
        mut deadline: RunInstant,
    ) -> Result<(), PreloadFailure> {
        loop {
            let digest = flight.digest;
            match flight.wait(deadline).await {
                Ok(obtained) => return self.keep(digest, obtained).await,
                Err(failure) => self.pause(digest, failure).await?,
            }
            self.sources.metrics.preload.chunk(PreloadChunk::Retried);
            // Where it is now: it may have moved in the origin.
            let want = wants_of(&self.sources, &self.disk, &[self.index]).await?;
            let Some(Some(want)) = want.first() else { return Ok(()) };
            deadline = self.sources.clock.now() + self.sources.config.read_deadline;
            flight = self.sources.obtain(&self.disk, want, Priority::Preload, deadline);
        }
    }

    /// Waits before the next attempt.
    async fn pause(
        &mut self,
        digest: Digest,
        failure: FlightFailure,
    ) -> Result<(), PreloadFailure> {
        if failure == FlightFailure::Stopped {
            return Err(PreloadFailure::Stopped);
        }
        let health = &self.sources.origin.queue().health;
        if failure.is_absence() && !health.is_up() {
            let since = *self.away_since.get_or_insert_with(Instant::now);
            if since.elapsed() > limits::PRELOAD_ORIGIN_WAIT_MAX {
                return Err(PreloadFailure::OriginAway);
            }
            let _waiting = self.job.wait_for_origin();
            let most = acstor_selection::limits::ORIGIN_OPEN_MAX;
            let probe = Backoff { min: most, max: most }.delay(0, jitter());
            let _ = timeout(probe, health.recovered_since(health.recoveries())).await;
            return Ok(());
        }
        self.away_since = None;
        self.attempts += 1;
        let attempts_max = match failure {
            FlightFailure::Corrupt | FlightFailure::Missing => limits::PRELOAD_DAMAGED_ATTEMPTS_MAX,
            _ => limits::PRELOAD_ATTEMPTS_MAX,
        };
        if self.attempts >= attempts_max {
            self.sources.metrics.preload.chunk(PreloadChunk::Failed);
            let (index, attempts) = (self.index, self.attempts);
            return Err(PreloadFailure::Chunk { index, digest, failure, attempts });
        }
        sleep(self.backoff()).await;
        Ok(())
    }

    fn backoff(&self) -> Duration {
        Backoff::READ.delay(self.attempts, jitter())
    }

    /// Has the chunk written, whatever the keep policy says.
    async fn keep(mut self, digest: Digest, obtained: Obtained) -> Result<(), PreloadFailure> {
        let len = obtained.bytes.len() as u64;
        if obtained.tier != Tier::Store {
            self.write(digest, &obtained.bytes).await?;
        }
        match self.pin.take() {
            Some(pin) => pin.keep(),
            None => self.sources.chunks.store.favor(&digest),
        }
        let metrics = &self.sources.metrics.preload;
        if matches!(obtained.tier, Tier::Store | Tier::Recent) {
            self.job.found(len);
            metrics.chunk(PreloadChunk::Present);
        } else {
            self.job.fetched(len);
            metrics.chunk(PreloadChunk::Fetched);
            metrics.bytes(len);
        }
        Ok(())
    }

    async fn write(&mut self, digest: Digest, bytes: &Bytes) -> Result<(), PreloadFailure> {
        loop {
            let outcome = match self.sources.chunks.inserter.watch(digest, bytes.clone()) {
                Ok(outcome) => outcome,
                Err(NotQueued::Full) => {
                    sleep(limits::PRELOAD_INSERT_PAUSE).await;
                    continue;
                }
                Err(NotQueued::Stopped) => return Err(PreloadFailure::Stopped),
            };
            let failure = match outcome.await {
                Ok(Ok(InsertOutcome::New | InsertOutcome::Present)) => return Ok(()),
                Ok(Ok(InsertOutcome::Refused)) => PreloadFailure::StoreRefused,
                Ok(Err(error)) => PreloadFailure::Store(error),
                Err(_) => return Err(PreloadFailure::Stopped),
            };
            self.attempts += 1;
            if self.attempts >= limits::PRELOAD_ATTEMPTS_MAX {
                self.sources.metrics.preload.chunk(PreloadChunk::Failed);
                return Err(failure);
            }
            self.sources.metrics.preload.chunk(PreloadChunk::Retried);
            sleep(self.backoff()).await;
        }
    }
}
