//! Which machine this is, as a label that outlives a boot.

use sha2::{Digest, Sha256};

/// The label's key.
pub const HOST: &str = "host";

/// A name for this machine: from its machine id, else its host name. The id itself is nobody's business, so it
/// is a digest. Machines cloned from one image share it: `[node] host_label` tells them apart.
pub fn name() -> String {
    let read = |path: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty() && text != "uninitialized").then(|| text.to_owned())
    };
    if let Some(id) = read("/etc/machine-id") {
        let digest = Sha256::digest(format!("tenure host {id}"));
        return digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
    }
    let host = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"));
    host.unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_same_each_time_and_can_stand_in_a_label() {
        let name = name();
        assert_eq!(name, super::name());
        assert!(
            !name.is_empty() && !name.contains(['=', ',', ' ', '\n']),
            "{name}"
        );
    }
}
