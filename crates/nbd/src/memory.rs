//! The bytes in flight of all connections, against two limits.
//!
//! NBD has no way to say "later", so nothing is refused for want of memory: the connection is not
//! read from until there is room. Each export has a share of its own, which the longest request fits
//! in, and beyond it borrows from what all exports have together. So whatever waits on other exports
//! (for an origin that is away, for room on the disk), an export has its share to go on with. A
//! connection borrows in steps and gives back when nothing of it is in flight, so that most requests
//! of a busy one touch nothing shared.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit of the semaphore, which counts in 32 bits.
const UNIT_BYTES: u64 = 4096;
/// Least bytes that a connection borrows where there is enough.
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

    /// Returns the bytes that connections have borrowed now.
    pub fn bytes_borrowed(&self) -> u64 {
        self.bytes_max - self.units.available_permits() as u64 * UNIT_BYTES
    }
}

/// Budget from which a connection borrows.
#[derive(Clone, Copy, Debug)]
enum Lender {
    /// The share of its export.
    Export = 0,
    /// The budget that all exports have together.
    All = 1,
}

const LENDERS: [Lender; 2] = [Lender::Export, Lender::All];

/// Bytes that a connection borrowed of each lender. Requests that outlive their connection hold on
/// to it.
#[derive(Debug, Default)]
pub(crate) struct Loan(Mutex<[Option<OwnedSemaphorePermit>; 2]>);

impl Loan {
    fn bytes(&self) -> u64 {
        let permits = self.0.lock();
        permits.iter().flatten().map(|permit| permit.num_permits() as u64 * UNIT_BYTES).sum()
    }

    /// Gives back what is not needed for `bytes`; what others wait for first.
    fn shrink_to(&self, bytes: u64) {
        let mut excess = self.bytes().saturating_sub(bytes.next_multiple_of(UNIT_BYTES));
        let mut permits = self.0.lock();
        for lender in [Lender::All, Lender::Export] {
            if let Some(permit) = &mut permits[lender as usize] {
                let units = permit.num_permits().min((excess / UNIT_BYTES) as usize);
                excess -= units as u64 * UNIT_BYTES;
                drop(permit.split(units));
            }
        }
    }
}

type Borrowing = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// One connection's share of the budgets.
pub(crate) struct Lease {
    /// By lender.
    budgets: [Arc<MemoryBudget>; 2],
    loan: Option<Arc<Loan>>,
    /// Bytes borrowed; what `loan` holds.
    borrowed: u64,
    /// Bytes of the requests in flight.
    used: u64,
    /// Waits at both lenders; whoever has enough first lends.
    borrowing: Option<[Borrowing; 2]>,
}

impl Lease {
    /// A lease of a connection to an export with a share of its own.
    pub(crate) fn new(export: Arc<MemoryBudget>, all: Arc<MemoryBudget>) -> Lease {
        Lease { budgets: [export, all], loan: None, borrowed: 0, used: 0, borrowing: None }
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
                if self.borrow_now(units_of(bytes.max(STEP_BYTES))) {
                    continue;
                }
                // Whoever waits holds no more than it uses, else two could wait for each other.
                self.shrink_to(self.used);
            }
            let budgets = &self.budgets;
            let borrowing = self.borrowing.get_or_insert_with(|| {
                let wait_at = |budget: &Arc<MemoryBudget>| -> Borrowing {
                    Box::pin(Arc::clone(&budget.units).acquire_many_owned(units_of(bytes)))
                };
                [wait_at(&budgets[0]), wait_at(&budgets[1])]
            });
            let lent = LENDERS.into_iter().find_map(|lender| {
                match borrowing[lender as usize].as_mut().poll(cx) {
                    Poll::Ready(Ok(permit)) => Some((lender, permit)),
                    // The semaphores are never closed.
                    Poll::Ready(Err(_)) | Poll::Pending => None,
                }
            });
            let Some((lender, permit)) = lent else { return Poll::Pending };
            self.borrowing = None;
            self.add(lender, permit);
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

    /// Borrows of whoever has enough at hand.
    fn borrow_now(&mut self, units: u32) -> bool {
        for lender in LENDERS {
            let budget = &self.budgets[lender as usize];
            if let Ok(permit) = Arc::clone(&budget.units).try_acquire_many_owned(units) {
                self.add(lender, permit);
                return true;
            }
        }
        false
    }

    fn add(&mut self, lender: Lender, permit: OwnedSemaphorePermit) {
        let loan = self.loan.get_or_insert_default();
        let mut permits = loan.0.lock();
        match &mut permits[lender as usize] {
            Some(present) => present.merge(permit),
            absent => *absent = Some(permit),
        }
        drop(permits);
        self.borrowed = loan.bytes();
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
    use std::sync::Arc;
    use std::task::Poll;
    use std::time::Duration;

    use super::{Lease, MemoryBudget, STEP_BYTES};

    /// A lease of an export without a share of its own.
    fn lease(budget: &Arc<MemoryBudget>) -> Lease {
        Lease::new(MemoryBudget::new(0), budget.clone())
    }

    async fn take(lease: &mut Lease, bytes: u64) {
        poll_fn(|cx| lease.poll_take(cx, bytes)).await;
    }

    async fn takes_at_once(lease: &mut Lease, bytes: u64) -> bool {
        poll_fn(|cx| Poll::Ready(lease.poll_take(cx, bytes).is_ready())).await
    }

    #[tokio::test]
    async fn test_take_beyond_the_budget_waits_for_what_others_give_back() {
        let budget = MemoryBudget::new(4 << 20);
        let mut first = lease(&budget);
        let mut second = lease(&budget);
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
        let mut share = lease(&budget);
        for _ in 0..STEP_BYTES / 4096 {
            take(&mut share, 4096).await;
        }
        assert_eq!(budget.bytes_borrowed(), STEP_BYTES);
    }

    #[tokio::test]
    async fn test_give_back_of_the_last_byte_frees_the_loan() {
        let budget = MemoryBudget::new(4 << 20);
        let mut share = lease(&budget);
        take(&mut share, 4096).await;
        take(&mut share, 4096).await;
        share.give_back(4096);
        assert_eq!(budget.bytes_borrowed(), STEP_BYTES);
        share.give_back(4096);
        assert_eq!(budget.bytes_borrowed(), 0);
    }

    /// Three that each hold some and want more than is left: they must not wait for each other.
    #[tokio::test]
    async fn test_take_of_many_never_locks_up() {
        let budget = MemoryBudget::new(3 << 20);
        let shares = (0..3).map(|_| {
            let budget = budget.clone();
            tokio::spawn(async move {
                let mut share = lease(&budget);
                for _ in 0..100 {
                    take(&mut share, 4096).await;
                    tokio::task::yield_now().await;
                    share.give_back(4096);
                    take(&mut share, 3 << 20).await;
                    tokio::task::yield_now().await;
                    share.give_back(3 << 20);
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
        let mut share = lease(&budget);
        take(&mut share, 2 << 20).await;
        let loan = share.loan();
        drop(share);
        assert_eq!(budget.bytes_borrowed(), 2 << 20);
        drop(loan);
        assert_eq!(budget.bytes_borrowed(), 0);
    }

    /// Whatever others hold, and however long: an export has its share.
    #[tokio::test]
    async fn test_take_needs_nothing_that_other_exports_hold() {
        let all = MemoryBudget::new(4 << 20);
        let (hung, healthy) = (MemoryBudget::new(1 << 20), MemoryBudget::new(1 << 20));
        let mut waiting = Lease::new(hung.clone(), all.clone());
        take(&mut waiting, 1 << 20).await;
        take(&mut waiting, 4 << 20).await;
        assert!(!takes_at_once(&mut waiting, 4096).await);
        assert_eq!(all.bytes_borrowed(), all.bytes_max());
        let mut going_on = Lease::new(healthy.clone(), all.clone());
        for _ in 0..100 {
            take(&mut going_on, 1 << 20).await;
            assert!(!takes_at_once(&mut going_on, 4096).await, "no more than its share");
            going_on.give_back(1 << 20);
            tokio::task::yield_now().await;
        }
        waiting.give_back(4 << 20);
        assert!(takes_at_once(&mut going_on, 2 << 20).await, "what all have serves all again");
        drop(waiting);
        drop(going_on);
        assert_eq!(
            (all.bytes_borrowed(), hung.bytes_borrowed(), healthy.bytes_borrowed()),
            (0, 0, 0)
        );
    }
}
