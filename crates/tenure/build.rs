//! Links the program at a fixed address: it is its own guardian, executed once for every shell command, and most of
//! what such a start costs is the loader's relocation of its data. Stack, heap and libraries stay randomised.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |key: &str| std::env::var(key).unwrap_or_default();
    if target("CARGO_CFG_TARGET_OS") == "linux" && target("CARGO_CFG_TARGET_ENV") == "gnu" {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
