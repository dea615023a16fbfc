//! Whole-keyspace tests.
