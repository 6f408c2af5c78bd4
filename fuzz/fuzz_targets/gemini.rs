//! Any bytes as a response body of this protocol.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::invariants::any_body;
use tenure_provider::Protocol;

fuzz_target!(|body: &[u8]| any_body(Protocol::Gemini, body));
