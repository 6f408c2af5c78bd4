//! Inputs that fuzzing found, replayed. A file's folder names the protocol, its name says what was wrong.

use crate::invariants::any_body;
use std::path::PathBuf;
use tenure_provider::Protocol;

#[test]
fn inputs_found_by_fuzzing_keep_every_rule() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/found");
    let mut replayed = 0;
    for protocol in Protocol::ALL {
        let Ok(entries) = std::fs::read_dir(folder.join(protocol.as_str())) else {
            continue;
        };
        for entry in entries {
            any_body(protocol, &std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
    }
    println!("{replayed} found inputs replayed");
}
