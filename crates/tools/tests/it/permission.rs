//! Tests of the permission rules.
