//! Tests of the whole: texts checked against redis-server 7.0.15, Redis 8.2.3 and Valkey 9.1.2, and
//! properties against models.

mod files;
mod judgements;
mod properties;
mod texts;
