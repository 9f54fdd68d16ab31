//! See `acstor_fuzzing::multicast`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::multicast::run(bytes));
