//! Runner, execution ownership, recovery and live hub: Tenure as a library.
