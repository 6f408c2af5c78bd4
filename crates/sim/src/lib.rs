//! Simulation, fault tests and benchmarks of Tenure.

pub mod randomlog;
