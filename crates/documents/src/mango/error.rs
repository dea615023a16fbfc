//! What can be wrong with a query, with CouchDB's texts. Where those show Erlang terms, these show JSON.

/// Why a query or the definition of an index is refused. The `Display` is the reason that the client is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// An argument that the operator cannot have.
    #[error("Bad argument for operator {0}: {1}")]
    BadArgument(&'static str, String),
    /// A member that begins with a dollar sign and is no operator.
    #[error("Invalid operator: {0}")]
    InvalidOperator(String),
    /// An operator of others.
    #[error("Unsupported operator: {0}")]
    NotSupported(String),
    /// A condition that is on no field.
    #[error("One or more conditions is missing a field name.")]
    MissingFieldName,
    /// A name of a field with an empty part.
    #[error("Invalid field name: {0}")]
    InvalidFieldName(String),
    /// A selector that is no object.
    #[error("Selector must be a JSON object, not: {0}")]
    InvalidSelector(String),
    /// `fields` that is no array.
    #[error("Fields must be an array of strings, not: {0}")]
    InvalidFields(String),
    /// An element of `fields` that is no string.
    #[error("Invalid JSON for field spec: {0}")]
    InvalidField(String),
    /// `sort` that is no array.
    #[error("Sort must be an array of sort specs, not: {0}")]
    InvalidSort(String),
    /// A direction that is neither `asc` nor `desc`.
    #[error("Invalid sort direction: {0}")]
    InvalidSortDirection(String),
    /// An element of `sort` that names no field.
    #[error("Invalid sort field: {0}")]
    InvalidSortField(String),
    /// Some fields are to be ascending and others descending.
    #[error("Sorts currently only support a single direction for all fields.")]
    MixedSort,
    /// There is no index in the order that is asked for.
    #[error("No index exists for this sort, try indexing by the sort fields.")]
    NoUsableIndex,
    /// A bookmark that no reply had.
    #[error("Invalid bookmark value: {0}")]
    InvalidBookmark(String),
    /// A member that the request cannot have.
    #[error("Invalid key {0} for this request.")]
    InvalidKey(String),
    /// A member that the request must have.
    #[error("Missing required key: {0}")]
    MissingKey(&'static str),
    /// Something else where a string should be.
    #[error("Invalid string: {0}")]
    InvalidString(String),
    /// Something else where `true` or `false` should be.
    #[error("Invalid boolean value: {0}")]
    InvalidBoolean(String),
    /// Something else where a number from 1 on should be.
    #[error("{0} is not an integer greater than zero")]
    InvalidPositive(String),
    /// Something else where a number from 0 on should be.
    #[error("{0} is not an integer greater than or equal to zero")]
    InvalidNonNegative(String),
    /// `use_index` that names no index.
    #[error("Invalid index name: {0}")]
    InvalidIndexName(String),
    /// An index of a type that is not known.
    #[error("Invalid type for index: {0}")]
    InvalidIndexType(String),
    /// The definition of an index that is no object.
    #[error("JSON indexes must be an object, not: {0}")]
    InvalidIndex(String),
    /// An index without fields.
    #[error("Index is missing its definition.")]
    NoIndexDefinition,
    /// A text index: there is nobody to keep one.
    #[error("text")]
    NoTextIndexes,
    /// No such index in the design document.
    #[error("JSON index {0} not found in this design doc.")]
    IndexNotFound(String),
    /// The design document is not one of indexes.
    #[error("Existing design doc has an invalid language: {0}")]
    InvalidLanguage(String),
}

impl QueryError {
    /// The status of HTTP and the short name, `error` in the body of the reply.
    pub(crate) fn row(&self) -> (u16, &'static str) {
        match self {
            QueryError::BadArgument(..) => (400, "bad_arg"),
            QueryError::InvalidOperator(_) => (400, "invalid_operator"),
            QueryError::NotSupported(_) => (400, "not_supported"),
            QueryError::MissingFieldName => (400, "invalid_selector"),
            QueryError::InvalidFieldName(_) => (400, "invalid_field_name"),
            QueryError::InvalidSelector(_) => (400, "invalid_selector_json"),
            QueryError::InvalidFields(_) => (400, "invalid_fields"),
            QueryError::InvalidField(_) => (400, "invalid_field"),
            QueryError::InvalidSort(_) => (400, "invalid_sort_json"),
            QueryError::InvalidSortDirection(_) => (400, "invalid_sort_dir"),
            QueryError::InvalidSortField(_) => (400, "invalid_sort_field"),
            QueryError::MixedSort => (400, "unsupported_mixed_sort"),
            QueryError::NoUsableIndex => (400, "no_usable_index"),
            QueryError::InvalidBookmark(_) => (400, "invalid_bookmark"),
            QueryError::InvalidKey(_) => (400, "invalid_key"),
            QueryError::MissingKey(_) => (400, "missing_required_key"),
            QueryError::InvalidString(_) => (400, "invalid_string"),
            QueryError::InvalidBoolean(_) => (400, "invalid_boolean"),
            QueryError::InvalidPositive(_) => (400, "invalid_pos_integer"),
            QueryError::InvalidNonNegative(_) => (400, "invalid_non_neg_integer"),
            QueryError::InvalidIndexName(_) => (400, "invalid_index_name"),
            QueryError::InvalidIndexType(_) | QueryError::InvalidIndex(_) | QueryError::NoIndexDefinition => {
                (400, "invalid_index")
            }
            QueryError::NoTextIndexes => (503, "required index service unavailable"),
            QueryError::IndexNotFound(_) => (404, "invalid_index"),
            QueryError::InvalidLanguage(_) => (400, "invalid_ddoc_lang"),
        }
    }
}
