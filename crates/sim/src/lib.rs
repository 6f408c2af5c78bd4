//! Simulation, fault tests and benchmarks of Tenure.

pub mod bench;
pub mod chance;
pub mod checker;
pub mod cluster;
pub mod kill;
#[cfg(feature = "simulation")]
pub mod mutants;
pub mod place;
pub mod processes;
pub mod randomlog;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod task;
