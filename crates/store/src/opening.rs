//! What opening a store may do to the place it is in.

/// How much of a place an opening may change. Who only looks, or acts on a session that is there, changes nothing: a
/// mistyped place stays empty, and a newer program does not lock out those that work in the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Opening {
    /// Makes a store where there is none, and brings an older one up to date.
    #[default]
    Make,
    /// The store must be there; an older one is brought up to date.
    Update,
    /// The store must be there, with the schema of this version. Nothing is changed.
    Look,
}

impl Opening {
    /// May a store be made?
    pub(crate) fn makes(self) -> bool {
        self == Self::Make
    }

    /// May an older schema be brought up to date?
    pub(crate) fn updates(self) -> bool {
        self != Self::Look
    }
}
