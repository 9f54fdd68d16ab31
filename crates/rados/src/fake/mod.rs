//! A cluster in memory behind librados' C interface, for tests: they run through every `unsafe` block.
//!
//! Each cluster has a path of ceph.conf of its own. A test may have reads fail, be short, or be held until
//! it has them answered, as a cluster that hangs does; and it sees what was asked, and what is left open.

mod functions;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

pub(crate) use functions::FUNCTIONS;

use crate::layout::{Class, Piece, Role, namespace_of};
use crate::{Head, HeadKind, Nonce, RadosSettings};

pub(crate) const POOL: &str = "heads";
pub(crate) const STRIPE_POOL: &str = "stripes";
pub(crate) const REPOSITORY: &str = "acstor";
/// Most seconds that a test waits for what happens at once.
const PATIENCE: Duration = Duration::from_secs(60);

static CLUSTERS: Mutex<BTreeMap<String, Weak<FakeCluster>>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Outcome of one read that is no answer of a healthy cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// An error, negative as librados has it.
    Code(i32),
    /// So many bytes less than there are.
    Short(usize),
}

/// Outcome of one write that is no answer of a healthy cluster; errors are negative.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteFault {
    /// Nothing is done.
    Refused(i32),
    /// It is done, and that is not told.
    Lost(i32),
}

/// A read that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

/// Things that were opened and not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) connections: usize,
    pub(crate) contexts: usize,
    pub(crate) reads: usize,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    objects: BTreeMap<(String, String, String), Vec<u8>>,
    pools: BTreeMap<String, i64>,
    last_pool: i64,
    /// Of the next reads, in their order; then all are well.
    pub(crate) faults: VecDeque<Option<Fault>>,
    /// Of the next writes, in their order; then all are well.
    pub(crate) write_faults: VecDeque<WriteFault>,
    /// Error of connecting, negative.
    pub(crate) connect_error: i32,
    /// Error of opening a pool, negative.
    pub(crate) open_error: i32,
    /// True while reads are held.
    is_held: bool,
    held: Vec<Held>,
    /// True while each read is answered by a thread of its own.
    pub(crate) has_threads: bool,
    pub(crate) asked: Vec<Asked>,
    pub(crate) connects: usize,
    pub(crate) cancelled: usize,
    pub(crate) open: Open,
    /// Options that the last connection was given.
    pub(crate) options: Vec<(String, String)>,
}

#[derive(Debug)]
struct Held {
    completion: Arc<Completion>,
    answer: Result<Vec<u8>, i32>,
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct FakeCluster {
    conf: String,
    state: Mutex<State>,
    changed: Condvar,
}

impl FakeCluster {
    /// A cluster with both pools and nothing in them.
    pub(crate) fn new() -> Arc<FakeCluster> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let conf = format!("fake-{}.conf", NUMBER.fetch_add(1, Ordering::Relaxed));
        let cluster = Arc::new(FakeCluster {
            conf: conf.clone(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        locked(&CLUSTERS).insert(conf, Arc::downgrade(&cluster));
        cluster.make_pool(POOL);
        cluster.make_pool(STRIPE_POOL);
        cluster
    }

    fn of(conf: &str) -> Option<Arc<FakeCluster>> {
        locked(&CLUSTERS).get(conf)?.upgrade()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Settings of a reader of this cluster.
    pub(crate) fn settings(&self) -> RadosSettings {
        RadosSettings {
            conf: self.conf.clone(),
            client: "acstor".to_owned(),
            pool: POOL.to_owned(),
            stripe_pool: STRIPE_POOL.to_owned(),
            namespace: REPOSITORY.to_owned(),
            timeout: PATIENCE,
            options: vec![("rados_osd_op_timeout".to_owned(), "60".to_owned())],
        }
    }

    pub(crate) fn make_pool(&self, name: &str) {
        let mut state = self.state();
        state.last_pool += 1;
        let id = state.last_pool;
        state.pools.insert(name.to_owned(), id);
    }

    /// Deletes a pool with all that is in it.
    pub(crate) fn delete_pool(&self, name: &str) {
        let mut state = self.state();
        state.pools.remove(name);
        state.objects.retain(|(pool, _, _), _| pool != name);
    }

    pub(crate) fn put(&self, role: Role, class: Class, key: &str, name: &str, content: Vec<u8>) {
        let pool = if role == Role::Heads { POOL } else { STRIPE_POOL };
        let namespace = namespace_of(REPOSITORY, role, class, key);
        self.state().objects.insert((pool.to_owned(), namespace, name.to_owned()), content);
    }

    /// The bytes of a RADOS object.
    pub(crate) fn stored(
        &self,
        role: Role,
        class: Class,
        key: &str,
        name: &str,
    ) -> Option<Vec<u8>> {
        let pool = if role == Role::Heads { POOL } else { STRIPE_POOL };
        let namespace = namespace_of(REPOSITORY, role, class, key);
        let place = (pool.to_owned(), namespace, name.to_owned());
        self.state().objects.get(&place).cloned()
    }

    /// Makes a RADOS object in the pool of an id where there is none; returns 0 or an error.
    fn create(&self, place: (String, String, String), pool: i64, content: Vec<u8>) -> i32 {
        let mut state = self.state();
        let fault = state.write_faults.pop_front();
        if let Some(WriteFault::Refused(code)) = fault {
            return code;
        }
        if state.pools.get(&place.0) != Some(&pool) {
            return -libc::ENOENT;
        }
        if state.objects.contains_key(&place) {
            return -libc::EEXIST;
        }
        state.objects.insert(place, content);
        if let Some(WriteFault::Lost(code)) = fault { code } else { 0 }
    }

    pub(crate) fn remove(&self, role: Role, class: Class, key: &str, name: &str) {
        let pool = if role == Role::Heads { POOL } else { STRIPE_POOL };
        let namespace = namespace_of(REPOSITORY, role, class, key);
        self.state().objects.remove(&(pool.to_owned(), namespace, name.to_owned()));
    }

    /// Removes all stripes of an object.
    pub(crate) fn delete_stripes(&self, key: &str) {
        let first = format!("{key}@");
        self.state().objects.retain(|(_, _, name), _| !name.starts_with(&first));
    }

    pub(crate) fn put_head(&self, class: Class, key: &str, head: &Head) {
        self.put(Role::Heads, class, key, key, head.encode().to_vec());
    }

    /// Stores an object without stripes.
    pub(crate) fn put_whole(&self, class: Class, key: &str, content: &[u8]) {
        let size = content.len() as u64;
        let head =
            Head { kind: HeadKind::Whole, size, stripe_size: 4 << 20, nonce: Nonce([1; 16]) };
        let stored = [&head.encode()[..], content].concat();
        self.put(Role::Heads, class, key, key, stored);
    }

    /// Stores an object in stripes; returns its head.
    pub(crate) fn put_striped(
        &self,
        class: Class,
        key: &str,
        content: &[u8],
        stripe_size: u32,
        nonce: u8,
    ) -> Head {
        let size = content.len() as u64;
        let head = Head { kind: HeadKind::Striped, size, stripe_size, nonce: Nonce([nonce; 16]) };
        for (number, stripe) in content.chunks(stripe_size as usize).enumerate() {
            let name = stripe_name(key, &head, number as u64);
            self.put(Role::Stripes, class, key, &name, stripe.to_vec());
        }
        self.put_head(class, key, &head);
        head
    }

    /// Holds all reads from here on, as a cluster that hangs does.
    pub(crate) fn hold(&self) {
        self.state().is_held = true;
    }

    /// Waits until so many reads are held.
    pub(crate) fn wait_held(&self, count: usize) {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |s| s.held.len() < count);
        assert!(!waited.unwrap_or_else(PoisonError::into_inner).1.timed_out(), "nobody reads");
    }

    /// Ends the reads that are held: each with its answer, or all with an error.
    pub(crate) fn end_held(&self, error: Option<i32>) {
        let held = {
            let mut state = self.state();
            state.is_held = false;
            std::mem::take(&mut state.held)
        };
        for one in held {
            one.completion.complete(&error.map_or(one.answer, Err));
        }
    }

    /// Answers a read, or keeps its answer.
    fn read(&self, pool: &str, asked: Asked, completion: Arc<Completion>) {
        let mut state = self.state();
        let place = (pool.to_owned(), asked.namespace.clone(), asked.name.clone());
        let stored = state.pools.get(pool).and_then(|_| state.objects.get(&place));
        let content = stored.map(|stored| {
            let start = usize::try_from(asked.offset).unwrap_or(usize::MAX).min(stored.len());
            stored[start..stored.len().min(start.saturating_add(asked.len))].to_vec()
        });
        let fault = state.faults.pop_front().flatten();
        let answer = match (fault, content) {
            (Some(Fault::Code(code)), _) => Err(code),
            (_, None) => Err(-libc::ENOENT),
            (Some(Fault::Short(less)), Some(mut content)) => {
                content.truncate(content.len().saturating_sub(less));
                Ok(content)
            }
            (None, Some(content)) => Ok(content),
        };
        state.asked.push(asked);
        if state.is_held {
            state.held.push(Held { completion, answer });
            self.changed.notify_all();
        } else if state.has_threads {
            std::thread::spawn(move || completion.complete(&answer));
        } else {
            drop(state);
            completion.complete(&answer);
        }
    }
}

/// Name of a stripe.
pub(crate) fn stripe_name(key: &str, head: &Head, number: u64) -> String {
    Piece { stripe: Some(number), offset: 0, len: 0 }.name(key, head)
}

/// The end of one read, and where its bytes go.
#[derive(Debug, Default)]
struct Completion {
    state: Mutex<Ended>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Ended {
    result: Option<i32>,
    /// Address and length of the reader's memory, while the read is under way.
    memory: Option<(usize, usize)>,
    cluster: Option<Arc<FakeCluster>>,
}

impl Completion {
    /// Ends the read, unless it has ended.
    fn complete(&self, answer: &Result<Vec<u8>, i32>) {
        let mut ended = locked(&self.state);
        let Some(memory) = ended.memory.take() else { return };
        let result = match answer {
            Ok(content) => {
                functions::write(memory, content);
                content.len() as i32
            }
            Err(code) => *code,
        };
        ended.result = Some(result);
        self.changed.notify_all();
    }

    fn wait(&self) -> i32 {
        let ended = locked(&self.state);
        let ended = self.changed.wait_while(ended, |ended| ended.result.is_none());
        ended.unwrap_or_else(PoisonError::into_inner).result.unwrap_or_default()
    }
}
