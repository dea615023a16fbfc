//! `QueryError`: the errors of queries, with CouchDB's texts. Where CouchDB's texts contain Erlang terms,
//! these contain JSON.

/// An error of a query or of the definition of an index. Its `Display` is the `reason` of the reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// An invalid argument of an operator.
    #[error("Bad argument for operator {0}: {1}")]
    BadArgument(&'static str, String),
    /// A member that begins with a dollar sign but is no known operator.
    #[error("Invalid operator: {0}")]
    InvalidOperator(String),
    /// A known operator that is not supported, such as `$text` or `$where`.
    #[error("Unsupported operator: {0}")]
    NotSupported(String),
    /// A condition without a field.
    #[error("One or more conditions is missing a field name.")]
    MissingFieldName,
    /// A field name with an empty part.
    #[error("Invalid field name: {0}")]
    InvalidFieldName(String),
    /// A selector that is not an object.
    #[error("Selector must be a JSON object, not: {0}")]
    InvalidSelector(String),
    /// `fields` is not an array.
    #[error("Fields must be an array of strings, not: {0}")]
    InvalidFields(String),
    /// An element of `fields` is not a string.
    #[error("Invalid JSON for field spec: {0}")]
    InvalidField(String),
    /// `sort` is not an array.
    #[error("Sort must be an array of sort specs, not: {0}")]
    InvalidSort(String),
    /// A sort direction other than `asc` and `desc`.
    #[error("Invalid sort direction: {0}")]
    InvalidSortDirection(String),
    /// An element of `sort` does not name a field.
    #[error("Invalid sort field: {0}")]
    InvalidSortField(String),
    /// Ascending and descending fields in one sort.
    #[error("Sorts currently only support a single direction for all fields.")]
    MixedSort,
    /// No index is usable, and the requested order is not that of ids.
    #[error("No index exists for this sort, try indexing by the sort fields.")]
    NoUsableIndex,
    /// A malformed bookmark, or one of another index.
    #[error("Invalid bookmark value: {0}")]
    InvalidBookmark(String),
    /// A member that the request must not have.
    #[error("Invalid key {0} for this request.")]
    InvalidKey(String),
    /// A required member is missing.
    #[error("Missing required key: {0}")]
    MissingKey(&'static str),
    /// A value that must be a string.
    #[error("Invalid string: {0}")]
    InvalidString(String),
    /// A value that must be `true` or `false`.
    #[error("Invalid boolean value: {0}")]
    InvalidBoolean(String),
    /// A value that must be an integer greater than zero.
    #[error("{0} is not an integer greater than zero")]
    InvalidPositive(String),
    /// A value that must be an integer greater than or equal to zero.
    #[error("{0} is not an integer greater than or equal to zero")]
    InvalidNonNegative(String),
    /// `stale` is neither `"ok"` nor false.
    #[error("Invalid value for stale: {0}")]
    InvalidStale(String),
    /// The request names a partition or asks for a partitioned index; no database has partitions.
    #[error("`partition` parameter is not supported on this db")]
    NoPartitions,
    /// An empty name of an index or its design document.
    #[error("Index name or ddoc cannot be empty string")]
    InvalidEmptyString,
    /// The request allows only the index that it names, and that index is not suitable or none is named.
    #[error("{}", unsuitable(.0.as_deref()))]
    UnsuitableIndex(Option<String>),
    /// `use_index` has a wrong type or shape.
    #[error("Invalid index name: {0}")]
    InvalidIndexName(String),
    /// An unknown type of index.
    #[error("Invalid type for index: {0}")]
    InvalidIndexType(String),
    /// The definition of an index is not an object.
    #[error("JSON indexes must be an object, not: {0}")]
    InvalidIndex(String),
    /// An index without fields.
    #[error("Index is missing its definition.")]
    NoIndexDefinition,
    /// Text indexes are not supported.
    #[error("text")]
    NoTextIndexes,
    /// The design document has no such index.
    #[error("JSON index {0} not found in this design doc.")]
    IndexNotFound(String),
    /// The design document has another language than `query`.
    #[error("Existing design doc has an invalid language: {0}")]
    InvalidLanguage(String),
}

impl QueryError {
    /// The HTTP status, and the short name, which is `error` in the body of the reply.
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
            QueryError::InvalidStale(_) => (400, "invalid_ok_or_false_value"),
            QueryError::NoPartitions => (400, "query_parse_error"),
            QueryError::InvalidEmptyString => (400, "invalid_empty_string"),
            QueryError::InvalidIndexName(_) => (400, "invalid_index_name"),
            QueryError::UnsuitableIndex(_)
            | QueryError::InvalidIndexType(_)
            | QueryError::InvalidIndex(_)
            | QueryError::NoIndexDefinition => (400, "invalid_index"),
            QueryError::NoTextIndexes => (503, "required index service unavailable"),
            QueryError::IndexNotFound(_) => (404, "invalid_index"),
            QueryError::InvalidLanguage(_) => (400, "invalid_ddoc_lang"),
        }
    }
}

fn unsuitable(index: Option<&str>) -> String {
    match index {
        Some(index) => format!("{index} specified by `use_index` could not be found or it is not suitable."),
        None => "You must specify an index with the `use_index` parameter.".to_owned(),
    }
}
