//! The bytes in flight of all connections, against one limit.
//!
//! NBD has no way to say "later", so nothing is refused for want of memory: the connection is not
//! read from until there is room. A connection borrows in steps and gives back when nothing of it is
//! in flight, so that most requests of a busy one touch nothing shared.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit of the semaphore, which counts in 32 bits.
const UNIT_BYTES: u64 = 4096;
/// What a connection borrows at least where there is enough, bytes.
const STEP_BYTES: u64 = 512 << 10;

/// A limit for the bytes in flight, shared by any number of servers.
#[derive(Debug)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    bytes_max: u64,
}

impl MemoryBudget {
    /// A budget of `bytes_max` bytes, rounded down to 4 KiB.
    pub fn new(bytes_max: u64) -> Arc<MemoryBudget> {
        let most = (Semaphore::MAX_PERMITS as u64).min(u64::from(u32::MAX));
        let units = (bytes_max / UNIT_BYTES).min(most);
        let semaphore = Arc::new(Semaphore::new(units as usize));
        Arc::new(MemoryBudget { units: semaphore, bytes_max: units * UNIT_BYTES })
    }

    /// The limit, bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// What connections have borrowed now, bytes.
    pub fn bytes_borrowed(&self) -> u64 {
        self.bytes_max - self.units.available_permits() as u64 * UNIT_BYTES
    }
}

/// What a connection borrowed. Requests that outlive their connection hold on to it.
#[derive(Debug)]
pub(crate) struct Loan(Mutex<OwnedSemaphorePermit>);

impl Loan {
    fn bytes(&self) -> u64 {
        self.0.lock().num_permits() as u64 * UNIT_BYTES
    }

    fn shrink_to(&self, bytes: u64) {
        let mut permit = self.0.lock();
        let excess = permit.num_permits().saturating_sub(bytes.div_ceil(UNIT_BYTES) as usize);
        drop(permit.split(excess));
    }
}

type Borrowing = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// One connection's share of the budget.
pub(crate) struct Lease {
    budget: Arc<MemoryBudget>,
    loan: Option<Arc<Loan>>,
    /// Bytes borrowed; what `loan` holds.
    borrowed: u64,
    /// Bytes of the requests in flight.
    used: u64,
    borrowing: Option<Borrowing>,
}

impl Lease {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Lease {
        Lease { budget, loan: None, borrowed: 0, used: 0, borrowing: None }
    }

    /// Bytes of the requests in flight.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// The loan, for a request that may outlive the connection.
    pub(crate) fn loan(&self) -> Option<Arc<Loan>> {
        self.loan.clone()
    }

    /// Takes `bytes`, or waits until there is room for them.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<()> {
        while self.used + bytes > self.borrowed {
            if self.borrowing.is_none() {
                let step = units_of(bytes.max(STEP_BYTES));
                if let Ok(permit) = Arc::clone(&self.budget.units).try_acquire_many_owned(step) {
                    self.add(permit);
                    continue;
                }
                // Whoever waits holds no more than it uses, else two could wait for each other.
                self.shrink_to(self.used);
            }
            let borrowing = self.borrowing.get_or_insert_with(|| {
                Box::pin(Arc::clone(&self.budget.units).acquire_many_owned(units_of(bytes)))
            });
            let Poll::Ready(permit) = borrowing.as_mut().poll(cx) else { return Poll::Pending };
            self.borrowing = None;
            match permit {
                Ok(permit) => self.add(permit),
                Err(_) => return Poll::Pending, // the semaphore is never closed
            }
        }
        self.used += bytes;
        Poll::Ready(())
    }

    /// Frees the bytes of a request that is done.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
        if self.used == 0 || self.borrowing.is_some() {
            self.shrink_to(self.used);
        }
    }

    fn add(&mut self, permit: OwnedSemaphorePermit) {
        match &self.loan {
            Some(loan) => loan.0.lock().merge(permit),
            None => self.loan = Some(Arc::new(Loan(Mutex::new(permit)))),
        }
        self.borrowed = self.loan.as_ref().map_or(0, |loan| loan.bytes());
    }

    fn shrink_to(&mut self, bytes: u64) {
        if let Some(loan) = &self.loan {
            loan.shrink_to(bytes);
            self.borrowed = loan.bytes();
        }
    }
}

fn units_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use super::{Lease, MemoryBudget, STEP_BYTES};

    async fn take(lease: &mut Lease, bytes: u64) {
        poll_fn(|cx| lease.poll_take(cx, bytes)).await;
    }

    async fn takes_at_once(lease: &mut Lease, bytes: u64) -> bool {
        poll_fn(|cx| Poll::Ready(lease.poll_take(cx, bytes).is_ready())).await
    }

    #[tokio::test]
    async fn test_take_beyond_the_budget_waits_for_what_others_give_back() {
        let budget = MemoryBudget::new(4 << 20);
        let mut first = Lease::new(budget.clone());
        let mut second = Lease::new(budget.clone());
        take(&mut first, 3 << 20).await;
        assert!(!takes_at_once(&mut second, 2 << 20).await);
        first.give_back(3 << 20);
        take(&mut second, 2 << 20).await;
        assert_eq!((first.used(), second.used()), (0, 2 << 20));
        drop(first);
        drop(second);
        assert_eq!(budget.bytes_borrowed(), 0);
    }

    #[tokio::test]
    async fn test_take_many_small_borrows_once() {
        let budget = MemoryBudget::new(4 << 20);
        let mut lease = Lease::new(budget.clone());
        for _ in 0..STEP_BYTES / 4096 {
            take(&mut lease, 4096).await;
        }
        assert_eq!(budget.bytes_borrowed(), STEP_BYTES);
    }

    #[tokio::test]
    async fn test_give_back_of_the_last_byte_frees_the_loan() {
        let budget = MemoryBudget::new(4 << 20);
        let mut lease = Lease::new(budget.clone());
        take(&mut lease, 4096).await;
        take(&mut lease, 4096).await;
        lease.give_back(4096);
        assert_eq!(budget.bytes_borrowed(), STEP_BYTES);
        lease.give_back(4096);
        assert_eq!(budget.bytes_borrowed(), 0);
    }

    /// Three that each hold some and want more than is left: they must not wait for each other.
    #[tokio::test]
    async fn test_take_of_many_never_locks_up() {
        let budget = MemoryBudget::new(3 << 20);
        let shares = (0..3).map(|_| {
            let budget = budget.clone();
            tokio::spawn(async move {
                let mut lease = Lease::new(budget);
                for _ in 0..100 {
                    take(&mut lease, 4096).await;
                    tokio::task::yield_now().await;
                    lease.give_back(4096);
                    take(&mut lease, 3 << 20).await;
                    tokio::task::yield_now().await;
                    lease.give_back(3 << 20);
                }
            })
        });
        for share in shares.collect::<Vec<_>>() {
            tokio::time::timeout(Duration::from_secs(30), share).await.unwrap().unwrap();
        }
        assert_eq!(budget.bytes_borrowed(), 0);
    }

    #[tokio::test]
    async fn test_loan_outlives_the_lease() {
        let budget = MemoryBudget::new(4 << 20);
        let mut lease = Lease::new(budget.clone());
        take(&mut lease, 2 << 20).await;
        let loan = lease.loan();
        drop(lease);
        assert_eq!(budget.bytes_borrowed(), 2 << 20);
        drop(loan);
        assert_eq!(budget.bytes_borrowed(), 0);
    }
}
