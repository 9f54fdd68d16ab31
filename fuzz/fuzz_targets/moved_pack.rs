//! See `acstor_fuzzing::moved_pack`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::moved_pack::run(bytes));
