//! Programs of machines: what each does with its disk.

/// All programs of a run. An operation waits, then reads some chunks at once, and ends when it has
/// them all.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// By program, and one more: where its operations begin.
    pub first_operation: Vec<u32>,
    /// By operation: seconds before its reads.
    pub think: Vec<f64>,
    /// By operation: bytes that count for the throughput.
    pub served: Vec<f64>,
    /// By operation, and one more: where its reads begin.
    pub first_access: Vec<u32>,
    /// By access: number of the chunk's content, from 0.
    pub content: Vec<u32>,
    /// By access: bytes of the chunk that are read.
    pub length: Vec<u32>,
    /// By content: number of its place on the ring.
    pub placement: Vec<u32>,
    /// By place: the OID that is looked up.
    pub oids: Vec<u64>,
    /// By program, and one more: where its image's profile begins. Empty without profiles.
    pub first_entry: Vec<u32>,
    /// Contents that boots of the image were seen to read, in order of first touch.
    pub profile: Vec<u32>,
    /// True if a program begins again when it has ended.
    pub is_loop: bool,
}

impl Programs {
    pub(crate) fn accesses(&self, operation: u32) -> std::ops::Range<usize> {
        let at = operation as usize;
        self.first_access[at] as usize..self.first_access[at + 1] as usize
    }
}

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// Its program runs.
    Running,
    /// Its program is over.
    Ended,
    /// It has met an I/O error or lost its host.
    Broken,
}

/// A virtual machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) host: u32,
    pub(crate) program: u32,
    pub(crate) operation: u32,
    /// Chunks that its operation waits for.
    pub(crate) pending: u32,
    pub(crate) state: MachineState,
    pub(crate) started: f64,
    pub(crate) ended: f64,
    pub(crate) waited: f64,
    /// Begin of its operation.
    pub(crate) since: f64,
    pub(crate) served: f64,
}
