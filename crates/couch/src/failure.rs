//! Failed requests, and the one table of their status, error and reason.
//!
//! An error that CouchDB has too must have the text of CouchDB: PouchDB and others compare the texts.

use std::borrow::Cow;

use documents::DocError;
use http::StatusCode;
use settings::NotStored;

use super::{commit_gate::LogFailed, redis_limits::Broken, refusal::Refusal};

/// Why a request fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// An error of documents or databases.
    Doc(DocError),
    /// The path does not support the method of the request, but only these methods.
    MethodNotAllowed(&'static str),
    /// The path does not exist; with the reason in the reply.
    NotFound(&'static str),
    /// The client must authenticate, or authenticate as another user. `route` decides whether the reply has a
    /// `WWW-Authenticate` header, for which browsers open their own log-in window. Replies for tools
    /// (`/metrics`, `/_backup`) have one.
    Unauthorized(&'static str),
    /// The client may not do this, whether it has authenticated or not.
    Forbidden(&'static str),
    /// The body does not have this required content type.
    BadContentType(&'static str),
    /// The body's `Content-Encoding` is not supported.
    BadContentEncoding,
    /// The bytes of an attachment do not have the digest of the header `Content-MD5`.
    DigestMismatch,
    /// The body is larger than its limit (`http-body-bytes-max`, or less for some requests and clients), or
    /// has too many queries.
    TooLarge,
    /// There is no memory left for the body, or a thread could not derive a password or store a setting.
    Busy,
    /// The revisions given in the body and in the query or `If-Match` differ.
    RevMismatch,
    /// The range does not contain any of the attachment's bytes, of which there are this many.
    RangeNotSatisfiable(u64),
    /// The server does not take this write, or shows no data, for this reason.
    Refused(Refusal),
    /// A function of CouchDB or of HTTP that this server does not have; with the reason in the reply.
    NotImplemented(&'static str),
    /// Too few replicas have acknowledged within `ack-timeout`; this server's log has the changes that the
    /// request made or would show.
    NotReplicated,
    /// Commands were not run, or their replies are not known.
    Commands(Broken),
    /// The body of the request ended early, or HTTP does not allow its form.
    Gone,
}

impl Failure {
    pub(super) fn bad_request(reason: impl Into<Cow<'static, str>>) -> Failure {
        Failure::Doc(DocError::BadRequest(reason.into()))
    }

    pub(super) fn query(reason: impl Into<Cow<'static, str>>) -> Failure {
        Failure::Doc(DocError::QueryParse(reason.into()))
    }

    /// The body, or a JSON parameter of the query, is not UTF-8 or not the JSON that is required there.
    pub(super) const INVALID_JSON: Failure = Failure::Doc(DocError::bad_request("invalid UTF-8 JSON"));

    /// The row of the table for this failure: status, error and reason.
    pub(super) fn row(&self) -> (StatusCode, &'static str, Cow<'static, str>) {
        match self {
            Failure::Doc(error) => {
                let status =
                    StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                (status, error.error(), error.reason().into())
            }
            Failure::MethodNotAllowed(methods) => {
                let reason = format!("Only {methods} allowed");
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason.into())
            }
            Failure::NotFound(reason) => (StatusCode::NOT_FOUND, "not_found", (*reason).into()),
            Failure::Unauthorized(reason) => (StatusCode::UNAUTHORIZED, "unauthorized", (*reason).into()),
            Failure::Forbidden(reason) => (StatusCode::FORBIDDEN, "forbidden", (*reason).into()),
            Failure::BadContentType(wanted) => {
                let reason = format!("Content-Type must be {wanted}");
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_content_type", reason.into())
            }
            Failure::BadContentEncoding => {
                let reason = "The Content-Encoding is not supported here".into();
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_ctype", reason)
            }
            Failure::DigestMismatch => {
                (StatusCode::BAD_REQUEST, "content_md5_mismatch", "Possible message corruption.".into())
            }
            Failure::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the request entity is too large".into())
            }
            Failure::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "service_unavailable",
                "Too many requests with large bodies are on their way; try again later.".into(),
            ),
            Failure::RevMismatch => {
                let reason = "Document rev from request body and query string have different values".into();
                (StatusCode::BAD_REQUEST, "bad_request", reason)
            }
            Failure::RangeNotSatisfiable(_) => (
                StatusCode::RANGE_NOT_SATISFIABLE,
                "requested_range_not_satisfiable",
                "Requested range not satisfiable".into(),
            ),
            Failure::Refused(refusal) => {
                let (status, error) = match refusal {
                    // A replica refuses every write, however often a client tries: with 403, PouchDB
                    // continues without storing checkpoints here.
                    Refusal::Replica => (StatusCode::FORBIDDEN, "forbidden"),
                    Refusal::DiskFull(_) => (StatusCode::INSUFFICIENT_STORAGE, "insufficient_storage"),
                    Refusal::LogFailed => (StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error"),
                    _ => (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable"),
                };
                (status, error, refusal.to_string().into())
            }
            Failure::NotImplemented(reason) => {
                (StatusCode::NOT_IMPLEMENTED, "not_implemented", (*reason).into())
            }
            Failure::NotReplicated => {
                let reason = "Not enough replicas have acknowledged within ack-timeout. The request was executed, but what it \
                              wrote, or would show, is lost if another server leads that does not have it: read before you \
                              repeat it.";
                (StatusCode::SERVICE_UNAVAILABLE, "not_replicated", reason.into())
            }
            Failure::Commands(broken) => {
                let (status, error) = match broken {
                    Broken::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
                    Broken::Late => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
                    Broken::Busy | Broken::NotServed(_) | Broken::Closed => {
                        (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable")
                    }
                };
                (status, error, broken.to_string().into())
            }
            Failure::Gone => (StatusCode::BAD_REQUEST, "bad_request", "the request ended too early".into()),
        }
    }

    /// Status, error and reason, for rows of a list of results.
    pub(super) fn parts(&self) -> (u16, &'static str, Cow<'static, str>) {
        let (status, error, reason) = self.row();
        (status.as_u16(), error, reason)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

impl From<LogFailed> for Failure {
    fn from(LogFailed: LogFailed) -> Failure {
        Failure::Refused(Refusal::LogFailed)
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Failure {
        Failure::Commands(broken)
    }
}

impl From<NotStored> for Failure {
    fn from(error: NotStored) -> Failure {
        match error {
            NotStored::NoRoom(reason) => Failure::Refused(Refusal::DiskFull(reason)),
            NotStored::Refused(reason) => Failure::bad_request(reason),
        }
    }
}

impl From<DocError> for Failure {
    fn from(error: DocError) -> Failure {
        Failure::Doc(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(failure: Failure) -> String {
        let (status, error, reason) = failure.parts();
        format!("{status} {error}: {reason}")
    }

    #[test]
    fn texts_are_those_of_couchdb() {
        for (failure, expected) in [
            (DocError::Conflict.into(), "409 conflict: Document update conflict."),
            (DocError::NoDatabase.into(), "404 not_found: Database does not exist."),
            (Failure::MethodNotAllowed("GET,HEAD"), "405 method_not_allowed: Only GET,HEAD allowed"),
            (
                Failure::BadContentType("application/json"),
                "415 bad_content_type: Content-Type must be application/json",
            ),
            (Failure::DigestMismatch, "400 content_md5_mismatch: Possible message corruption."),
            (Failure::TooLarge, "413 too_large: the request entity is too large"),
            (Failure::INVALID_JSON, "400 bad_request: invalid UTF-8 JSON"),
            (
                Failure::RangeNotSatisfiable(7),
                "416 requested_range_not_satisfiable: Requested range not satisfiable",
            ),
            (
                Failure::RevMismatch,
                "400 bad_request: Document rev from request body and query string have different values",
            ),
        ] {
            assert_eq!(told(failure), expected);
        }
    }

    #[test]
    fn refused_writes_have_statuses_that_say_if_a_retry_can_help() {
        let status = |refusal: Refusal| Failure::from(refusal).parts().0;
        assert_eq!(status(Refusal::Loading), 503);
        assert_eq!(status(Refusal::Replica), 403);
        assert_eq!(status(Refusal::Follower), 503);
        assert_eq!(status(Refusal::NoMajority), 503);
        assert_eq!(status(Refusal::NotCommitted), 503);
        assert_eq!(status(Refusal::DiskFull("x".into())), 507);
        assert_eq!(status(Refusal::LogFailed), 500);
    }
}
