//! Ids, events, messages and the pure machines of Tenure.
