//! See `acstor_fuzzing::rados_head`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::rados_head::run(bytes));
