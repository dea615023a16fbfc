//! Two paths of the HTTP port that are not CouchDB's: `/metrics` for Prometheus, `/_backup` for `sheaf
//! backup` and for servers that copy everything.

use std::sync::Arc;

use couch::{Answer, Body, Reply, Resource};
use http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;

use crate::{
    backup::routes,
    metrics::{self, Exposition},
    parts::Parts,
};

pub(super) struct ServerTools {
    pub(super) parts: Arc<Parts>,
}

impl couch::Tools for ServerTools {
    fn serves(&self, first_segment: &str) -> Option<Resource> {
        match first_segment {
            "metrics" => Some(Resource::Metrics),
            "_backup" => Some(Resource::Backup),
            _ => None,
        }
    }

    fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().trim_matches('/');
        if path == "metrics" {
            let reply = metrics_text(&self.parts, &request);
            return Box::pin(async { reply });
        }
        if path.starts_with("metrics") {
            return Box::pin(async { with_status(StatusCode::NOT_FOUND, Body::EMPTY) });
        }
        let backups = self.parts.backups.clone();
        Box::pin(routes::answer(backups, request))
    }
}

/// The reply to a request for `/metrics`.
fn metrics_text(parts: &Arc<Parts>, request: &Request<Incoming>) -> Reply {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut reply = with_status(StatusCode::METHOD_NOT_ALLOWED, Body::EMPTY);
        reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        return reply;
    }
    let accept = request.headers().get(header::ACCEPT);
    let exposition = Exposition::of(accept.and_then(|accept| accept.to_str().ok()));
    let Ok(text) = metrics::render(parts) else {
        return with_status(StatusCode::INTERNAL_SERVER_ERROR, Body::EMPTY);
    };
    let mut reply = with_status(StatusCode::OK, Body::from(exposition.text(text)));
    let content_type = HeaderValue::from_static(exposition.content_type());
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply
}

fn with_status(status: StatusCode, body: Body) -> Reply {
    let mut reply = Reply::new(body);
    *reply.status_mut() = status;
    reply
}
