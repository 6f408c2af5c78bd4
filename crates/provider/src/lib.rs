//! Wire protocols of model vendors, decoded into one stream of provider events.
