//! See `acstor_fuzzing::stored_chunk`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::stored_chunk::run(bytes));
