//! See `acstor_fuzzing::ring`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::ring::run(bytes));
