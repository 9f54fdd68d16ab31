//! See `acstor_fuzzing::fuse_requests`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::fuse_requests::run(bytes));
