//! The content blocks of a stream that are open, for protocols that number them; and the call that may have been cut.

use super::sink::Sink;
use std::collections::{BTreeMap, HashSet};

/// A block of some protocol.
pub(super) trait Block {
    /// Is it a local call that got no argument at all?
    fn is_bare_call(&self) -> bool;

    /// Is it a call that Tenure has to run?
    fn is_local_call(&self) -> bool;

    /// The output limit ate the arguments: the input ends, but no call is made of it.
    fn abandon(self, sink: &mut Sink);

    /// Says the end of the block. `hosted` holds the hosted calls of this stream that have no result yet.
    fn end(self, hosted: &mut HashSet<String>, sink: &mut Sink);
}

/// The blocks of one stream.
pub(super) struct Blocks<B> {
    open: BTreeMap<u64, B>,
    /// A finished local call without arguments, and its index: held back until it is sure that the output limit did
    /// not eat them, which it does to the last block only.
    bare_call: Option<(u64, B)>,
    hosted: HashSet<String>,
    local_calls: bool,
}

impl<B> Default for Blocks<B> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            bare_call: None,
            hosted: HashSet::new(),
            local_calls: false,
        }
    }
}

impl<B: Block> Blocks<B> {
    /// Another block begins at `index`: what was open there is over, and a call before it was whole.
    pub fn make_room(&mut self, index: u64, sink: &mut Sink) {
        self.release_bare_call(sink);
        self.stop(index, sink);
    }

    /// Opens a block where [`Blocks::make_room`] made room.
    pub fn open(&mut self, index: u64, block: B) {
        self.open.insert(index, block);
    }

    /// The block that is open at `index`.
    pub fn at(&mut self, index: u64) -> Option<&mut B> {
        self.open.get_mut(&index)
    }

    /// The block at `index` is over.
    pub fn stop(&mut self, index: u64, sink: &mut Sink) {
        if let Some(block) = self.open.remove(&index) {
            self.end(index, block, sink);
        }
    }

    /// The blocks of which `over` says so are over.
    pub fn stop_where(&mut self, over: impl Fn(&B) -> bool, sink: &mut Sink) {
        let mut open = std::mem::take(&mut self.open);
        for (index, block) in open.extract_if(.., |_, block| over(block)) {
            self.end(index, block, sink);
        }
        self.open = open;
    }

    /// All blocks are over.
    pub fn stop_all(&mut self, sink: &mut Sink) {
        self.stop_where(|_| true, sink);
    }

    /// The stream is over: so are all blocks, and where it was `cut` by the output limit, a last call that got no
    /// arguments is none.
    pub fn close(&mut self, cut: bool, sink: &mut Sink) {
        self.stop_all(sink);
        if cut {
            if let Some((_, block)) = self.bare_call.take() {
                block.abandon(sink);
            }
        } else {
            self.release_bare_call(sink);
        }
    }

    /// Did the stream make a call that Tenure has to run?
    pub fn any_local_call(&self) -> bool {
        self.local_calls
    }

    fn end(&mut self, index: u64, block: B, sink: &mut Sink) {
        if self
            .bare_call
            .as_ref()
            .is_some_and(|(held, _)| *held < index)
        {
            self.release_bare_call(sink);
        }
        if block.is_bare_call() && self.bare_call.is_none() {
            self.bare_call = Some((index, block));
        } else {
            self.say_end(block, sink);
        }
    }

    fn release_bare_call(&mut self, sink: &mut Sink) {
        if let Some((_, block)) = self.bare_call.take() {
            self.say_end(block, sink);
        }
    }

    fn say_end(&mut self, block: B, sink: &mut Sink) {
        self.local_calls |= block.is_local_call();
        block.end(&mut self.hosted, sink);
    }
}
