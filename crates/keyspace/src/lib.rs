//! keyspace
