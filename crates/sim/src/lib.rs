//! Simulation, fault tests and benchmarks of Tenure.
