//! The class of a request that is on its way, and its promotion.

use std::sync::Arc;

use acstor_types::RequestClass;
use tokio::sync::watch;

/// The class of one request as those see it who carry the request: its class now, and each promotion.
/// Clones see the same promotions, each by itself.
#[derive(Clone, Debug)]
pub struct ClassWatch(Watched);

#[derive(Clone, Debug)]
enum Watched {
    Constant(RequestClass),
    Promoted(watch::Receiver<RequestClass>),
}

impl ClassWatch {
    /// A request that a guest waits for from the beginning; nothing is allocated.
    pub const DEMAND: ClassWatch = ClassWatch::constant(RequestClass::Demand);

    /// Returns the watch of a request whose class never changes; nothing is allocated.
    pub const fn constant(class: RequestClass) -> ClassWatch {
        ClassWatch(Watched::Constant(class))
    }

    /// The class now.
    pub fn current(&self) -> RequestClass {
        match &self.0 {
            Watched::Constant(class) => *class,
            Watched::Promoted(class) => *class.borrow(),
        }
    }

    /// Waits for a promotion that this handle has not told of, and returns the class then. Waits for ever
    /// where the class cannot change (any more).
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped: a promotion meanwhile is told by the next call.
    pub async fn changed(&mut self) -> RequestClass {
        if let Watched::Promoted(class) = &mut self.0
            && class.changed().await.is_ok()
        {
            return *class.borrow_and_update();
        }
        std::future::pending().await
    }
}

/// The end of a request's class that changes it: held by whoever knows who waits.
#[derive(Clone, Debug)]
pub struct Promoter(Arc<watch::Sender<RequestClass>>);

impl Promoter {
    /// Returns the promoter of a request that begins in `class`.
    pub fn new(class: RequestClass) -> Promoter {
        Promoter(Arc::new(watch::Sender::new(class)))
    }

    /// Returns a handle for whoever carries the request.
    pub fn watch(&self) -> ClassWatch {
        ClassWatch(Watched::Promoted(self.0.subscribe()))
    }

    /// The class now.
    pub fn current(&self) -> RequestClass {
        *self.0.borrow()
    }

    /// Makes the request as urgent as `class`; returns whether that changed anything. A less urgent class
    /// changes nothing.
    pub fn promote(&self, class: RequestClass) -> bool {
        self.0.send_if_modified(|current| {
            let is_more_urgent = class > *current;
            if is_more_urgent {
                *current = class;
            }
            is_more_urgent
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_waiting(watch: &mut ClassWatch) -> bool {
        pin!(watch.changed()).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn test_promote_is_told_once_and_never_back() {
        let promoter = Promoter::new(RequestClass::Preload);
        let (mut one, mut other) = (promoter.watch(), promoter.watch());
        assert!(is_waiting(&mut one));
        assert!(promoter.promote(RequestClass::Ahead));
        assert!(!promoter.promote(RequestClass::Preload), "a demotion");
        assert_eq!(one.changed().await, RequestClass::Ahead);
        assert!(is_waiting(&mut one), "told already");
        assert!(promoter.promote(RequestClass::Demand));
        assert_eq!(other.changed().await, RequestClass::Demand);
        assert_eq!((one.current(), promoter.current()), (RequestClass::Demand, one.current()));
        assert_eq!(one.changed().await, RequestClass::Demand);
    }

    #[test]
    fn test_changed_of_a_class_that_cannot_change_waits() {
        let mut constant = ClassWatch::constant(RequestClass::Ahead);
        assert!(is_waiting(&mut constant));
        let promoter = Promoter::new(RequestClass::Ahead);
        let mut orphan = promoter.watch();
        drop(promoter);
        assert!(is_waiting(&mut orphan));
        assert_eq!(orphan.current(), RequestClass::Ahead);
    }
}
