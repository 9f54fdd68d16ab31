//! See `acstor_fuzzing::store_records`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::store_records::run(bytes));
