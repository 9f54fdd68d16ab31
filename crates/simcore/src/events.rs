//! The queue of events: a binary heap by time.

/// Events that wait for their times.
#[derive(Debug)]
pub(crate) struct Queue<T>(Vec<(f64, T)>);

impl<T: Copy> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue(Vec::new())
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, time: f64, event: T) {
        let mut at = self.0.len();
        self.0.push((time, event));
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.0[parent].0 <= time {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = (time, event);
    }

    /// Returns the time of the first event, infinity without one.
    pub(crate) fn next_time(&self) -> f64 {
        self.0.first().map_or(f64::INFINITY, |(time, _)| *time)
    }

    /// Removes and returns the first event that is due by `until`.
    pub(crate) fn pop_until(&mut self, until: f64) -> Option<(f64, T)> {
        let first = *self.0.first().filter(|(time, _)| *time <= until)?;
        let last = self.0.pop()?;
        let size = self.0.len();
        if size == 0 {
            return Some(first);
        }
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= size {
                break;
            }
            if child + 1 < size && self.0[child + 1].0 < self.0[child].0 {
                child += 1;
            }
            if last.0 <= self.0[child].0 {
                break;
            }
            self.0[at] = self.0[child];
            at = child;
        }
        self.0[at] = last;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Queue;

    proptest! {
        #[test]
        fn events_come_in_the_order_of_their_times(
            steps in prop::collection::vec((prop::bool::weighted(0.7), 0_u32..50), 1..300),
        ) {
            let mut queue = Queue::new();
            let mut model: Vec<u32> = Vec::new();
            for (is_push, time) in steps {
                if is_push {
                    queue.push(f64::from(time), time);
                    model.push(time);
                } else {
                    let first = model.iter().copied().min();
                    model.sort_unstable();
                    if first.is_some() {
                        model.remove(0);
                    }
                    let popped = queue.pop_until(f64::INFINITY);
                    prop_assert_eq!(popped.map(|(_, event)| event), first);
                }
            }
        }
    }

    #[test]
    fn events_that_are_not_due_stay() {
        let mut queue = Queue::new();
        queue.push(2.0, 'b');
        queue.push(1.0, 'a');
        assert_eq!(queue.pop_until(1.5), Some((1.0, 'a')));
        assert_eq!(queue.pop_until(1.5), None);
        assert_eq!(queue.next_time(), 2.0);
    }
}
