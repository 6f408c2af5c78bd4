//! Built-in tools, permission rules and process guardianship.
