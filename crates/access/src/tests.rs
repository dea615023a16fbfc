//! Tests of the whole crate. Texts were checked against redis-server 7.0.15, Redis 8.2.3 and Valkey 9.1.2;
//! properties are checked against models.

mod files;
mod judgements;
mod properties;
mod texts;
