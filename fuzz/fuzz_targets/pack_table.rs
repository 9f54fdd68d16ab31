//! See `acstor_fuzzing::pack_table`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::pack_table::run(bytes));
