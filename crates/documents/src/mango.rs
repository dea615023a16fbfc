//! Mango: queries by selectors, and the JSON indexes that serve them.
//!
//! ```text
//! POST _find -> FindRequest { Selector, Sort, Fields } --+
//! design documents -> IndexDefinition ------------------+--> Plan: which index, which range of its keys
//! feed of the database -> Indexes: brought up to date by steps, in files of their own
//! Plan, entries of the index -> Query: documents -> Selector decides -> Fields are shown, piece by piece
//! ```
//!
//! This module parses requests, chooses an index, and decides which documents match and in which order. It
//! has no HTTP, views, text indexes or partitions.
//!
//! Values are ordered null, false, true, numbers, strings, arrays, objects. Strings are ordered by code
//! points, whereas CouchDB uses ICU's root collation. CouchDB orders ids by code points, too.

mod definition;
mod explain;
mod field;
mod find;
mod index_file;
mod indexes;
mod key;
mod plan;
mod query;
mod range;
mod selector;
mod value;

pub use definition::{ALL_DOCS_INDEX, Filter, IndexDefinition, WithoutIndex};
pub use explain::explain;
pub use field::{FieldPath, Fields, Reached};
pub use find::{Bookmark, FIND_LIMIT_DEFAULT, FindRequest, IndexHint, Sort};
pub use index_file::IndexSnapshot;
pub use indexes::{IndexProgress, IndexUpdate, Indexes, Indexing, STEP_DOCUMENTS};
pub use key::{INDEX_KEY_BYTES_MAX, put_key};
pub use plan::{KeyRange, Plan};
pub use query::Query;
pub use selector::{Comparison, Condition, Selector};
pub use value::{Number, Value};

pub use crate::query_error::QueryError;
