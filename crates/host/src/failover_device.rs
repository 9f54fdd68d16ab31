//! Failover device: the device behind NBD clients of a volume, which is its overlay, a standby that
//! waits for it, or none.
//!
//! The overlay of a volume comes and goes while its clients stay connected: a standby of a live
//! migration gets it with the first request, an owner that was replaced loses it for good. A
//! request waits for an overlay as long as it takes: who hands it over may have much to push, and
//! an origin that is away makes requests wait in an overlay, too. Before it ever had one, a standby
//! answers reads of the first sectors by what the owner has (`head_reads`).
//!
//! Must never: let a request reach an overlay that was taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acstor_overlay::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, DeviceUse, Done,
    ExtentQuery, Piece, TryRead, ZeroHow,
};
use acstor_readpath::Segment;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::head_reads::{HeadReads, Look};

/// Device that answers requests.
enum Mode {
    /// The overlay.
    Active(Arc<dyn BlockDevice>),
    /// Nobody yet: requests wait, and tell that they do. The overlay that was taken away until its
    /// release has ended: what was written to it may not be durable yet.
    Standby(Option<Arc<dyn BlockDevice>>),
    /// Nobody any more: every request fails.
    Fenced(String),
}

struct Shared {
    /// Held for reading while a request is handed over, never while one waits.
    mode: RwLock<Mode>,
    changed: Notify,
    size_bytes: AtomicU64,
    is_wanted: AtomicBool,
    /// Given up for good with the first overlay.
    head: Mutex<HeadReads>,
}

/// A disk whose overlay can be put in place and taken away.
#[derive(Clone)]
pub(super) struct FailoverDevice {
    shared: Arc<Shared>,
}

impl FailoverDevice {
    /// A disk of `size_bytes` whose overlay is to come.
    pub(super) fn standby(size_bytes: u64) -> FailoverDevice {
        FailoverDevice {
            shared: Arc::new(Shared {
                mode: RwLock::new(Mode::Standby(None)),
                changed: Notify::new(),
                size_bytes: size_bytes.into(),
                is_wanted: false.into(),
                head: Mutex::default(),
            }),
        }
    }

    /// Returns whether a read of the first sectors waits for a look at the owner's content.
    pub(super) fn is_head_wanted(&self) -> bool {
        self.shared.head.lock().is_wanted()
    }

    /// Begins a look at the owner's content for the reads that wait; `None`: none does.
    pub(super) fn begin_head(&self) -> Option<Look> {
        self.shared.head.lock().begin()
    }

    /// Answers reads of the first sectors that came before `look` was begun.
    pub(super) fn answer_head(&self, look: Look, content: Bytes) {
        self.shared.head.lock().answer(look, content);
        self.shared.changed.notify_waiters();
    }

    /// Has reads of the first sectors wait for an overlay, as all others.
    pub(super) fn give_up_head(&self) {
        self.shared.head.lock().give_up();
        self.shared.changed.notify_waiters();
    }

    /// Puts the overlay in place; requests that wait go on.
    pub(super) fn activate(&self, device: Arc<dyn BlockDevice>) {
        self.shared.head.lock().give_up();
        self.switch(Mode::Active(device));
    }

    /// Takes the overlay away. When this returns no request is being handed to it, and none will
    /// be, but flushes of what it has; those that were go on.
    pub(super) fn stand_by(&self) {
        let leaving = match &*self.shared.mode.read() {
            Mode::Active(device) => Some(Arc::clone(device)),
            Mode::Standby(leaving) => leaving.clone(),
            Mode::Fenced(_) => None,
        };
        self.switch(Mode::Standby(leaving));
    }

    /// The overlay that was taken away has given back everything.
    pub(super) fn given_back(&self) {
        if let Mode::Standby(leaving) = &mut *self.shared.mode.write() {
            *leaving = None;
        }
        self.shared.changed.notify_waiters();
    }

    /// Fails every request from now on.
    pub(super) fn fence(&self, why: &str) {
        self.switch(Mode::Fenced(why.to_owned()));
    }

    /// Returns whether a request waits for the overlay.
    pub(super) fn is_wanted(&self) -> bool {
        self.shared.is_wanted.load(Ordering::Acquire)
    }

    fn switch(&self, mode: Mode) {
        let mut present = self.shared.mode.write();
        if let Mode::Active(device) = &*present {
            self.shared.size_bytes.store(device.size_bytes(), Ordering::Release);
        }
        *present = mode;
        self.shared.is_wanted.store(false, Ordering::Release);
        drop(present);
        self.shared.changed.notify_waiters();
    }

    /// Hands a request to the overlay, or has it wait for one.
    fn pass<T: Send + 'static>(
        &self,
        request: impl Fn(&dyn BlockDevice) -> Done<T> + Send + 'static,
    ) -> Done<T> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => return request(&**device),
            Mode::Fenced(why) => return Done::Now(Err(fenced(why))),
            Mode::Standby(_) => {}
        }
        let device = self.clone();
        Done::Later(Box::pin(async move { device.handed_over(request).await?.outcome().await }))
    }

    /// Flushes what an overlay has that is being given back.
    async fn flush_leaving(self, leaving: Arc<dyn BlockDevice>) -> Result<(), DeviceError> {
        let changed = self.shared.changed.notified();
        let mut changed = std::pin::pin!(changed);
        changed.as_mut().enable();
        if leaving.flush().outcome().await.is_ok() {
            return Ok(());
        }
        // It was closed meanwhile, or its disk has failed: how the release ends says what holds.
        let is_over = || !matches!(&*self.shared.mode.read(), Mode::Standby(Some(_)));
        if !is_over() {
            changed.await;
        }
        self.flush().outcome().await
    }

    /// Waits for what a look at the owner's content finds, or for the overlay.
    async fn read_head(
        &self,
        first: Look,
        offset: u64,
        len: usize,
    ) -> Result<Vec<Piece>, DeviceError> {
        loop {
            let changed = self.shared.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let (found, is_covered) = {
                let head = self.shared.head.lock();
                (head.found(first, offset, len), head.covers(offset, len))
            };
            if let Some(content) = found {
                return Ok(vec![Piece::Base(Segment::Bytes(content))]);
            }
            if !is_covered || !matches!(&*self.shared.mode.read(), Mode::Standby(_)) {
                let passed = self.handed_over(move |device| Done::Later(device.read(offset, len)));
                return passed.await?.outcome().await;
            }
            changed.await;
        }
    }

    /// Waits for the overlay and hands `request` to it.
    async fn handed_over<T>(
        &self,
        request: impl Fn(&dyn BlockDevice) -> Done<T>,
    ) -> Result<Done<T>, DeviceError> {
        loop {
            let changed = self.shared.changed.notified();
            match &*self.shared.mode.read() {
                Mode::Active(device) => return Ok(request(&**device)),
                Mode::Fenced(why) => return Err(fenced(why)),
                Mode::Standby(_) => self.shared.is_wanted.store(true, Ordering::Release),
            }
            changed.await;
        }
    }
}

fn fenced(why: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Fenced, why)
}

impl BlockDevice for FailoverDevice {
    fn size_bytes(&self) -> u64 {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.size_bytes(),
            _ => self.shared.size_bytes.load(Ordering::Acquire),
        }
    }

    fn is_read_only(&self) -> bool {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.is_read_only(),
            _ => false,
        }
    }

    /// A guest does not boot from a standby: it runs, and comes over.
    fn opened(&self, client: u64) -> Option<Box<dyn DeviceUse>> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.opened(client),
            Mode::Standby(_) | Mode::Fenced(_) => None,
        }
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.try_read(offset, len),
            Mode::Standby(_) => Ok(TryRead::WouldWait),
            Mode::Fenced(why) => Err(fenced(why)),
        }
    }

    fn read(&self, offset: u64, len: usize) -> DeviceFuture<Vec<Piece>> {
        // In this order: the first overlay ends such reads before it is put in place.
        let first = {
            let mut head = self.shared.head.lock();
            head.covers(offset, len).then(|| head.wait())
        };
        if let Some(first) = first {
            let device = self.clone();
            return Box::pin(async move { device.read_head(first, offset, len).await });
        }
        match self.pass(move |device| Done::Later(device.read(offset, len))) {
            Done::Later(future) | Done::Applied(future) => future,
            Done::Now(outcome) => Box::pin(std::future::ready(outcome)),
        }
    }

    fn write(&self, offset: u64, data: Bytes, fua: bool) -> Done<()> {
        self.pass(move |device| device.write(offset, data.clone(), fua))
    }

    fn write_zeroes(&self, offset: u64, len: u64, how: ZeroHow) -> Done<()> {
        self.pass(move |device| device.write_zeroes(offset, len, how))
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Done<()> {
        self.pass(move |device| device.trim(offset, len, fua))
    }

    fn flush(&self) -> Done<()> {
        let leaving = match &*self.shared.mode.read() {
            // Nothing was written to what is not there, and what was there was given back whole.
            Mode::Standby(None) => return Done::Now(Ok(())),
            Mode::Standby(Some(device)) => Arc::clone(device),
            Mode::Active(_) | Mode::Fenced(_) => return self.pass(|device| device.flush()),
        };
        let device = self.clone();
        Done::Later(Box::pin(async move { device.flush_leaving(leaving).await }))
    }

    fn extents(&self, offset: u64, len: u64, what: ExtentQuery, max: usize) -> Vec<DeviceExtent> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.extents(offset, len, what, max),
            // All of it may be data.
            _ => vec![DeviceExtent { len, is_hole: false, is_zero: false, is_dirty: true }],
        }
    }

    fn prepare_extents(&self, offset: u64, len: u64, max: usize) -> Option<DeviceFuture<()>> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.prepare_extents(offset, len, max),
            _ => None,
        }
    }

    fn prefetch(&self, offset: u64, len: u64) -> Done<()> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.prefetch(offset, len),
            _ => Done::Now(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Flushes = parking_lot::Mutex<Vec<tokio::sync::oneshot::Sender<Result<(), DeviceError>>>>;

    /// A disk that answers at once and remembers what was flushed and written.
    #[derive(Default)]
    struct Answering {
        writes: AtomicU64,
        /// Flushes that the test answers.
        flushes: Option<Flushes>,
    }

    impl Answering {
        /// Waits for a flush, which the test answers.
        async fn flush_asked(&self) -> tokio::sync::oneshot::Sender<Result<(), DeviceError>> {
            loop {
                let asked = self.flushes.as_ref().and_then(|flushes| flushes.lock().pop());
                match asked {
                    Some(sender) => return sender,
                    None => tokio::task::yield_now().await,
                }
            }
        }
    }

    impl BlockDevice for Answering {
        fn size_bytes(&self) -> u64 {
            8192
        }
        fn is_read_only(&self) -> bool {
            false
        }
        fn try_read(&self, _: u64, _: usize) -> Result<TryRead, DeviceError> {
            Ok(TryRead::Ready(Vec::new()))
        }
        fn read(&self, _: u64, _: usize) -> DeviceFuture<Vec<Piece>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
        fn write(&self, _: u64, _: Bytes, _: bool) -> Done<()> {
            self.writes.fetch_add(1, Ordering::SeqCst);
            Done::Now(Ok(()))
        }
        fn write_zeroes(&self, _: u64, _: u64, _: ZeroHow) -> Done<()> {
            Done::Now(Ok(()))
        }
        fn trim(&self, _: u64, _: u64, _: bool) -> Done<()> {
            Done::Now(Ok(()))
        }
        fn flush(&self) -> Done<()> {
            match &self.flushes {
                None => Done::Now(Ok(())),
                Some(flushes) => {
                    let (sender, receiver) = tokio::sync::oneshot::channel();
                    flushes.lock().push(sender);
                    Done::Later(Box::pin(async move { receiver.await.unwrap() }))
                }
            }
        }
        fn extents(&self, _: u64, _: u64, _: ExtentQuery, _: usize) -> Vec<DeviceExtent> {
            Vec::new()
        }
        fn prefetch(&self, _: u64, _: u64) -> Done<()> {
            Done::Now(Ok(()))
        }
    }

    fn write(device: &FailoverDevice) -> impl Future<Output = Result<(), DeviceError>> + use<> {
        device.write(0, Bytes::from_static(&[1; 512]), false).outcome()
    }

    #[tokio::test]
    async fn test_requests_wait_for_the_overlay_and_say_so() {
        let device = FailoverDevice::standby(4096);
        assert_eq!(device.size_bytes(), 4096);
        assert!(!device.is_wanted());
        let waiting = tokio::spawn(write(&device));
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        let overlay = Arc::new(Answering::default());
        device.activate(overlay.clone());
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(overlay.writes.load(Ordering::SeqCst), 1);
        assert!(!device.is_wanted());
        assert_eq!(device.size_bytes(), 8192);
        device.stand_by();
        assert_eq!(device.size_bytes(), 8192, "as the overlay had it");
        let waiting = tokio::spawn(write(&device));
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        assert_eq!(overlay.writes.load(Ordering::SeqCst), 1, "it was taken away");
        device.activate(overlay.clone());
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    fn read(device: &FailoverDevice) -> tokio::task::JoinHandle<Result<Vec<Piece>, DeviceError>> {
        tokio::spawn(device.read(0, 512))
    }

    async fn head_wanted(device: &FailoverDevice) -> Look {
        loop {
            match device.begin_head() {
                Some(look) => return look,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// QEMU's first read at the destination of a migration takes the volume from nobody.
    #[tokio::test]
    async fn test_first_sectors_are_read_without_asking_for_the_overlay() {
        let device = FailoverDevice::standby(8192);
        let reading = read(&device);
        let look = head_wanted(&device).await;
        let later = read(&device);
        device.answer_head(look, Bytes::from_static(&[7; 4096]));
        let pieces = reading.await.unwrap().unwrap();
        let [Piece::Base(Segment::Bytes(content))] = &pieces[..] else { panic!("{pieces:?}") };
        assert_eq!(content, &[7; 512][..]);
        assert!(!device.is_wanted());
        // What the owner had then is no answer to a read that came later.
        assert!(!later.is_finished() && device.is_head_wanted());
        device.give_up_head();
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        device.activate(Arc::new(Answering::default()));
        assert!(later.await.unwrap().unwrap().is_empty(), "by the overlay");
        device.stand_by();
        let _again = read(&device);
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        assert!(!device.is_head_wanted(), "who had the overlay asks for it");
    }

    /// Whatever is read or written beyond the first sectors asks for the overlay, and that answers all.
    #[tokio::test]
    async fn test_overlay_answers_reads_of_the_first_sectors_that_wait() {
        let device = FailoverDevice::standby(8192);
        let reading = read(&device);
        head_wanted(&device).await;
        let waiting = tokio::spawn(write(&device));
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        device.activate(Arc::new(Answering::default()));
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert!(reading.await.unwrap().is_ok());
        device.fence("closed");
        assert_eq!(read(&device).await.unwrap().unwrap_err().kind, DeviceErrorKind::Fenced);
    }

    #[tokio::test]
    async fn test_fenced_disk_answers_nothing() {
        let device = FailoverDevice::standby(4096);
        let waiting = tokio::spawn(write(&device));
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        device.fence("another host owns it");
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Fenced);
        assert_eq!(device.try_read(0, 512).unwrap_err().kind, DeviceErrorKind::Fenced);
        assert_eq!(device.read(0, 512).await.unwrap_err().kind, DeviceErrorKind::Fenced);
        assert_eq!(device.flush().outcome().await.unwrap_err().kind, DeviceErrorKind::Fenced);
    }

    /// A hand-over of hours: an owner with much to push, or an origin that is away.
    #[tokio::test(start_paused = true)]
    async fn test_wait_for_an_overlay_ends_by_no_clock() {
        let device = FailoverDevice::standby(4096);
        let waiting = tokio::spawn(write(&device));
        tokio::time::sleep(std::time::Duration::from_secs(86_400)).await;
        assert!(!waiting.is_finished());
        assert_eq!(device.flush().outcome().await, Ok(()));
        device.activate(Arc::new(Answering::default()));
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    /// Content that a guest has written is durable when a flush is answered, wherever a hand-over
    /// is.
    #[tokio::test]
    async fn test_flush_while_the_overlay_is_given_back_is_one() {
        let device = FailoverDevice::standby(4096);
        let overlay =
            Arc::new(Answering { flushes: Some(Flushes::default()), ..Answering::default() });
        device.activate(overlay.clone());
        device.stand_by();
        let flush = |device: &FailoverDevice| tokio::spawn(device.flush().outcome());
        let broken = || DeviceError::new(DeviceErrorKind::Io, "closed");
        let flushing = flush(&device);
        let asked = overlay.flush_asked().await;
        assert!(!flushing.is_finished(), "the disk has not synced yet");
        asked.send(Ok(())).unwrap();
        assert_eq!(flushing.await.unwrap(), Ok(()));
        // The release ends before the flush is answered: everything was given back.
        let flushing = flush(&device);
        let asked = overlay.flush_asked().await;
        device.given_back();
        asked.send(Err(broken())).unwrap();
        assert_eq!(flushing.await.unwrap(), Ok(()));
        assert_eq!(device.flush().outcome().await, Ok(()), "nothing is there");
        // The release fails: the overlay that goes on answers.
        device.activate(overlay.clone());
        device.stand_by();
        let flushing = flush(&device);
        overlay.flush_asked().await.send(Err(broken())).unwrap();
        tokio::task::yield_now().await;
        assert!(!flushing.is_finished());
        device.activate(overlay.clone());
        overlay.flush_asked().await.send(Err(broken())).unwrap();
        assert_eq!(flushing.await.unwrap(), Err(broken()));
    }
}
