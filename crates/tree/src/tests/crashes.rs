//! Crashes and failures at every I/O.
